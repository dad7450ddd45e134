"""Locks between processes of one machine: a file that is held, and let go by the kernel however its holder ends."""

from __future__ import annotations

import fcntl
import os


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
