"""One thread's queue of wishes to the kernel: io_uring(7), as far as `headrace.cache.batch_io` needs it.

A thread writes down what it wants of up to `MOST` files, and the kernel does all of it in one call. What has to wait
for a disk waits side by side.

Layouts of ``io_uring_params``, ``io_uring_sqe`` and ``io_uring_cqe``: the kernel's ``include/uapi/linux/io_uring.h``.
No fences are needed: a ring is used by one thread, and the kernel looks at it only during that thread's own call.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.cache.batch_io.protocol import MOST

_SETUP, _ENTER, _REGISTER = 425, 426, 427  # the same on every architecture
_REGISTER_FILES = 2  # IORING_REGISTER_FILES
_GET_EVENTS = 1  # IORING_ENTER_GETEVENTS
_NEEDED = 1 << 0 | 1 << 5  # one mapping for both queues; and a feature of Linux 5.7, after the operations used here
_AT_ENTRIES = 0x10000000  # IORING_OFF_SQES
_OPEN, _CLOSE, _READ, _WRITE, _LINK, _ATTRIBUTE = 18, 19, 22, 23, 39, 41  # IORING_OP_OPENAT … LINKAT, FSETXATTR
_HERE = -100  # AT_FDCWD
_FOLLOW = 0x400  # AT_SYMLINK_FOLLOW
_SLOT, _THEN = 1 << 0, 1 << 2  # IOSQE_FIXED_FILE: `fd` is a place of the ring's; IOSQE_IO_LINK: the next one waits
_PLACES = 10
"""Kinds of operation, `MOST` entries each."""
_AGAIN = frozenset({errno.EINTR, errno.EAGAIN, errno.EBUSY})
SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Of `Ring()`: what it lacks may be there later."""
_PARAMS = 30  # uint32 words: entries of both queues, flags, …, features at 5, offsets of the queues at 10 and at 20
_ENTRY = np.dtype(
    {
        "names": ["opcode", "how", "fd", "offset", "address", "length", "flags", "mark", "slot"],
        "formats": ["u1", "u1", "<i4", "<u8", "<u8", "<u4", "<u4", "<u8", "<u4"],
        "offsets": [0, 1, 4, 8, 16, 24, 28, 32, 44],
        "itemsize": 64,
    }
)
_DONE = np.dtype([("mark", "<u8"), ("result", "<i4"), ("flags", "<u4")])

_Ints = npt.NDArray[np.int64]
Texts: TypeAlias = "Sequence[bytes] | npt.NDArray[np.bytes_]"
"""Byte strings, each ended by a zero byte (of an array: in memory)."""


class _Texts:
    """Byte strings in memory that stays where it is while this is alive, and their addresses."""

    def __init__(self, texts: Texts) -> None:
        self._memory = np.ascontiguousarray(texts)
        self.addresses = self._memory.ctypes.data + self._memory.itemsize * np.arange(len(texts))


