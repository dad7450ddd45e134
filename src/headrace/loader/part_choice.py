"""Which parts of a sample a decoder takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def wanted(sample: Mapping[str, Any], names: tuple[str, ...], suffixes: frozenset[str]) -> tuple[str, ...] | list[str]:
    """The names given, else those of the sample's parts that end in one of the suffixes."""
    return names or [name for name in sample if name.rpartition(".")[2].lower() in suffixes]
