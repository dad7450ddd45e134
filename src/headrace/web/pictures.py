"""Small pictures that were made, kept in the node's cache folder: a hint that may be deleted at any time.

One SQLite file for all pages of the node; what has been kept longest goes where there is no more room. A picture is
named by the object version it was made of, so no name ever stands for another picture.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from contextlib import suppress
from typing import Final

_log = logging.getLogger("headrace.web")
ROOM: Final = 256 << 20
"""Bytes on disk."""
_IN_MEMORY: Final = 16 << 20  # bytes, where there is no disk
_FORMAT: Final = 1  # of the file; another has another name
_TABLE: Final = "CREATE TABLE IF NOT EXISTS pictures (at INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, data BLOB)"


class Pictures:
    """Any thread. `folder` None: kept in memory, fewer of them. What the disk refuses is a miss, never an error."""

    def __init__(self, folder: str | None, room: int = ROOM) -> None:
        self._path = os.path.join(folder, f"pictures-{_FORMAT}.sqlite") if folder is not None else ":memory:"
        self._room = room if folder is not None else min(room, _IN_MEMORY)
        self._lock = threading.Lock()
        self._database = self._open()

    def get(self, name: str) -> bytes | None:
        """One that was kept."""
        try:
            with self._lock:
                found = self._database.execute("SELECT data FROM pictures WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            self._mend(error)
            return None
        return found[0] if found is not None else None

    def keep(self, name: str, data: bytes) -> None:
        """Until there is no room for it."""
        try:
            with self._lock, self._database as database:
                database.execute("INSERT OR REPLACE INTO pictures (name, data) VALUES (?, ?)", (name, data))
                if self._size() > self._room:
                    first, last = database.execute("SELECT min(at), max(at) FROM pictures").fetchone()
                    database.execute("DELETE FROM pictures WHERE at <= ?", (first + (last - first) // 4,))
        except sqlite3.Error as error:
            self._mend(error)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._database.close()

    def _size(self) -> int:
        """Bytes in use."""
        asked = ("page_count", "freelist_count", "page_size")
        pages, free, size = (self._database.execute(f"PRAGMA {one}").fetchone()[0] for one in asked)
        return (pages - free) * size

    def _mend(self, error: sqlite3.Error) -> None:
        """Begin anew with a file that is damaged, or no longer there; not where another process merely has it."""
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return
        _log.info("small pictures are kept anew: %s", error)
        with self._lock:
            self._database.close()
            self._discard()
            self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        """The file; where it is damaged, a new one; where that cannot be, memory."""
        for last in (False, True):
            try:
                if self._path != ":memory:":
                    os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                return self._prepared(self._path)
            except (sqlite3.Error, OSError) as error:
                if last:
                    _log.warning("small pictures are kept in memory: %s", error)
                self._discard()
        self._path, self._room = ":memory:", min(self._room, _IN_MEMORY)
        return self._prepared(self._path)

    def _discard(self) -> None:
        for left in ("", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(self._path + left)

    def _prepared(self, path: str) -> sqlite3.Connection:
        database = sqlite3.connect(path, timeout=2, check_same_thread=False)
        try:
            database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; {_TABLE}")
        except BaseException:
            database.close()
            raise
        return database
