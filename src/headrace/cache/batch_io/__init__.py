"""Many small files read, or written, together. See `BatchIO`; the README of this room's parent says who uses it."""

from __future__ import annotations

from headrace.cache.batch_io.choice import chosen
from headrace.cache.batch_io.io_uring import IO_URING
from headrace.cache.batch_io.protocol import LEFT_OUT, MOST, BatchIO, NewFile

__all__ = ["IO_URING", "LEFT_OUT", "MOST", "BatchIO", "NewFile", "chosen"]
