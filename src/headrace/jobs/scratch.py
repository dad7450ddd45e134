"""Where shells are laid out: folders that go with their shell, or, where that was killed, with who comes next.

<TMPDIR>/headrace-shell-<random>/lock      held by the shell, and by what it has started; not there: it is kept
├ <id>/                                    the run's `RunFolder`
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from headrace.base.errors import HeadraceError, TryAgainError
from headrace.base.locks import try_lock
from headrace.base.places import temporary_folder

_PREFIX: Final = "headrace-shell-"
_LOCK: Final = "lock"
_TRIES: Final = 8
"""Each may meet somebody who takes the new folder for one that was left, before it is locked."""


class Scratch:
    """A new one, locked. `lock` is for children to inherit: who lives on in the folder keeps it.

    Raises TryAgainError: nothing can be locked there. OSError: the disk.
    """

    def __init__(self) -> None:
        for _ in range(_TRIES):
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_folder())
            with suppress(FileNotFoundError):
                lock = _held(self.path, make=True)
                if lock is not None:
                    self.lock = lock
                    return
            shutil.rmtree(self.path, ignore_errors=True)
        raise TryAgainError("no folder can be locked there", path=temporary_folder(), hint="set TMPDIR")

    def keep(self) -> None:
        """Nobody is to remove it, however this ends. Once there is something in it."""
        os.unlink(os.path.join(self.path, _LOCK))

    def close(self, *, kept: bool) -> None:
        """Let go of it; unless it is `kept`, it is removed."""
        if not kept:
            with suppress(OSError):
                _remove(self.path)
        os.close(self.lock)


def sweep(tell: Callable[[str], None]) -> None:
    """Remove what shells of this user have left that were killed, once nothing they started is at work there.

    `tell` gets a line for each. Any thread, and any number of processes at once; raises nothing.
    """
    with suppress(OSError, HeadraceError), os.scandir(temporary_folder()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(_PREFIX)]
        for path in sorted(found):
            with suppress(OSError):
                if _is_ours(path) and _swept(path):
                    tell(f"removed what a shell that was killed has left: {path}")


def _swept(path: str) -> bool:
    """Whether something was left, and is gone now. Raises OSError."""
    try:
        lock = _held(path, make=False)
    except FileNotFoundError:
        os.rmdir(path)  # killed before it could lock it; one that is kept is not empty
        return False
    if lock is None:
        return False
    try:
        empty = os.listdir(path) == [_LOCK]  # killed, or just begun: that one takes another
        return _remove(path) and not empty
    finally:
        os.close(lock)


def _held(path: str, *, make: bool) -> int | None:
    """The lock of a folder, if it could be had while the folder was there. Raises OSError."""
    lock = try_lock(os.path.join(path, _LOCK), make=make)
    if lock is not None and not os.fstat(lock).st_nlink:  # it was swept, or is kept, since the file was opened
        os.close(lock)
        return None
    return lock


def _remove(path: str) -> bool:
    """Whether all of it is gone. The lock goes last: who is killed meanwhile leaves something to sweep.

    Our mounts in it are unmounted; where something else is mounted, what is there is not ours to delete.
    """
    from headrace.jobs.inputs.mounting import clear_mounts

    if not clear_mounts(path):
        return False
    for name in os.listdir(path):
        if name != _LOCK:
            inner = os.path.join(path, name)
            if os.path.islink(inner) or not os.path.isdir(inner):
                os.unlink(inner)
            else:
                shutil.rmtree(inner, ignore_errors=True)
    if os.listdir(path) not in ([], [_LOCK]):
        return False
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, _LOCK))
    os.rmdir(path)
    return True


def _is_ours(path: str) -> bool:
    told = os.lstat(path)
    return stat.S_ISDIR(told.st_mode) and told.st_uid == os.geteuid()
