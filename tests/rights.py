"""A root whom the modes of files bind, like everybody else: whatever lies above the files, and whose it is."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_OVERRIDE = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (linux/capability.h)."""
_VERSION_3 = 0x20080522
_PR_GET_SECUREBITS, _PR_SET_SECUREBITS = 27, 28
_NOROOT = 1
"""What is started has no more rights for being root's."""
_Words = ctypes.c_uint32 * 6


@contextmanager
def bound_by_modes() -> Iterator[None]:
    """This thread, and the threads and programs that it starts meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, held = (ctypes.c_uint32 * 2)(_VERSION_3, 0), _Words()
    _call(libc.capget(header, held))
    bits = libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0)
    fewer = _Words(*held)
    fewer[0] &= ~_OVERRIDE  # effective, permitted, inheritable of the first 32; then of the others
    _call(libc.prctl(_PR_SET_SECUREBITS, bits | _NOROOT, 0, 0, 0))
    _call(libc.capset(header, fewer))
    try:
        yield
    finally:
        _call(libc.capset(header, held))
        _call(libc.prctl(_PR_SET_SECUREBITS, bits, 0, 0, 0))


def _call(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
