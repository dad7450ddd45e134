"""A quick "it is not there", for epochs that mostly miss.

Every system call that Python makes lets go of the interpreter's lock, and while another thread is busy each costs a few
hand-overs: ten times what looking up a name costs that the kernel knows to be absent. Here the lock is kept. That
would be wrong where a lookup waits for a disk or a network, so lookups are timed, and left alone for a while when slow.
"""

from __future__ import annotations

import ctypes
import os
import time

_SLOW_S, _MOST_S = 20e-6, 200e-6
_PAUSE_S = 5.0
_ALPHA = 0.05


class Absence:
    """Asks the kernel whether files exist. Any thread."""

    def __init__(self) -> None:
        try:
            access = ctypes.PyDLL(None, use_errno=False).access
        except (OSError, AttributeError):
            self._access = None
            return
        access.argtypes = (ctypes.c_char_p, ctypes.c_int)
        access.restype = ctypes.c_int
        self._access = access
        self._takes = 0.0
        self._again = 0.0

    def sure(self, path: str) -> bool:
        """True: no such file, or one that cannot be seen. False: it is there, or nobody looked."""
        access = self._access
        if access is None:
            return False
        began = time.perf_counter()
        if began < self._again:
            return False
        absent = access(path.encode(), os.F_OK) != 0
        took = min(time.perf_counter() - began, _MOST_S)  # an outlier is a processor taken away, not a slow disk
        self._takes += _ALPHA * (took - self._takes)
        if self._takes > _SLOW_S:
            self._takes, self._again = 0.0, began + _PAUSE_S
        return absent
