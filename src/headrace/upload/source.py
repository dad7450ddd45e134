"""A local file that is read to be sent, and the proof that it was one and the same all the while.

A file is taken as unchanged when its size and modification time are. The kernel's clock for these ticks every few
milliseconds, so a file written in this very tick is not yet told from the one before: such a file is read twice
(when small), or waited for (a tick is short beside a large upload).

What no reader can see: half of a `write` call that stands still for longer than that, and pages written through a
memory mapping, which change the time only when the kernel writes them back. Who cares publishes files that are closed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

from headrace.base.errors import (
    ChangedError,
    DeniedError,
    HeadraceError,
    InputError,
    NoRoomError,
    NotFoundError,
    TryAgainError,
)
from headrace.base.memory import aligned

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_STEP = 1 << 20
"""Bytes compared at a time: they stay in the processor's caches."""
TICK_NS = 12_000_000
"""More than a tick of the slowest kernel (100 Hz), by which it sets file times: a later write has a later time."""


class TornError(ChangedError):
    """The file changed while it was read: what was read of it is worth nothing, but another try may be."""


class Stamp(NamedTuple):
    """What changes when a file's bytes do."""

    size: int
    mtime_ns: int
    device: int
    inode: int


class Source:
    """An open file of `size` bytes, or its first `size` bytes. Any thread.

    Args:
        descriptor: open for reading.
        size: bytes to send; None: all there are now.
        growing: its writer only appends, so what was read of it stays true; only a shorter file is a changed one.
        name: for errors.

    Raises:
        ChangedError: it is shorter than `size`. InputError: not a regular file.
    """

    def __init__(self, descriptor: int, size: int | None, *, growing: bool, name: str) -> None:
        self.name = name
        self.descriptor = descriptor
        self._growing = growing
        self._stamp = self._look()
        self.size = self._stamp.size if size is None else size
        if self._stamp.size < self.size:
            raise ChangedError(f"the file holds {self._stamp.size} bytes, not {self.size}", path=name)

    def _look(self) -> Stamp:
        try:
            found = os.fstat(self.descriptor)
        except OSError as error:
            raise failure(self.name, error) from error
        if not stat.S_ISREG(found.st_mode):
            raise InputError("not a file", path=self.name)
        return Stamp(found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)

    def read(self, at: int, view: memoryview) -> None:
        """Fill `view` with the bytes from `at`.

        Raises:
            TornError: the file ends before.
        """
        done = 0
        try:
            while done < len(view):
                count = os.preadv(self.descriptor, [view[done:]], at + done)
                if count == 0:
                    raise TornError("the file became shorter while it was read", path=self.name)
                done += count
        except OSError as error:
            raise failure(self.name, error) from error

    def twin(self) -> Source:
        """The same file through a descriptor of its own, which the caller closes."""
        try:
            return Source(os.dup(self.descriptor), self.size, growing=self._growing, name=self.name)
        except OSError as error:
            raise failure(self.name, error) from error

    def close(self) -> None:
        """Close the descriptor of a twin."""
        os.close(self.descriptor)

    def read_whole(self, view: memoryview) -> None:
        """Fill `view` with the file's first bytes as they were at one moment.

        Raises:
            TornError: there was no such moment.
        """
        fresh = self.fresh
        self.read(0, view)
        if fresh:
            again = aligned(min(_STEP, len(view))).data
            for at in range(0, len(view), _STEP):
                piece = view[at : at + _STEP]
                self.read(at, again[: len(piece)])
                if again[: len(piece)] != piece:
                    raise TornError("the file changed while it was read", path=self.name)
        self.must_be_unchanged()

    @property
    def fresh(self) -> bool:
        """Whether it was written in the present tick of the clock, so that its time does not yet tell."""
        return not self._growing and time.time_ns() - self._stamp.mtime_ns < TICK_NS

    def settle(self) -> None:
        """Wait until a change would show: at most a tick."""
        if self.fresh:
            time.sleep(TICK_NS / 1e9)
            self._stamp = self._look()

    def must_be_unchanged(self) -> None:
        """Call when all has been read.

        Raises:
            TornError: it is another file than at the beginning.
        """
        now = self._look()
        if now.size < self.size if self._growing else now != self._stamp:
            raise TornError("the file changed while it was read", path=self.name)


@contextmanager
def opened(file: int | str | os.PathLike[str]) -> Generator[tuple[int, str]]:
    """A descriptor for reading, and a name for messages. A descriptor that was given stays open.

    Raises:
        NotFoundError, DeniedError, NoRoomError, TryAgainError.
    """
    if isinstance(file, int):
        yield file, f"/proc/self/fd/{file}"
        return
    name = os.fspath(file)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise failure(name, error) from error
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)


def failure(name: str, error: OSError) -> HeadraceError:
    """What a failed call on a local file means."""
    if isinstance(error, FileNotFoundError):
        return NotFoundError("no such file", path=name)
    if isinstance(error, PermissionError):
        return DeniedError("not allowed", path=name, hint="check the file's permissions")
    if isinstance(error, IsADirectoryError):
        return InputError("is a folder, not a file", path=name)
    if error.errno in _NO_ROOM:
        return NoRoomError(os.strerror(error.errno or 0), path=name)
    return TryAgainError(f"cannot be read: {error.strerror or error}", path=name)
