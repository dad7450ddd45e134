"""The bytes of a file, by ranges: a `ShardBytes` for what indexes shards, a seekable file for libraries."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import InputError, NoRoomError
from headrace.base.units import format_bytes

_AHEAD: Final = 16 << 10
"""Bytes of a read at least: headers that lie close together come with one."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one preview may take: bytes of the file in so many reads, seconds by the clock and of the CPU, memory."""

    bytes: int = 32 << 20
    reads: int = 300
    seconds: float = 20.0
    memory: int = 1536 << 20


class Budget:
    """Of one preview. `take` before each read."""

    def __init__(self, limits: Limits) -> None:
        self._bytes, self._reads = limits.bytes, limits.reads
        self._told = f"a preview reads at most {format_bytes(limits.bytes)} of a file, in {limits.reads} pieces"

    def take(self, start: int, stop: int) -> None:
        """Raises NoRoomError: that would be too much. InputError: no range."""
        if not 0 <= start <= stop:
            raise InputError(f"bytes [{start}, {stop}) are no range")
        self._bytes -= stop - start
        self._reads -= 1
        if self._bytes < 0 or self._reads < 0:
            self._bytes = 0  # and nothing more
            raise NoRoomError(self._told, hint="download it to see all of it")


class Source:
    """One file. One thread. `ask`: gives bytes [start, stop), and raises NoRoomError where that is too much."""

    def __init__(self, path: str, size: int, ask: Callable[[int, int], bytes]) -> None:
        self.path, self.size = path, size
        self._ask = ask
        self._start, self._data = 0, b""

    @property
    def name(self) -> str:
        """The last part of its path, lower case."""
        return self.path.rpartition("/")[2].lower()

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop), cut off at the end. Raises NoRoomError, and what the store raises."""
        start, stop = max(0, start), min(stop, self.size)
        if start >= stop:
            return memoryview(b"")
        if not (self._start <= start and stop <= self._start + len(self._data)):
            self._data = self._ask(start, max(stop, min(start + _AHEAD, self.size)))
            self._start = start
        at = start - self._start
        return memoryview(self._data)[at : at + stop - start]

    def file(self) -> io.BufferedReader:
        """The same for libraries."""
        return io.BufferedReader(_Raw(self), 4096)


class _Raw(io.RawIOBase):
    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source, self._at = source, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._source.size}[whence]
        if base + offset < 0:
            raise InputError(f"a place before the beginning: {base + offset}", path=self._source.path)
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        into = memoryview(buffer).cast("B")
        data = self._source.read(self._at, self._at + len(into))
        into[: len(data)] = data
        self._at += len(data)
        return len(data)
