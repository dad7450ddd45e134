"""Memory for what is read: used again instead of given back, because fresh pages cost more than the copy into them.

A fresh 4.2 MB buffer means a thousand page faults and 4.2 MB of zeros written by the kernel before a byte is read;
110 kB from the allocator is often not better, since it returns what was freed to the kernel. A buffer here comes back
when the last view of it is gone, wherever that was held.

Buffers begin at a page. The allocator's large ones begin 16 bytes behind one, and processors of several makers copy
four to five times slower to a place 1 to 31 bytes behind its source, modulo a page: which is where the start of a file
in the page cache lies, also on its way through a local socket. Figures: design/007-aligned-buffers.md.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_Bytes: TypeAlias = "npt.NDArray[np.uint8]"
PAGE = 4096
"""Bytes of a page: where buffers begin, and in what the cache counts the room its entries take."""
_M_ARENA_MAX = -8
"""mallopt(3): how many arenas threads share."""
_SMALL_BYTES = 16 * 1024
"""Below this the allocator's own lists are as quick, and lend no pages to the kernel."""
_KEEP_BYTES = 32 * 1024 * 1024
"""Kept unused where nobody said how much: a few large samples."""
_PORTION_BYTES = 1 << 20
"""Small buffers made together: one that is held keeps as much from being used again."""
_HUGE_BYTES = 2 << 20
"""A huge page of x86-64, and of ARM with pages of 4 KiB."""
_FORGET = 7  # with each buffer taken, a 128th of its bytes is forgotten of the most that was lent at once


class Buffers:
    """Hands out writable buffers and takes them back. Any thread; buffers may be dropped on any thread.

    At most `keep` bytes are kept unused; or more, as long as they and what is lent are no more than was lent at once
    not long ago: a loader with large batches gives back a whole batch at once, and soon wants it again. Sizes are
    rounded up by at most a sixteenth (small ones to whole pages), and a block of up to twice the size will do.
    """

    def __init__(self, keep: int = _KEEP_BYTES, make: Callable[[int], _Bytes] | None = None) -> None:
        """`make`: where new blocks come from; None: `aligned`."""
        self._keep = keep
        self._make = make or aligned
        self._free: defaultdict[int, list[_Bytes]] = defaultdict(list)
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._unused = self._in_use = self._peak = 0

    def take(self, size: int) -> memoryview:
        """`size` bytes, contents arbitrary. Small ones come from the allocator.

        Raises:
            MemoryError: there is not that much.
        """
        if size < _SMALL_BYTES:
            return memoryview(bytearray(size))
        step = 1 << max(size.bit_length() - 5, 12)
        room = (size + step - 1) & -step
        try:
            block = self._free[room].pop()
        except IndexError:
            block = self._larger(room)
            room = len(block)
        else:
            self._unused -= room
        self._in_use += room
        self._peak = max(self._in_use, self._peak - (room >> _FORGET))
        # Not a slice: `numpy.ndarray(shape, buffer=lease.data)` would refer to what that is a slice of, and the memory
        # would be lent again while it is looked at.
        lease = _array(block.data, size)
        token = id(lease)
        self._lent[token] = weakref.ref(lease, partial(self._back, token, block))
        return lease.data

    @property
    def lent(self) -> int:
        """Bytes of buffers in use (as `unused`)."""
        return self._in_use

    @property
    def unused(self) -> int:
        """Bytes kept for the next readers (approximately, while others take and give)."""
        return self._unused

    def trim(self) -> None:
        """Give back what is kept beyond `keep`: whoever used much has ended."""
        self._peak = 0
        self._shrink()

    def _back(self, token: int, block: _Bytes, _: object) -> None:
        # Runs wherever the last view dies, also inside the collector: no locks, only atomic list and dict operations.
        # So is `self._unused += room` of a local number; with a call in it, another thread's sum may be lost.
        self._lent.pop(token, None)
        room = len(block)
        self._in_use -= room
        self._unused += room
        self._free[room].append(block)
        if self._unused > self._keep:
            self._shrink()

    def _larger(self, room: int) -> _Bytes:
        """An unused block of up to twice as much, or a new one."""
        for size in list(self._free) if self._unused > room else ():
            if room < size <= 2 * room:
                try:
                    block = self._free[size].pop()
                except IndexError:
                    continue
                self._unused -= size
                return block
        return self._make(room)

    def _shrink(self) -> None:
        most = max(self._keep, self._peak - self._in_use)
        for blocks in list(self._free.values()) if self._unused > most else ():
            while self._unused > most:
                try:
                    room = len(blocks.pop())
                except IndexError:
                    break
                self._unused -= room


