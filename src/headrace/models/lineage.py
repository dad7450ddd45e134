"""Where a model comes from, and what came of a run: both ways are written down when a version is published.

    <home>/models/<name>/<number>/model.json        names the run; has its data, code and metrics as it recorded them
    <home>/runs/<id>/models/<name>@<number>.json    {"format_version": 1, "name", "number", "time"}: the way back

The way back is written before ``COMMITTED``, so no version lacks it; whoever follows it looks whether there is one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.models.card import ModelCard
from headrace.models.names import Reference, parse
from headrace.models.registry import Registry
from headrace.tracking.record import RUNS
from headrace.tracking.results import results
from headrace.tracking.runs import Run

_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Made:
    """What a run recorded that is told of its models."""

    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    code: Mapping[str, Any] = field(default_factory=dict[str, Any])
    metrics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])


def of_run(run: Run) -> Made:
    """Raises NotFoundError, CorruptError, any store error."""
    record = run.record()
    return Made(dict(record.inputs), dict(record.code or {}), results(run))


def note(registry: Registry, card: ModelCard) -> None:
    """Write down the way back from the run of a version. Raises any store error."""
    told = {"format_version": 1, "name": card.name, "number": card.number, "time": card.created}
    registry.home.store.put(_key(registry, card.run or "", card.name, card.number), json.dumps(told).encode())


def models_of(registry: Registry, run: str) -> list[Reference]:
    """The versions that were made of a run and are there, by name and number. One LIST, and one HEAD for each.

    Raises any store error.
    """
    prefix = registry.home.key(RUNS, run, "models", "")
    found: list[Reference] = []
    for page in registry.home.store.list(prefix):
        for info in page:
            with suppress(HeadraceError):
                found.append(parse(info.key[len(prefix) :].removesuffix(_SUFFIX)))

    def is_there(one: Reference) -> bool:
        return one.number is not None and registry.is_committed(one.name, one.number)

    with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-models") as pool:
        return sorted(one for one, there in zip(found, pool.map(is_there, found), strict=True) if there)


def forget(registry: Registry, name: str, number: int) -> None:
    """Delete the way back to a version that is being deleted. What cannot be read is left: it leads nowhere then."""
    with suppress(HeadraceError):
        version = registry.find(name, number)
        if version is not None and version.card.run is not None:
            registry.home.store.delete([_key(registry, version.card.run, name, number)])


def _key(registry: Registry, run: str, name: str, number: int) -> str:
    return registry.home.key(RUNS, run, "models", f"{name}@{number}{_SUFFIX}")
