"""Checksums of a file's blocks, to know later whether its beginning is still what was sent."""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Iterable

import xxhash

BLOCK = 8 << 20


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
            return Digests(
                size, [*kept, *(_sum(file.fileno(), at, size) for at in range(len(kept) * BLOCK, size, BLOCK))]
            )

    def hold(self, path: str, *, every: bool) -> bool:
        """Whether the file still begins so. `every` False: looks at the first block, the last, and one in between."""
        count = len(self.sums)
        chosen = range(count) if every else sorted({0, count - 1, random.randrange(count)}) if count else ()
        try:
            with open(path, "rb", buffering=0) as file:
                return all(_sum(file.fileno(), number * BLOCK, self.size) == self.sums[number] for number in chosen)
        except (OSError, EOFError):
            return False


def _sum(fd: int, at: int, size: int) -> int:
    length = min(BLOCK, size - at)
    data = os.pread(fd, length, at)
    if len(data) != length:
        raise EOFError
    return xxhash.xxh3_64_intdigest(data)