def aligned(size: int) -> _Bytes:
    """`size` bytes that begin at a page, contents arbitrary; of 2 MiB and more in huge pages, as far as they fill such.

    Raises:
        MemoryError: there is not that much.
    """
    if size >= _HUGE_BYTES:
        return _huge(size)
    import numpy as np

    block = np.empty(size + PAGE, np.uint8)
    first = -block.ctypes.data % PAGE
    return block[first : first + size]


def _huge(size: int) -> _Bytes:
    """From the kernel, which brings 2 MiB in one go instead of in 512. The rest of `size` is in small pages, so that no
    more is held than was asked for.
    """
    try:
        room = mmap.mmap(-1, size + _HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes: {error.strerror}") from error
    block = _array(room)
    first = -block.ctypes.data % _HUGE_BYTES
    with suppress(OSError):  # a kernel without huge pages
        room.madvise(mmap.MADV_HUGEPAGE, first, size // _HUGE_BYTES * _HUGE_BYTES)
    return block[first : first + size]


def mapped(size: int) -> _Bytes:
    """As `aligned`, from the kernel itself, which has it back the moment the last view is gone.

    The allocator keeps what was freed in the arena of each thread: with large buffers in many threads, much of it.
    """
    if size >= _HUGE_BYTES:
        return _huge(size)
    return _array(mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))[:size]


def copy(target: memoryview, source: memoryview) -> None:
    """Copy bytes, without the interpreter's lock where that pays. Both must have the same length."""
    import numpy as np

    np.copyto(_array(target), _array(source))


def _array(room: Any, size: int = -1) -> _Bytes:
    """NumPy is loaded here, with the first large buffer: it is half of what the start of a small command takes."""
    import numpy as np

    return np.frombuffer(room, np.uint8, size)


def rooms(sizes: Sequence[int]) -> tuple[list[memoryview], list[int]]:
    """A buffer of each size, and its address; several small ones are parts of one: the memory is free when all are.

    Raises:
        MemoryError: there is not that much.
    """
    views: list[memoryview] = []
    addresses: list[int] = []
    block, address, at = memoryview(b""), 0, 0
    left = sum((size + PAGE - 1) & -PAGE for size in sizes)
    for size in sizes:
        room = (size + PAGE - 1) & -PAGE
        if at + room > len(block):
            block = take(max(room, min(_PORTION_BYTES, left)))
            address, at = ctypes.addressof(ctypes.c_char.from_buffer(block)), 0
        views.append(block[at : at + size])
        addresses.append(address + at)
        at += room
        left -= room
    return views, addresses


_shared = Buffers()


def lent() -> int:
    """Bytes of the process's own pool in use (approximately)."""
    return _shared.lent


take = _shared.take
"""A buffer of the process's own pool: `take(size)`."""
trim = _shared.trim
"""Give back what the process's own pool keeps beyond its least."""


def few_arenas(most: int) -> None:
    """Have all threads of this process share so many of the allocator's arenas: each keeps what was once in use.

    Only where the allocator is glibc's, whose manual it is from (mallopt(3)); else nothing happens. It costs a little
    waiting between threads that allocate at the same time, which most of Python's do not.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, most)
