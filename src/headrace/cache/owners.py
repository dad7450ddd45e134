"""Who is busy with a name: one lock for each name, between the threads of this process and between processes.

Between processes it is a lock of one byte in one file, at a place the name gives: one system call to take, none of
them waits, and the kernel frees what a killed process held. Open file description locks (fcntl(2), Linux 3.15), not
flock, which would need a file a name; not POSIX record locks, which any close of the file in the process would free.
Used to save work, never to keep the truth, which rename does.
"""

from __future__ import annotations

import fcntl
import os
import random
import struct
from contextlib import suppress

_FLOCK = struct.Struct("@hhqqi4x")
_SET = getattr(fcntl, "F_OFD_SETLK", None)
_GET = getattr(fcntl, "F_OFD_GETLK", None)


class Owners:
    """Locks on names (`headrace.cache.names`). Any thread.

    `shared`: whether they exclude other processes; on some network file systems locks do nothing, or do not exist.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError when the file can be neither opened nor created."""
        self._path = path
        self._fd = -1
        self._fd = self._open()
        self._held: dict[str, object] = {}
        self.shared = self._excludes()

    def take(self, name: str) -> object | None:
        """A token to give back; None when somebody has this name.

        Raises:
            OSError: the disk, or the file system's locks, fail.
        """
        token = object()
        if self._held.setdefault(name, token) is not token:
            return None
        try:
            if not self.shared or _lock(self._fd, fcntl.F_WRLCK, _place(name)):
                return token
        except OSError:
            del self._held[name]
            raise
        del self._held[name]
        return None

    def give(self, name: str, token: object) -> bool:
        """Let go. False when this token no longer holds the name: given back before, or by a parent of this process."""
        if self._held.get(name) is not token:
            return False
        if self.shared and self._fd >= 0:
            with suppress(OSError):
                _lock(self._fd, fcntl.F_UNLCK, _place(name))
        self._held.pop(name, None)
        return True

    def busy(self, name: str) -> bool:
        """Whether anybody has this name. Raises OSError."""
        if name in self._held:
            return True
        if not self.shared or _GET is None or self._fd < 0:
            return False
        answer = fcntl.fcntl(self._fd, _GET, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _place(name), 1, 0))
        return _FLOCK.unpack(answer)[0] != fcntl.F_UNLCK

    def reopen(self) -> None:
        """In a forked child: an open file of our own; what is locked through the inherited one stays the parent's."""
        inherited, self._fd = self._fd, self._open()
        self._held = {}
        os.close(inherited)

    def close(self) -> None:
        """Everything is free afterwards."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _excludes(self) -> bool:
        if _SET is None:
            return False
        place = (1 << 61) + random.randrange(1 << 60)  # above all names, and apart from others who try just now
        other = -1
        try:
            other = self._open()
            return _lock(self._fd, fcntl.F_WRLCK, place) and not _lock(other, fcntl.F_WRLCK, place)
        except OSError:
            return False
        finally:
            with suppress(OSError):
                _lock(self._fd, fcntl.F_UNLCK, place)
            if other >= 0:
                os.close(other)


def _place(name: str) -> int:
    return int(name[:15], 16)


def _lock(fd: int, kind: int, place: int) -> bool:
    assert _SET is not None
    try:
        fcntl.fcntl(fd, _SET, _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True
