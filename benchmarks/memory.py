"""Memory that the machine really has, and full, as on a machine that trains: for every contender the same.

In a virtual machine whose host takes back free memory within seconds, a page used for the first time costs ten times as
much as the copy into it, and which contender pays is chance. So free memory is filled with pages of a file without
content before each measurement. The kernel takes these first when somebody needs memory, and the host has them already.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = 4 << 20
_LEFT = 512 << 20
_MOST = 32 << 30
_SIZE = 1 << 40
_ROUNDS = 3


class Ballast:
    """Pages of a file of nothing but a hole, which takes no room on the disk."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0

    def fill(self) -> None:
        """Fill free memory but for half a gigabyte, with at most 32 GB. A second for 2 GB; the first time a minute."""
        block, most = bytearray(_BLOCK), _MOST
        for _ in range(_ROUNDS):  # the kernel frees some of it meanwhile, more than it needs at first
            size = min(free() - _LEFT, most)
            for _ in range(size // _BLOCK):
                self._at += os.preadv(self._descriptor, [block], self._at % _SIZE)
            most -= max(size, 0)


def free() -> int:
    """Bytes that nobody uses, nor the page cache."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def ballast(folder: Path) -> Generator[Ballast]:
    """`folder`: on a file system with holes. All of it is free again at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        os.truncate(file.fileno(), _SIZE)
        yield Ballast(file.fileno())
