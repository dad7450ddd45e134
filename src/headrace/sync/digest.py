"""Checksums of a file's blocks, to know later whether its beginning is still what was sent."""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Iterable, Iterator

import xxhash

from headrace.base.memory import mapped

BLOCK = 8 << 20
"""Bytes of one checksum: part of the format of the state."""


class Digests:
    """XXH3 (64 bit) of each block of the first `size` bytes of a file, the last of what there is of it."""

    __slots__ = ("size", "sums")

    def __init__(self, size: int, sums: Iterable[int]) -> None:
        self.size = size
        self.sums = array("Q", sums)

    @staticmethod
    def of(path: str, size: int, before: Digests | None = None) -> Digests:
        """Of the first `size` bytes. `before`: digests of its beginning that still hold, which saves reading that.

        Raises:
            OSError, EOFError: it cannot be read, or is shorter.
        """
        kept = before.sums[: before.size // BLOCK] if before is not None and before.size <= size else array("Q")
        with open(path, "rb", buffering=0) as file:
            return Digests(size, [*kept, *_sums(file.fileno(), range(len(kept) * BLOCK, size, BLOCK), size)])

    def hold(self, path: str, *, every: bool) -> bool:
        """Whether the file still begins so. `every` False: looks at the first block, the last, and one in between."""
        count = len(self.sums)
        chosen = range(count) if every else sorted({0, count - 1, random.randrange(count)}) if count else ()
        try:
            with open(path, "rb", buffering=0) as file:
                found = _sums(file.fileno(), (number * BLOCK for number in chosen), self.size)
                return all(one == self.sums[number] for one, number in zip(found, chosen, strict=True))
        except (OSError, EOFError):
            return False


def _sums(fd: int, starts: Iterable[int], size: int) -> Iterator[int]:
    block = mapped(min(BLOCK, size)).data if size else memoryview(b"")
    for at in starts:
        piece = block[: min(BLOCK, size - at)]
        done = 0
        while done < len(piece):
            count = os.preadv(fd, [piece[done:]], at + done)
            if not count:
                raise EOFError
            done += count
        yield xxhash.xxh3_64_intdigest(piece)
