"""All models of a home at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.models.registry import ModelVersion, Registry


@dataclass(frozen=True, slots=True)
class Overview:
    """One model. `versions`: folders of versions that it has; `newest`: the committed one with the highest number."""

    name: str
    versions: int
    newest: ModelVersion
    aliases: Mapping[str, int]


def overview(registry: Registry) -> list[Overview]:
    """Of each model that has a committed version, by name: two LISTs and three GETs or so for each.

    Raises any store error.
    """
    with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-models") as pool:
        found = pool.map(partial(_of, registry), registry.names())
        return [one for one in found if one is not None]


def _of(registry: Registry, name: str) -> Overview | None:
    newest = registry.versions(name, 1)
    if not newest:
        return None
    return Overview(name, len(registry.numbers(name)), newest[0], registry.aliases(name).aliases)
