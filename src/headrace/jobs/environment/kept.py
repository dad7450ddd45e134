"""Folders that are made once on a node, used by many at once, and removed when nobody has wanted them for long::

    <root>/<key>/            whole: it got this name when it was finished
           <key>.lock        held alone to make or remove the folder, shared to use it; its time: the last use
           .new-<key>-…      being made, or left by a crash

Locks are the kernel's (flock): they end with the process that holds them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from headrace.base.errors import NoRoomError, TryAgainError
from headrace.base.places import make_folder

_NEVER_LOOKED = object()


@dataclass(slots=True)
class Held:
    """A folder that nobody removes until `close`. Not for two threads at once. `made`: it was not there before."""

    folder: str
    made: bool
    _lock: int | None

    def close(self) -> None:
        """Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class KeptFolders:
    """Any thread, any number of processes. `keep`: folders that stay when nobody uses them, last used first."""

    def __init__(self, root: str, keep: int) -> None:
        self._root, self._keep = root, keep

    def get(
        self,
        key: str,
        make: Callable[[str], None],
        *,
        deadline: float,
        sound: Callable[[str], bool] = os.path.isdir,
        waiting: Callable[[], None] = lambda: None,
    ) -> Held:
        """The folder of `key`, made by ``make(new folder)`` if it is not there, or not `sound` any more.

        `waiting` is called once if another process is making it; `deadline`: seconds to wait for that one.

        Raises:
            NoRoomError: disk full. TryAgainError: another process is still making it. What `make` raises.
        """
        make_folder(self._root, "HEADRACE_RUN_CACHE")
        folder, wait = self._at(key), _Wait(self._at(f"{key}.lock"), deadline, waiting)
        unsound: object = _NEVER_LOOKED  # the folder found so last: a look may take long
        while True:
            shared = _flocked(wait.path, fcntl.LOCK_SH)
            if shared is not None:
                if (there := _identity(folder)) != unsound and sound(folder):
                    os.utime(shared)
                    return Held(folder, False, shared)
                os.close(shared)
                unsound = there
            # In turns, never waiting for this one only: whoever makes the folder then keeps the lock, shared.
            alone = _flocked(wait.path, fcntl.LOCK_EX)
            if alone is None:
                wait.a_while()
            elif (held := self._made(key, alone, make, sound)) is not None:
                return held

    def _made(self, key: str, lock: int, make: Callable[[str], None], sound: Callable[[str], bool]) -> Held | None:
        """Given the lock, held alone, which this gives back; None if somebody removed the folder at once."""
        folder, held = self._at(key), None
        try:
            made = not sound(folder)
            if made:
                self._make(key, make)
            fcntl.flock(lock, fcntl.LOCK_SH)  # not in one step: somebody may remove it in between
            if sound(folder):
                os.utime(lock)
                held = Held(folder, made, lock)
                self._prune()
            return held
        except OSError as error:
            raise _translated(error, folder) from error
        finally:
            if held is None:
                os.close(lock)

    def _make(self, key: str, make: Callable[[str], None]) -> None:
        self._clear(key)
        new = os.path.join(self._root, f".new-{key}-{secrets.token_hex(4)}")
        try:
            os.mkdir(new, 0o700)
            make(new)
            _on_disk(new)
            os.rename(new, os.path.join(self._root, key))
        except BaseException:
            _remove(new)
            raise

    def _clear(self, key: str) -> None:
        """Remove the folder, and what crashes left of it. Only with its lock held alone."""
        with suppress(FileNotFoundError):  # first the name, so that a crash leaves no half of it under it
            os.rename(os.path.join(self._root, key), os.path.join(self._root, f".new-{key}-{secrets.token_hex(4)}"))
        for name in os.listdir(self._root):
            if name.startswith(f".new-{key}-"):
                _remove(os.path.join(self._root, name))

    def make_room(self, enough: Callable[[], bool]) -> bool:
        """Remove folders that nobody uses, those used longest ago first, until ``enough()``; whether it is."""
        while not enough():
            if not any(self._drop(key) for key in reversed(self._by_use()) if os.path.isdir(self._at(key))):
                return False
        return True

    def _at(self, key: str) -> str:
        return os.path.join(self._root, key)

    def _by_use(self) -> list[str]:
        """Keys, the one used last first."""
        names = os.listdir(self._root)
        keys = [name for name in names if f"{name}.lock" in names]
        return sorted(keys, key=lambda key: os.stat(self._at(f"{key}.lock")).st_mtime, reverse=True)

    def _drop(self, key: str) -> bool:
        """Remove one; False if it is in use."""
        lock = _flocked(self._at(f"{key}.lock"), fcntl.LOCK_EX)
        if lock is None:
            return False
        self._clear(key)
        os.close(lock)
        return True

    def _prune(self) -> None:
        """Remove those used longest ago, past `keep`; never one that is held."""
        with suppress(OSError):
            there = self._by_use()
            broken = {name.split("-")[1] for name in os.listdir(self._root) if name.startswith(".new-")}
            for key in [*there[self._keep :], *(broken - set(there[: self._keep]))]:
                self._drop(key)


class _Wait:
    """For another process that holds the lock at `path`, `deadline` seconds at most. `told` is called once."""

    def __init__(self, path: str, deadline: float, told: Callable[[], None]) -> None:
        self.path, self._until = path, time.monotonic() + deadline
        self._tell: Callable[[], None] | None = told

    def a_while(self) -> None:
        """Raises TryAgainError after the last."""
        if self._tell is not None:
            self._tell()
            self._tell = None
        if time.monotonic() > self._until:
            hint = "it may be stuck: `fuser` names the process that holds the lock"
            raise TryAgainError("another process has been making this for too long", path=self.path, hint=hint)
        time.sleep(0.1)


def _identity(folder: str) -> tuple[int, int] | None:
    """Another for a folder made anew."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _flocked(path: str, how: int) -> int | None:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _translated(error, path) from error
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _remove(folder: str) -> None:
    """Also where its folders are read-only, which is no matter to root."""
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder):
        for path, _, _ in os.walk(folder):
            with suppress(OSError):
                os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _on_disk(folder: str) -> None:
    """All of its file system: a power cut after the rename must not leave a folder of empty files."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        ctypes.CDLL(None).syncfs(fd)
    finally:
        os.close(fd)


def _translated(error: OSError, path: str) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoomError("no room on the disk", path=path, hint="make room, or move the cache: HEADRACE_RUN_CACHE")
    return error
