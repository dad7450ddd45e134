"""Checksums of tensors: XXH3 of 64 bits over the bytes as the file holds them, 16 hexadecimal digits.

`save` records them in the file's own metadata, as ``headrace.xxh3``: JSON, {name: checksum}. Other readers pass it by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import xxhash

from headrace.base.errors import CorruptError
from headrace.store.protocol import Buffer

RECORDED: Final = "headrace.xxh3"
"""Where they are in the metadata."""


class Checksum:
    """Of one tensor's bytes, as they come. Other threads run meanwhile."""

    def __init__(self) -> None:
        self._of = xxhash.xxh3_64()

    def update(self, data: Buffer) -> None:
        """The next bytes."""
        self._of.update(data)

    @property
    def text(self) -> str:
        """Of all so far."""
        return self._of.hexdigest()


def checksum(data: Buffer) -> str:
    """Of all of one tensor's bytes."""
    return f"{xxhash.xxh3_64_intdigest(data):016x}"


def recorded(metadata: Mapping[str, str], path: str) -> dict[str, str]:
    """What a file's metadata tells. Raises CorruptError: it is no JSON of that form."""
    text = metadata.get(RECORDED)
    if text is None:
        return {}
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict) or not all(isinstance(one, str) for one in told.values()):
        hint = "load it with verify=False"
        raise CorruptError(f"has checksums in {RECORDED} that are no JSON of texts", path=path, hint=hint)
    return told


def verify(name: str, data: Buffer, expected: str | None, path: str) -> None:
    """Compare, where something is `expected`. Raises CorruptError, which names the tensor."""
    if expected is not None and checksum(data) != expected:
        hint = "the object is damaged, or was on its way here; load it again, or publish it anew"
        raise CorruptError(f"tensor {name!r} does not match its checksum {expected}", path=path, hint=hint)
