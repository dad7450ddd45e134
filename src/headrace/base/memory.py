"""Memory for what is read: used again instead of given back, because fresh pages cost more than the copy into them.

A fresh 4.2 MB buffer means a thousand page faults and 4.2 MB of zeros written by the kernel before a byte is read;
110 kB from the allocator is often not better, since it returns what was freed to the kernel. A buffer here comes back
when the last view of it is gone, wherever that was held.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Bytes: TypeAlias = "npt.NDArray[np.uint8]"
_SMALL = 16 * 1024
_KEEP = 32 * 1024 * 1024


class Buffers:
    """Hands out writable buffers and takes them back. Any thread; buffers may be dropped on any thread.

    At most `keep` bytes are kept unused; sizes are rounded up by at most a sixteenth (small ones to whole pages).
    """

    def __init__(self, keep: int = _KEEP) -> None:
        self._keep = keep
        self._free: defaultdict[int, list[_Bytes]] = defaultdict(list)
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._unused = 0

    def take(self, size: int) -> memoryview:
        """`size` bytes, contents arbitrary. Small ones come from the allocator.

        Raises:
            MemoryError: there is not that much.
        """
        if size < _SMALL:
            return np.empty(size, np.uint8).data
        room = _rounded(size)
        try:
            block = self._free[room].pop()
            self._unused -= room
        except IndexError:
            block = np.empty(room, np.uint8)
        lease = block[:size]
        token = id(lease)
        self._lent[token] = weakref.ref(lease, partial(self._back, token, block))
        return lease.data

    @property
    def unused(self) -> int:
        """Bytes kept for the next readers (approximately, while others take and give)."""
        return self._unused

    def _back(self, token: int, block: _Bytes, _: object) -> None:
        # Runs wherever the last view dies, also inside the collector: no locks, only atomic list and dict operations.
        self._lent.pop(token, None)
        room = len(block)
        if self._unused + room <= self._keep:
            self._unused += room
            self._free[room].append(block)


def _rounded(size: int) -> int:
    step = 1 << max(size.bit_length() - 5, 12)
    return (size + step - 1) & -step


_shared = Buffers()
take = _shared.take
"""A buffer of the process's own pool: `take(size)`."""
