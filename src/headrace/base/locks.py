"""Locks between processes of one machine: a file that is held, and let go by the kernel however its holder ends."""

from __future__ import annotations

import fcntl
import os


def try_lock(path: str) -> int | None:
    """A descriptor that holds the file's lock until it is closed; None: another process has it. Any thread; at once.

    The file is made if it is not there, for its owner alone; children do not inherit the descriptor. `flock(2)`.
    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
