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
from headrace.mount.write_back.publish_queue import Custody
from headrace.mount.write_back.staged_file import StagedFile, Trouble
from headrace.mount.write_back.staged_tree import Made

_log = logging.getLogger("headrace.mount")


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was found. `pending`: paths that are being published now, in the background; `renames`: old names of renames
    that are being finished; `left`: local files of what was being written at the crash and had neither been closed nor
    synced: they are kept, and not published.
    """

    pending: tuple[str, ...] = ()
    renames: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def recover(custody: Custody) -> Recovered:
    """Take up what the journal says; remove local files that it does not know. Call once, before anything else.

    Raises:
        OSError: the folder cannot be read.
    """
    pending: list[str] = []
    renames: list[str] = []
    left: list[str] = []
    known: set[int] = set()
    for number, record in custody.journal.live.items():
        kind = record.get("kind")
        if kind == "move":
            custody.moves.restore(number, dict(record))
            renames.append(record["old"])
        elif kind == "made":
            custody.tree.put(record["path"], Made(record["path"], Attributes(*record["attrs"]), number))
        elif kind == "file":
            known.add(number)
            if record["state"] == "pending":
                if _restore(custody, number, dict(record)):
                    pending.append(record["path"])
            elif (kept := _set_aside(custody, number, dict(record))) is not None:
                left.append(kept)
        elif kind == "left":
            custody.left.restore(number, record, custody.local(number))
    for number in custody.on_disk():
        if number not in known:
            os.unlink(custody.local(number))
    if pending or renames or custody.left.busy:
        custody.workers.wake()
    return Recovered(tuple(pending), tuple(renames), tuple(left))


def _restore(custody: Custody, number: int, record: dict[str, Any]) -> bool:
    local = custody.local(number)
    try:
        fd = os.open(local, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        custody.journal.drop(number)
        return False
    file = StagedFile(custody, number, record["path"], fd, local, Attributes())
    file.restore(record)
    if "absent" in record:
        try:
            place = custody.ns.resolve(file.path)
            file.absent = from_record(record["absent"], custody.ns.fetcher, place.store, fd)
        except HeadraceError as error:  # its store is no longer attached; the journal keeps it
            _log.warning("%s: cannot be taken up: %s", file.path, error)
            os.close(fd)
            return False
    reason = record.get("error") or "the mount ended before"
    file.trouble = Trouble(TryAgainError(reason, path=file.path), time.monotonic(), 0)
    custody.tree.put(file.path, file)
    return True


def _set_aside(custody: Custody, number: int, record: dict[str, Any]) -> str | None:
    """Where the content of a file that was open at the crash is kept; None where nothing of it was unpublished."""
    local = custody.local(number)
    try:
        status = os.stat(local)
    except FileNotFoundError:
        custody.journal.drop(number)
        return None
    if status.st_size != 0 and record.get("published") != [status.st_size, status.st_mtime_ns]:
        return custody.left.add(number, record, local)
    custody.journal.drop(number)
    with suppress(OSError):
        os.unlink(local)
    return None
