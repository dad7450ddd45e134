"""What a job says of its outputs, as options of the sync that sends the run's folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headrace.jobs.folder import NOT_SENT, RunFolder
from headrace.jobs.spec_parts import OutputSpec
from headrace.sync import CLASSES, IGNORED, FileClass, Mark, State, Sync, SyncOptions
from headrace.tracking.runs import Run

NOT_A_NODES: Final = ("code/*", "inputs/*", "logs/*", "metrics/*", "loaders/*")
"""What is sent for all nodes of a gang by who leads it."""


def open_sync(folder: RunFolder, run: Run, spec: OutputSpec, mark: Mark | None = None) -> Sync:
    """The sync of a run's folder, not yet started. `mark`: it is that of one node of a gang (`SyncOptions.mark`).

    Raises TryAgainError: another works on it; OSError: the disk.
    """
    options = sync_options(spec)
    if mark is not None:
        options = replace(options, ignore=(*options.ignore, *NOT_A_NODES), shared=True, mark=mark)
    record = folder.recorded()
    state = State(folder.at("sync"), record, run.url, run.url, options.selection())
    return Sync(record, run.store, run.prefix, state, options)


def sync_options(spec: OutputSpec) -> SyncOptions:
    """Patterns of a job are for what it writes: the run's own logs and metrics are none of theirs."""
    asked = tuple(
        FileClass(name, tuple(_below_record(one.patterns)), one.at_least, one.period, one.when_closed, one.growing)
        for name, one in spec.classes.items()
    )
    return SyncOptions(
        asked + tuple(one if one.when_closed else replace(one, period=spec.period) for one in CLASSES),
        (*IGNORED, *NOT_SENT, *_below_record(spec.exclude)),
        tuple(one if one.startswith("checkpoints/") else f"outputs/{one}" for one in spec.checkpoints),
        bandwidth=spec.bandwidth or None,
        requests=spec.requests,
    )


def _below_record(patterns: tuple[str, ...]) -> list[str]:
    """Patterns of outputs, as names below ``record``, where checkpoints lie beside the others."""
    found: list[str] = []
    for pattern in patterns:
        found += [f"outputs/{pattern}", f"checkpoints/{pattern.removeprefix('checkpoints/')}"]
        found += [f"{folder}/*/{pattern}" for folder in ("outputs", "checkpoints") if "/" not in pattern]
    return found
