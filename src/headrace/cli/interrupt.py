"""Ctrl-C ends any command within two seconds, even one that is waiting inside native code."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Generator

GRACE_S = 1.7
"""Time an interrupted command has to stop in order."""


@contextlib.contextmanager
def two_seconds_to_stop() -> Generator[None]:
    """While this is open, SIGINT leaves the process `GRACE_S` to end in order, then ends it with exit code 130.

    The signal reaches a watching thread through `signal.set_wakeup_fd`, so it counts even when the main thread is in
    a call that does not look for signals. The watch outlives the block once a signal has come: an orderly end can
    hang as well. Outside the main thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    inner, outer = socket.socketpair()
    outer.setblocking(False)
    before = signal.set_wakeup_fd(outer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(inner,), name="headrace-interrupt", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        outer.close()


def _watch(inner: socket.socket) -> None:
    with inner:
        while caught := inner.recv(64):
            if signal.SIGINT in caught:
                threading.Event().wait(GRACE_S)
                os._exit(128 + signal.SIGINT)
