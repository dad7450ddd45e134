"""What a mount that crashed has left in its staging folder, taken up again at the next mount."""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import HeadraceError, TryAgainError
from headrace.mount.write_back.missing_blocks import from_record
from headrace.mount.write_back.object_metadata import Attributes
from headrace.mount.write_back.publish_queue import PublishQueue
from headrace.mount.write_back.staged_file import PublishFailure, StagedFile
from headrace.mount.write_back.staged_tree import MadeFolder

_log = logging.getLogger("headrace.mount")


@dataclass(frozen=True, slots=True)
class RecoveredStaging:
    """What was found.

    `pending`: paths that are being published now, in the background. `renames`: old names of renames that are being
    finished. `orphans`: local files that were open at the crash, and neither closed nor synced: they are kept, and not
    published.
    """

    pending: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()


def recover(queue: PublishQueue) -> RecoveredStaging:
    """Take up what the journal says; remove local files that it does not know. Call once, before anything else.

    Raises:
        OSError: the folder cannot be read.
    """
    pending: list[str] = []
    renames: list[str] = []
    orphans: list[str] = []
    known: set[int] = set()
    for number, record in queue.journal.live.items():
        kind = record.get("kind")
        if kind == "move":
            queue.renames.restore(number, dict(record))
            renames.append(record["old"])
        elif kind == "made":
            queue.tree.put(record["path"], MadeFolder(record["path"], Attributes(*record["attrs"]), number))
        elif kind == "file":
            known.add(number)
            if record["state"] == "pending":
                if _restore(queue, number, dict(record)):
                    pending.append(record["path"])
            elif (kept := _set_aside(queue, number, dict(record))) is not None:
                orphans.append(kept)
        elif kind == "left":
            queue.orphans.restore(number, record, queue.local(number))
    for number in queue.on_disk():
        if number not in known:
            os.unlink(queue.local(number))
    if pending or renames or queue.orphans.busy:
        queue.threads.wake()
    return RecoveredStaging(tuple(pending), tuple(renames), tuple(orphans))


def _restore(queue: PublishQueue, number: int, record: dict[str, Any]) -> bool:
    local = queue.local(number)
    try:
        fd = os.open(local, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        queue.journal.drop(number)
        return False
    file = StagedFile(queue, number, record["path"], fd, local, Attributes())
    file.restore(record)
    if "absent" in record:
        try:
            place = queue.ns.resolve(file.path)
            file.missing = from_record(record["absent"], queue.ns.fetcher, place.store, fd)
        except HeadraceError as error:  # its store is no longer attached; the journal keeps it
            _log.warning("%s: cannot be taken up: %s", file.path, error)
            os.close(fd)
            return False
    reason = record.get("error") or "the mount ended before"
    file.trouble = PublishFailure(TryAgainError(reason, path=file.path), time.monotonic(), 0)
    queue.tree.put(file.path, file)
    return True


def _set_aside(queue: PublishQueue, number: int, record: dict[str, Any]) -> str | None:
    """Where the content of a file that was open at the crash is kept; None where nothing of it was unpublished."""
    local = queue.local(number)
    try:
        status = os.stat(local)
    except FileNotFoundError:
        queue.journal.drop(number)
        return None
    if status.st_size != 0 and record.get("published") != [status.st_size, status.st_mtime_ns]:
        return queue.orphans.add(number, record, local)
    queue.journal.drop(number)
    with suppress(OSError):
        os.unlink(local)
    return None
