"""What syncs that died, or ran out of time, have left on this machine, sent as they were told to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.base.errors import HeadraceError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.sync.following import left_when_interrupted
from headrace.sync.options import SyncOptions
from headrace.sync.report import Report
from headrace.sync.state import statuses
from headrace.sync.syncer import Sync


@dataclass(frozen=True, slots=True)
class RecoveredSync:
    """One folder. `state`: ``finished``, ``gone`` (there is no such folder any more), or why something is left, which
    `error` says, too. `files`, `bytes`: sent now.
    """

    folder: str
    url: str
    state: str
    files: int = 0
    bytes: int = 0
    error: HeadraceError | None = None


def recover_syncs(
    folder: str | None = None,
    options: SyncOptions | None = None,
    drain_s: float | None = None,
    *,
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    left: Callable[[Report], object] = lambda _report: None,
) -> Iterator[RecoveredSync]:
    """Send what is left of every sync of this machine, or of those of `folder`; one after the other, each as it was
    told to. Goes on after one that fails. One thread. What runs have left: `headrace.jobs.recover`.

    Args:
        folder: of which; None: of all.
        options: classes, bandwidth, and whether deletion is forced; the rest is as each sync was told. None:
            `SyncOptions.of`.
        drain_s: seconds for each of them; None: ``sync.drain``.
        namespace: where destinations are reached; None: that of the settings.
        settings: where syncs keep their state; None: `Settings.load`.
        progress: told of files and bytes.
        left: called with the report of one of which something is left, also when an interrupt ends it.
    """
    found = settings or Settings.load()
    space = namespace or Namespace.load(found)
    given = options or SyncOptions.of(found.sync)
    seconds = found.sync.drain if drain_s is None else drain_s
    for one in statuses(found.sync.state, folder=folder):
        if one.state in ("running", "finished"):
            continue
        if not os.path.isdir(one.folder):
            yield RecoveredSync(one.folder, one.url, "gone")
            continue
        try:
            sent = Sync.open(
                one.folder, one.destination, given.recovering(one.options), namespace=space, settings=found,
                progress=progress,
            )  # fmt: skip
            with sent as sync, left_when_interrupted(sync, left):
                report = sync.finish(seconds, complete=False)
            if report.left:
                left(report)
            report.check(one.folder)
        except HeadraceError as error:
            yield RecoveredSync(one.folder, one.url, str(error), error=error)
        else:
            yield RecoveredSync(one.folder, one.url, "finished", report.files, report.bytes)
