"""A file of which only some stretches are in memory: what pyarrow reads a row group from."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.base.arrow import Source, pa
from headrace.base.errors import CorruptError
from headrace.store.protocol import Buffer


class SparseFile:
    """As much of Python's file protocol as ``pa.PythonFile`` asks for. One thread.

    `pieces`: (first byte, bytes), in rising order. What is read is a view of them, never a copy.
    """

    closed = False

    def __init__(self, size: int, pieces: Sequence[tuple[int, Buffer]] = ()) -> None:
        self._size = size
        self.hold(pieces)

    def hold(self, pieces: Sequence[tuple[int, Buffer]]) -> None:
        """Have these stretches instead."""
        self._pieces = [(start, memoryview(data).cast("B")) for start, data in pieces]
        self._at = 0

    def read(self, size: int = -1) -> memoryview:
        """Up to `size` bytes from here on.

        Raises:
            CorruptError: these bytes were never asked for, so what points to them is wrong.
        """
        stop = self._size if size < 0 else min(self._at + size, self._size)
        start, self._at = self._at, max(stop, self._at)
        if stop <= start:
            return memoryview(b"")
        for low, data in self._pieces:
            if low <= start and stop <= low + len(data):
                return data[start - low : stop - low]
        raise CorruptError(f"its data points at bytes {start:,} to {stop:,}, where its footer names none")

    read_buffer = read

    def seek(self, offset: int, whence: int = 0) -> int:
        """As of any file."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """As of any file."""
        return self._at

    def size(self) -> int:
        """Bytes of the whole file."""
        return self._size

    def readable(self) -> bool:
        """As of any file."""
        return True

    seekable = readable

    def close(self) -> None:
        """As of any file."""
        self.closed = True

    def source(self) -> Source:
        """This file as pyarrow takes it."""
        return pa.PythonFile(self, mode="r")
