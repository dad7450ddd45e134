"""Locks between processes of one machine: a file that is held, and let go by the kernel however its holder ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable


def try_lock(path: str, *, make: bool = True) -> int | None:
    """A descriptor that holds the file's lock until it is closed; None: another process has it. Any thread; at once.

    The file is made if it is not there, for its owner alone, unless `make` is false; children do not inherit the
    descriptor. `flock(2)`. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def holders(paths: Iterable[str]) -> dict[str, int]:
    """Which of these files' locks are held, and by which process (0: one that is not seen from here). Takes none.

    Of ``/proc/locks`` (`proc(5)`). Files are told apart by their inodes alone: the device there is the file system's,
    which on some (btrfs, overlayfs) is not what `stat` says. Empty where there is no such file.
    """
    try:
        with open("/proc/locks", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:
        return {}
    held = {words[5].rpartition(":")[2]: max(0, int(words[4])) for words in lines if words[1:2] == ["FLOCK"]}
    found: dict[str, int] = {}
    for path in paths:
        try:
            inode = str(os.stat(path).st_ino)
        except OSError:
            continue
        if inode in held:
            found[path] = held[inode]
    return found
