"""A folder sent until somebody ends that, as `headrace sync` does: `sync_folder`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.sync.options import SyncOptions
from headrace.sync.report import Report
from headrace.sync.syncer import Sync

_LOOK_S: Final = 1.0  # seconds: a signal that comes just before a wait is heard when it is over


def sync_folder(
    folder: str | os.PathLike[str],
    destination: str,
    options: SyncOptions | None = None,
    *,
    until: threading.Event | None = None,
    drain_s: float | None = None,
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    begun: Callable[[], object] = lambda: None,
    left: Callable[[Report], object] = lambda _report: None,
) -> Report:
    """``sync_folder("outputs", "s3://bucket/outputs")``: send what is there; with `until` what changes, too, until that
    is set. Then what is left. One thread.

    Args:
        folder: what is sent.
        destination: a path of the namespace, or a URL.
        options: which files, how often; None: `SyncOptions.of`.
        until: whoever sets it ends the following. None: nothing is being written any more; what is there is sent.
        drain_s: seconds for what is left, at most; None: ``sync.drain``.
        namespace: where the destination is reached; None: that of the settings.
        settings: where it keeps its state; None: `Settings.load`.
        progress: told of files and bytes.
        begun: called once it follows, before `until` is waited for.
        left: called with the report when KeyboardInterrupt ends it.

    Returns:
        What was sent, and what is left: `Report.check` raises then.

    Raises:
        InputError: not a folder. As `Sync.open`; any store error: the destination cannot be listed.
    """
    found = settings or Settings.load()
    chosen = options or SyncOptions.of(found.sync)
    if until is None:
        chosen = replace(chosen, watch=False)
    seconds = found.sync.drain if drain_s is None else drain_s
    with (
        Sync.open(folder, destination, chosen, namespace=namespace, settings=found, progress=progress) as sync,
        left_when_interrupted(sync, left),
    ):
        if until is not None:
            begun()
            while not until.wait(_LOOK_S):
                pass
        return sync.finish(seconds, complete=until is None)


@contextmanager
def left_when_interrupted(sync: Sync, left: Callable[[Report], object]) -> Generator[None]:
    """Ctrl-C closes it, and says what is left."""
    try:
        yield
    except KeyboardInterrupt:
        sync.close()
        left(sync.report())
        raise
