"""flock, used to save work and to agree on counts; never to keep the truth, which rename does."""

from __future__ import annotations

import fcntl
import os
import threading
import time

_PAUSES_S = (0.0, 20e-6, 100e-6, 500e-6, 2e-3, 8e-3, 20e-3)
"""How long a holder is waited for. Holders keep the lock for microseconds; one that was stopped must stop nobody."""


def try_flock(fd: int, *, shared: bool = False) -> bool:
    """Take a lock on an open file without waiting; False when another open file holds it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock_and_close(fd: int) -> None:
    """Unlock, then close: a child forked meanwhile shares the open file, so closing alone would not unlock it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass
    os.close(fd)


class FileLock:
    """A short lock between the threads of this process and between processes, on one file that stays open."""

    def __init__(self, path: str) -> None:
        """Raises OSError when the file can be neither opened nor created."""
        self.path = path
        self.fd = -1
        self.fd = self._open()
        self._mutex = threading.Lock()

    def acquire(self, *, patient: bool = True) -> bool:
        """True when held. Waits about 30 ms when patient, else not at all."""
        if not self._mutex.acquire(timeout=1.0 if patient else 0):
            return False
        held = False
        try:
            for pause in _PAUSES_S if patient else _PAUSES_S[:1]:
                if self.fd < 0:  # closed meanwhile
                    break
                held = try_flock(self.fd)
                if held:
                    break
                if patient:
                    time.sleep(pause)
        finally:
            if not held:
                self._mutex.release()
        return held

    def release(self) -> None:
        """Only by the holder."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError:
            pass
        self._mutex.release()

    def reopen(self) -> None:
        """In a forked child: an open file of our own, since locks on an inherited one are shared with the parent."""
        self._mutex = threading.Lock()
        inherited, self.fd = self.fd, self._open()
        os.close(inherited)

    def close(self) -> None:
        """The lock is not used afterwards."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        self.close()

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
