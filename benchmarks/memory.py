"""Memory that the machine really has, before each measurement.

In a virtual machine whose host takes back free memory, a page used for the first time costs several microseconds
instead of a fraction of one, and which contender pays is chance: whoever comes after a large deletion runs on memory
that is there. So each contender starts on memory just used and released.
"""

from __future__ import annotations

import os
from pathlib import Path

_BLOCK = 4 << 20


def warm(folder: Path, size: int) -> None:
    """Write a file of `size` bytes into the page cache below `folder`, and delete it."""
    path = folder / "warm-memory"
    block = bytes(_BLOCK)
    try:
        with open(path, "wb", buffering=0) as file:
            file.writelines(block for _ in range(size // _BLOCK))
    finally:
        path.unlink(missing_ok=True)


def spare() -> int:
    """How much is worth warming: free memory, at most 2 GB; bytes."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(2 << 30, free // 2)
