"""What reading and writing many files together means, however it is done."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

MOST = 64
"""Files in one call, each of which is open meanwhile. More save little: a call is shared by so many already."""
LEFT_OUT = -errno.ECANCELED
"""The count of a file that `check` refused."""

Paths: TypeAlias = "npt.NDArray[np.bytes_]"
"""Absolute paths, each ended by a zero byte in memory, [n]: as `headrace.cache.entries.Entries` has them."""
Check: TypeAlias = "Callable[[int, int], bool]"
"""Called with the place and the descriptor of a file that was opened: whether it may be read. May raise OSError."""
NOTHING = memoryview(b"")


class NewFile(NamedTuple):
    """A file to be written: its absolute path, its bytes, and the value of its extended attribute."""

    path: str
    data: memoryview
    attribute: bytes


class BatchIO(Protocol):
    """Reads and writes up to `MOST` files in one call. Any thread. Paths are absolute."""

    @property
    def name(self) -> str:
        """What it is called where people read it."""
        ...

    def read_many(
        self, paths: Paths, sizes: Sequence[int], check: Check | None = None
    ) -> tuple[list[memoryview], list[int]]:
        """The first bytes of each file, as many as `sizes` says, in writable memory of the caller's own.

        Returns the bytes, and how many came of each file: the negative errno of what failed, `LEFT_OUT` where `check`
        said no. Bytes count only where as many came as were asked for. Small files share memory.

        Raises:
            OSError: of `check`, or of the call as a whole. Nothing is known of any file then.
        """
        ...

    def write_many(self, files: Sequence[NewFile], attribute: str) -> list[int]:
        """Write whole files of mode 0600, each under its name only once it is complete. A kill leaves nothing behind.

        Folders that are missing are made. A file of that name stays as it is.

        Args:
            files: of different paths.
            attribute: the name of the extended attribute that each gets.

        Returns 0 for each, or the negative errno: EEXIST where the name is taken.

        Raises:
            OSError: of the call as a whole. Nothing is known of any file then.
        """
        ...
