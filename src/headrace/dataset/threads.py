"""Threads of ours that have been told to end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable


def join_all(threads: Iterable[threading.Thread], within_s: float) -> None:
    """Wait for them, at most `within_s` seconds in all; never for the calling thread itself. Any thread.

    Who is in a user's function that hangs, or in a read that a stalled store answers late, is left to end by itself.
    """
    deadline = time.monotonic() + within_s
    for thread in threads:
        if thread is not threading.current_thread() and thread.is_alive():
            thread.join(max(0.0, deadline - time.monotonic()))
