"""What of a folder is in the store: one SQLite file, so that the next sync goes on where this one ended, or died.

An entry is written after the store has acknowledged the object; one that is lost only costs a second upload.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.store.protocol import ObjectInfo
from headrace.sync.digest import Digests
from headrace.sync.scan import Stamp

_log = logging.getLogger("headrace.sync")
_FORMAT = 1
_TABLES = """
create table if not exists sent (name text primary key, stamp text, object text, digests blob);
create table if not exists commits (folder text primary key, content text);
create table if not exists ready (folder text primary key, stamps text);
create table if not exists finished (folder text primary key, stamps text, at integer);
create table if not exists folder (one integer primary key, device text, inode text);
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent of a file: its stamp when it was read, the object, and the digests of what may be appended to."""

    stamp: Stamp
    info: ObjectInfo
    digests: Digests | None = None


class Ledger:
    """Any thread. A disk that fails, or is full, costs what would have been remembered, and one warning.

    `prefix`: what keys begin with. A file that is none of ours is put aside, and begun anew.
    """

    def __init__(self, path: str, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._broken = False
        try:
            self._base = _opened(path)
        except sqlite3.OperationalError as error:
            _log.warning("what is sent cannot be remembered, and will be compared anew: %s", error)
            self._base = _opened(":memory:")
        except sqlite3.DatabaseError as error:
            _log.warning("%s is put aside, and everything compared anew: %s", path, error)
            os.replace(path, f"{path}.bad")
            self._base = _opened(path)

    def sent(self) -> dict[str, Sent]:
        """Everything, by name."""
        with self._lock:
            rows = self._base.execute("select name, stamp, object, digests from sent").fetchall()
        return {name: self._sent(name, stamp, told, digests) for name, stamp, told, digests in rows}

    def commits(self) -> dict[str, str]:
        """Checkpoint folders whose marker is written: what it was written over."""
        with self._lock:
            return dict(self._base.execute("select folder, content from commits").fetchall())

    def ready(self) -> dict[str, str]:
        """Checkpoint folders that were seen to be finished: as what."""
        with self._lock:
            return dict(self._base.execute("select folder, stamps from ready").fetchall())

    def make_ready(self, folder: str, stamps: str) -> None:
        """A checkpoint folder is finished."""
        self._write("insert or replace into ready values (?, ?)", [(folder, stamps)])

    def finished(self) -> dict[str, tuple[str, int]]:
        """When checkpoint folders were finished: as what, and microseconds since the epoch, which never go back."""
        with self._lock:
            rows = self._base.execute("select folder, stamps, at from finished").fetchall()
        return {folder: (stamps, at) for folder, stamps, at in rows}

    def finish(self, folder: str, stamps: str, at: int) -> None:
        """A checkpoint folder was finished after all others."""
        self._write("insert or replace into finished values (?, ?, ?)", [(folder, stamps, at)])

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the folder in which all of this was; None: not known."""
        with self._lock:
            row = self._base.execute("select device, inode from folder").fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def identify(self, identity: tuple[int, int]) -> None:
        """The folder is another now."""
        self._write("insert or replace into folder values (0, ?, ?)", [tuple(map(str, identity))])

    def put(self, sent: Mapping[str, Sent]) -> None:
        """Files were sent. Together, since each transaction costs as much as a small upload."""
        rows = [
            (name, json.dumps(one.stamp), json.dumps(one.info[1:]), one.digests and one.digests.sums.tobytes())
            for name, one in sent.items()
        ]
        self._write("insert or replace into sent values (?, ?, ?, ?)", rows)

    def drop(self, names: Iterable[str]) -> None:
        """What is known of these files counts no more."""
        self._write("delete from sent where name = ?", [(name,) for name in names])

    def commit(self, folder: str, content: str | None) -> None:
        """A marker was written; None: taken away."""
        self._write("delete from commits where folder = ?", [(folder,)])
        if content is not None:
            self._write("insert into commits values (?, ?)", [(folder, content)])

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._base.close()

    def _sent(self, name: str, stamp: str, told: str, digests: bytes | None) -> Sent:
        info = ObjectInfo(self._prefix + name, *json.loads(told))
        held = None if digests is None else Digests(info.size, array("Q", digests))
        return Sent(Stamp(*json.loads(stamp)), info, held)

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        with self._lock:
            try:
                with self._base:  # commits, or rolls back
                    self._base.execute("begin")
                    self._base.executemany(statement, rows)
            except sqlite3.Error as error:
                if not self._broken:
                    _log.warning("what was sent cannot be remembered, and may be sent again: %s", error)
                self._broken = True


def _opened(path: str) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError: not a ledger, or one of a later format."""
    base = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10.0)
    try:
        base.execute("pragma journal_mode=wal")
        base.execute("pragma synchronous=normal")
        (found,) = base.execute("pragma user_version").fetchone()
        if found not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"a ledger of format {found}")
        base.executescript(_TABLES)
        base.execute(f"pragma user_version={_FORMAT}")
    except sqlite3.Error:
        base.close()
        raise
    return base
