"""One file of a mount, written through shared mappings and descriptors, and what it must hold.

What a mapping writes the kernel keeps to itself until the page is cleaned, and a mapping outlives its file descriptor.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.mount_rig import PLAIN, Rig, wait_for

SIZE = 3 * mmap.PAGESIZE + 100
WAYS = {"read": os.O_RDONLY, "write": os.O_WRONLY, "both": os.O_RDWR}


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
LIBC.msync.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Mapping:
    """Shared and writable, by the C library: Python's own keeps a descriptor of the file open."""

    def __init__(self, fd: int, size: int = SIZE) -> None:
        self.size = size
        self.at = LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        assert self.at != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())

    def write(self, offset: int, data: bytes) -> None:
        ctypes.memmove(self.at + offset, data, len(data))

    def sync(self) -> None:
        """As `numpy.memmap.flush` does."""
        assert LIBC.msync(self.at, self.size, 4) == 0, os.strerror(ctypes.get_errno())

    def close(self) -> None:
        assert LIBC.munmap(self.at, self.size) == 0


@dataclass
class Writer:
    """One file, what it must hold, and what is open of it. `told`: whether the mount hears of every sync, which it does
    not of mappings of a file that somebody had open for only writing, or only reading, first.
    """

    mount: Rig
    name: str
    content: bytearray = field(default_factory=lambda: bytearray(SIZE))
    files: list[tuple[int, str]] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    told: bool = True

    @property
    def path(self) -> Path:
        return Path(self.mount.folder, self.name)

    def published(self) -> bytes:
        return self.path.read_bytes() if PLAIN else bytes(self.mount.store().get(self.name).data)

    def open(self, way: str) -> None:
        self.told &= way == "both" or any(each == "both" for _, each in self.files) or bool(self.mappings)
        self.files.append((os.open(self.path, WAYS[way]), way))

    def close(self, number: int) -> None:
        if self.files:
            os.close(self.files.pop(number % len(self.files))[0])

    def map(self, number: int) -> None:
        both = [fd for fd, way in self.files if way == "both"]
        if both:
            self.mappings.append(Mapping(both[number % len(both)]))

    def unmap(self, number: int) -> None:
        if self.mappings:
            self.mappings.pop(number % len(self.mappings)).close()

    def poke(self, number: int, offset: int, data: bytes) -> None:
        if self.mappings:
            self.mappings[number % len(self.mappings)].write(offset, data)
            self.content[offset : offset + len(data)] = data

    def write(self, number: int, offset: int, data: bytes) -> None:
        able = [fd for fd, way in self.files if way != "read"]
        if able:
            assert os.pwrite(able[number % len(able)], data, offset) == len(data)
            self.content[offset : offset + len(data)] = data

    def sync(self, number: int) -> None:
        if self.mappings:
            self.mappings[number % len(self.mappings)].sync()
            assert not self.told or self.published() == self.content, "after msync"

    def fsync(self, number: int) -> None:
        able = [fd for fd, way in self.files if way != "read"]
        if able:
            os.fsync(able[number % len(able)])
            assert self.published() == self.content, "after fsync"

    def pause(self, number: int) -> None:
        time.sleep(0.1 * (number % 3 + 1))  # a publication of its own may fall into it

    def quiet(self, _number: int = 0) -> None:
        """Nobody has it open: bucket, mount and cache hold the same."""
        while self.files or self.mappings:
            self.close(0)
            self.unmap(0)
        assert wait_for(lambda: self.published() == self.content, 15), "in the bucket"
        assert self.path.read_bytes() == self.content, "in the mount"
        self.told = True

    def abandon(self) -> None:
        """After a failure."""
        for fd, _ in self.files:
            os.close(fd)
        for mapping in self.mappings:
            mapping.close()
