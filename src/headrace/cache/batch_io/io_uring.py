"""Many files by io_uring: one system call reads up to `MOST` of them, or three do; five write them.

Each system call that Python makes lets go of the interpreter's lock and takes it again. For files of some ten kilobytes
that costs as much as reading them. Figures: design/013-many-files-in-one-call.md, design/017-many-fills-in-one-call.md.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from headrace.base.memory import rooms
from headrace.cache.batch_io.plain import PlainCalls
from headrace.cache.batch_io.protocol import LEFT_OUT, NOTHING, Check, NewFile, Paths
from headrace.cache.batch_io.ring import SHORT, Ring

IO_URING = "io_uring"
_FEW = 16
"""Fewer files are written by plain calls: each of the five calls wakes threads of the kernel, and waits for them. A
mount whose readers brought two to four files at a time came at 1,390 files/s with the ring and 1,860 without.
"""


class IoUring:
    """A `headrace.cache.batch_io.BatchIO` for kernels that have io_uring and allow it. Any thread.

    Each thread has a ring of its own, made on first use; it ends with the thread. A thread that gets none, because
    memory or descriptors are short, makes plain calls meanwhile.
    """

    name = IO_URING

    def __init__(self) -> None:
        self._local = threading.local()
        self._plain = PlainCalls()

    @staticmethod
    def works() -> bool:
        """Whether this kernel gives rings to this process, or will once memory and descriptors suffice."""
        try:
            Ring()
        except OSError as error:
            return error.errno in SHORT
        return True

    def read_many(
        self, paths: Paths, sizes: Sequence[int], check: Check | None = None
    ) -> tuple[list[memoryview], list[int]]:
        """See `BatchIO.read_many`. Without `check` it is one call, on Linux 5.15 and newer."""
        ring = self._ring()
        if ring is None:
            return self._plain.read_many(paths, sizes, check)
        if check is None:
            views, addresses = rooms(sizes)
            counts = ring.fetch(paths, addresses, sizes)
            if counts is not None:
                return views, counts
        return _read(ring, paths, sizes, check)

    def write_many(self, files: Sequence[NewFile], attribute: str) -> list[int]:
        """See `BatchIO.write_many`."""
        ring = self._ring() if len(files) >= _FEW else None
        if ring is None:
            return self._plain.write_many(files, attribute)
        return _write(ring, files, f"{attribute}\0".encode())

    def _ring(self) -> Ring | None:
        """The calling thread's; None where it cannot have one just now."""
        ring: Ring | None = getattr(self._local, "ring", None)
        if ring is None or ring.process != os.getpid():  # after a fork the parent's is of no use
            ring = None
            with suppress(OSError):
                self._local.ring = ring = Ring()
        return ring


def _read(
    ring: Ring, paths: Paths, sizes: Sequence[int], check: Check | None
) -> tuple[list[memoryview], list[int]]:
    """All opened by one call, read by the next, closed by a third."""
    files = ring.open(paths)
    try:
        there = [at for at, file in enumerate(files) if file >= 0 and (check is None or check(at, file))]
        wanted = [sizes[at] for at in there]
        parts, addresses = rooms(wanted)
        came = ring.read([files[at] for at in there], addresses, wanted)
    finally:
        ring.close([file for file in files if file >= 0])
    views, counts = [NOTHING] * len(files), [file if file < 0 else LEFT_OUT for file in files]
    for at, part, count in zip(there, parts, came, strict=True):
        views[at], counts[at] = part, count
    return views, counts


def _write(ring: Ring, files: Sequence[NewFile], attribute: bytes) -> list[int]:
    """All made without a name by one call, written, given their attribute and named by the next three, then closed."""

    def write(fds: list[int], some: list[NewFile]) -> list[int]:
        counts = ring.write(fds, [one.data for one in some])
        return [
            -errno.ENOSPC if 0 <= count < len(one.data) else min(count, 0)
            for count, one in zip(counts, some, strict=True)
        ]

    def seal(fds: list[int], some: list[NewFile]) -> list[int]:
        came = ring.attribute(fds, attribute, [one.attribute for one in some])
        return [
            _sealed(fd, attribute, one.attribute) if answer == -errno.EINVAL else answer  # before Linux 5.19
            for fd, one, answer in zip(fds, some, came, strict=True)
        ]

    def name(fds: list[int], some: list[NewFile]) -> list[int]:
        return ring.link(fds, [_ended(one.path) for one in some])

    made = _made(ring, [_ended(os.path.dirname(one.path)) for one in files])
    answers = [min(file, 0) for file in made]
    try:
        for step in (write, seal, name):
            rows = [row for row, answer in enumerate(answers) if answer == 0]
            if not rows:
                break
            came = step([made[row] for row in rows], [files[row] for row in rows])
            for row, answer in zip(rows, came, strict=True):
                answers[row] = answer
    finally:
        ring.close([file for file in made if file >= 0])
    return answers


def _sealed(fd: int, attribute: bytes, value: bytes) -> int:
    """By a call of its own: 0, or the negative errno."""
    try:
        os.setxattr(fd, attribute[:-1], value)
    except OSError as error:
        return -(error.errno or errno.EIO)
    return 0


def _ended(path: str) -> bytes:
    """As the kernel wants it."""
    return os.fsencode(path) + b"\0"


def _made(ring: Ring, folders: Sequence[bytes]) -> list[int]:
    """As `Ring.make`; folders that are not there yet are made."""
    files = ring.make(folders)
    rows = [row for row, file in enumerate(files) if file == -errno.ENOENT]
    if rows:
        for folder in {folders[row] for row in rows}:
            with suppress(OSError):
                os.makedirs(folder[:-1], mode=0o700, exist_ok=True)
        for row, file in zip(rows, ring.make([folders[row] for row in rows]), strict=True):
            files[row] = file
    return files