class Ring:
    """One thread's queue of wishes to the kernel. Only the thread that made it may use it."""

    def __init__(self) -> None:
        """Raises OSError: the kernel has no io_uring, not enough of it, or does not allow it."""
        self._fd = -1
        if sys.platform != "linux" or sys.byteorder != "little":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._call = call = _syscall()
        self.process = os.getpid()
        params = np.zeros(_PARAMS, "<u4")
        self._fd = call(_SETUP, _PLACES * MOST, params.ctypes.data, 0, 0, 0, 0)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        if int(params[5]) & _NEEDED != _NEEDED:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        wishes, answers = int(params[0]), int(params[1])
        of_wishes, of_answers = params[10:].tolist(), params[20:].tolist()
        size = max(of_wishes[6] + 4 * wishes, of_answers[5] + _DONE.itemsize * answers)
        shared = mmap.mmap(self._fd, size, flags=mmap.MAP_SHARED)
        words = np.frombuffer(shared, "<u4", size // 4)
        self._tail = words[of_wishes[1] // 4 :][:1]
        self._order = words[of_wishes[6] // 4 :][:wishes]
        self._first, self._last = words[of_answers[0] // 4 :][:1], words[of_answers[1] // 4 :][:1]
        self._answers = np.frombuffer(shared, _DONE, answers, of_answers[5])
        entries = mmap.mmap(self._fd, wishes * _ENTRY.itemsize, flags=mmap.MAP_SHARED, offset=_AT_ENTRIES)
        self._entries = np.frombuffer(entries, _ENTRY, wishes)
        self._numbers = np.arange(3 * MOST)
        for place, operation in enumerate((_OPEN, _READ, _CLOSE, _OPEN, _WRITE, _ATTRIBUTE, _LINK)):
            mine = self._of(place, MOST)
            mine["opcode"], mine["mark"] = operation, self._numbers[:MOST]
        self._of(0, MOST)["flags"] = os.O_RDONLY | os.O_CLOEXEC
        unnamed = self._of(3, MOST)
        unnamed["flags"], unnamed["length"] = getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC, 0o600
        link = self._of(6, MOST)
        link["fd"], link["length"], link["flags"] = _HERE, _HERE & 0xFFFFFFFF, _FOLLOW
        self._chains = self._chained()

    def _chained(self) -> npt.NDArray[np.void] | None:
        """Entries of `fetch`, three to a file: opened into a place that only the ring knows, read, closed. None: this
        kernel has no such places (they came with 5.15).
        """
        slots = np.full(MOST, -1, "<i4")
        if self._call(_REGISTER, self._fd, _REGISTER_FILES, slots.ctypes.data, MOST, 0, 0) < 0:
            return None
        chains = self._entries[7 * MOST : _PLACES * MOST].reshape(MOST, 3)
        chains["opcode"], chains["mark"] = (_OPEN, _READ, _CLOSE), self._numbers.reshape(MOST, 3)
        chains["how"] = (_THEN, _SLOT | _THEN, 0)
        chains["fd"][:, 1] = self._numbers[:MOST]
        chains["slot"][:, 0] = chains["slot"][:, 2] = self._numbers[:MOST] + 1
        return chains

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # at the interpreter's end `os` is gone
        if self._fd >= 0:
            close(self._fd)

    def open(self, paths: Texts) -> list[int]:
        """Files for reading, at most `MOST`. `paths`: absolute. Returns their descriptors; where one could not be
        opened, the negative errno.
        """
        texts = _Texts(paths)
        self._of(0, len(paths))["address"] = texts.addresses
        return self._run(0, len(paths)).tolist()

    def read(self, files: Sequence[int], addresses: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """The beginnings of files into memory at `addresses`, which stays alive meanwhile. Returns how many bytes of
        each, or the negative errno.
        """
        entries = self._of(1, len(files))
        entries["fd"], entries["address"], entries["length"] = files, addresses, sizes
        return self._run(1, len(files)).tolist()

    def fetch(self, paths: Texts, addresses: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
        """`open`, `read` and `close` in one call. Returns how many bytes of each, or the negative errno of what failed;
        None where this kernel cannot do it.
        """
        if self._chains is None:
            return None
        texts, chains = _Texts(paths), self._chains[: len(paths)]
        chains["address"][:, 0] = texts.addresses
        chains["address"][:, 1], chains["length"][:, 1] = addresses, sizes
        results = self._run(7, 3 * len(paths)).reshape(len(paths), 3)
        if (results[:, 0] == -errno.EINVAL).all():
            self._chains = None
            return None
        # One that fell short is not closed: it stays in its place until the next file takes that, or the ring ends.
        return np.where(results[:, 0] < 0, results[:, 0], results[:, 1]).tolist()

    def close(self, files: Sequence[int]) -> None:
        """Close files."""
        self._of(2, len(files))["fd"] = files
        self._run(2, len(files))

    def make(self, folders: Sequence[bytes]) -> list[int]:
        """New files for writing, of mode 0600, that have no name yet and are gone when closed without one (O_TMPFILE).
        `folders`: as `open` has paths; on whose file system each will lie. Returns as `open`.
        """
        texts = _Texts(folders)
        self._of(3, len(folders))["address"] = texts.addresses
        return self._run(3, len(folders)).tolist()

    def write(self, files: Sequence[int], data: Sequence[memoryview]) -> list[int]:
        """To the beginnings of files. Returns how many bytes to each, or the negative errno."""
        entries = self._of(4, len(files))
        entries["fd"], entries["length"] = files, list(map(len, data))
        entries["address"] = [np.frombuffer(one, np.uint8).ctypes.data for one in data]
        return self._run(4, len(files)).tolist()

    def attribute(self, files: Sequence[int], name: bytes, values: Sequence[bytes]) -> list[int]:
        """Set an extended attribute. `name`: ended by a zero byte. Returns 0 of each, or the negative errno (EINVAL: a
        kernel before 5.19).
        """
        name_text, texts = _Texts([name]), _Texts(values)
        entries = self._of(5, len(files))
        entries["fd"], entries["address"] = files, name_text.addresses
        entries["offset"], entries["length"] = texts.addresses, list(map(len, values))
        return self._run(5, len(files)).tolist()

    def link(self, files: Sequence[int], paths: Sequence[bytes]) -> list[int]:
        """Give open files a name, as `make` leaves them without. `paths`: as in `open`. Returns as `attribute`; EEXIST:
        there is a file of that name, and it stays.
        """
        sources, targets = _Texts([f"/proc/self/fd/{file}\0".encode() for file in files]), _Texts(paths)
        entries = self._of(6, len(files))
        entries["address"], entries["offset"] = sources.addresses, targets.addresses
        return self._run(6, len(files)).tolist()

    def _of(self, place: int, count: int) -> npt.NDArray[np.void]:
        """Entries for one kind of operation: what never changes in them is written once."""
        return self._entries[place * MOST :][:count]

    def _run(self, place: int, count: int) -> _Ints:
        numbers = self._numbers[:count]
        tail, first = int(self._tail[0]), int(self._first[0])
        self._order[(tail + numbers) % len(self._order)] = place * MOST + numbers
        self._tail[0] = (tail + count) & 0xFFFFFFFF
        waiting = count
        while (int(self._last[0]) - first) & 0xFFFFFFFF < count:
            took = self._call(_ENTER, self._fd, waiting, count, _GET_EVENTS, 0, 0)
            if took >= 0:
                waiting -= took
            elif ctypes.get_errno() not in _AGAIN:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        answers = self._answers[(first + numbers) % len(self._answers)]
        self._first[0] = (first + count) & 0xFFFFFFFF
        results = np.empty(count, np.int64)
        results[answers["mark"].astype(np.int64)] = answers["result"]
        return results


@cache
def _syscall() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = (ctypes.c_long,) * 7
    call.restype = ctypes.c_long
    return call
