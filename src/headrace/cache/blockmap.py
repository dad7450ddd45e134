"""The map of a block entry: which blocks are there, and their checksums.

File format: magic, block size, object size, the boot it was last checked in; at byte 64 one little-endian 64-bit
checksum a block, 0 for absent. A block's bytes are written before its checksum, so a kill leaves it absent, not torn.
"""

from __future__ import annotations

import os
import struct

import numpy as np

from headrace.base.memory import PAGE

_HEADER = struct.Struct("<4sIQ12s")
_MAGIC = b"hrb1"
_HEADER_BYTES = 64
"""Where the checksums begin: the header is padded to a cache line."""


class BlockMap:
    """An open map. Any thread, any process: single sums are read and written whole. All methods raise OSError."""

    def __init__(self, fd: int, size: int, block: int, boot: str) -> None:
        self.fd = fd
        self.size = size
        self.block = block
        self.boot = boot
        """Twelve hex digits of the boot in which its blocks were last known to be good."""
        self.count = (size + block - 1) // block

    @staticmethod
    def create(path: str, size: int, block: int, boot: str) -> None:
        """An empty map; blocks are all absent."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fresh = BlockMap(fd, size, block, boot)
            fresh.stamp(boot)
            os.ftruncate(fd, _HEADER_BYTES + 8 * fresh.count)
        finally:
            os.close(fd)

    @staticmethod
    def load(fd: int) -> BlockMap | None:
        """The map in an open file; None when it is torn."""
        raw = os.pread(fd, _HEADER_BYTES, 0)
        if len(raw) < _HEADER_BYTES:
            return None
        magic, block, size, boot = _HEADER.unpack_from(raw)
        if magic != _MAGIC or block == 0:
            return None
        found = BlockMap(fd, size, block, boot.decode("ascii", "replace"))
        return found if os.fstat(fd).st_size == _HEADER_BYTES + 8 * found.count else None

    def stamp(self, boot: str) -> None:
        """Note that all blocks are known to be good in this boot."""
        header = _HEADER.pack(_MAGIC, self.block, self.size, boot.encode("ascii"))
        os.pwrite(self.fd, header.ljust(_HEADER_BYTES, b"\0"), 0)
        self.boot = boot

    def sums(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """uint64 checksums of the blocks that hold bytes [start, stop)."""
        first = start // self.block
        last = self.count if stop is None else min(self.count, (stop + self.block - 1) // self.block)
        raw = os.pread(self.fd, 8 * max(0, last - first), _HEADER_BYTES + 8 * first)
        return np.frombuffer(raw, "<u8")

    def overhead(self) -> int:
        """Bytes that the entry counts for when no block is there: its label and this map, in whole pages."""
        return PAGE + self.own_bytes()

    def own_bytes(self) -> int:
        """Bytes of this map's file, in whole pages."""
        return (_HEADER_BYTES + 8 * self.count + PAGE - 1) // PAGE * PAGE

    def charge(self) -> int:
        """Bytes that the entry counts for now."""
        present = int(np.count_nonzero(self.sums()))
        return self.overhead() + present * self.block

    def put(self, index: int, checksum: int) -> None:
        """Block `index` is there (0: is not)."""
        os.pwrite(self.fd, struct.pack("<Q", checksum), _HEADER_BYTES + 8 * index)

    def span(self, index: int) -> tuple[int, int]:
        """First byte of a block, and the byte after its last."""
        return index * self.block, min(self.size, (index + 1) * self.block)
