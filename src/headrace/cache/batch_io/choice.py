"""Which way this process reads and writes many files: decided once, by asking the kernel."""

from __future__ import annotations

from functools import cache

from headrace.cache.batch_io.io_uring import IoUring
from headrace.cache.batch_io.plain import PlainCalls
from headrace.cache.batch_io.protocol import BatchIO


@cache
def chosen() -> BatchIO:
    """io_uring where the kernel has it and allows it, else plain calls. Any thread; the first call takes about 1 ms."""
    return IoUring() if IoUring.works() else PlainCalls()
