"""Many files by plain system calls, one file after the other: three calls to read one, five to write one.

A new file has no name while it is written (O_TMPFILE, `open(2)`): nobody else can write to it, and it is gone when the
process is killed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from headrace.base.memory import take
from headrace.cache.batch_io.protocol import LEFT_OUT, NOTHING, Check, NewFile, Paths

_READ = os.O_RDONLY | os.O_CLOEXEC
_UNNAMED = getattr(os, "O_TMPFILE", 0) | os.O_WRONLY | os.O_CLOEXEC


class PlainCalls:
    """A `headrace.cache.batch_io.BatchIO` for every kernel. Any thread."""

    name = "plain calls"

    def read_many(
        self, paths: Paths, sizes: Sequence[int], check: Check | None = None
    ) -> tuple[list[memoryview], list[int]]:
        """See `BatchIO.read_many`."""
        wanted = enumerate(zip(paths.tolist(), sizes, strict=True))
        found = [_read(path, size, check, at) for at, (path, size) in wanted]
        return [data for data, _ in found], [count for _, count in found]

    def write_many(self, files: Sequence[NewFile], attribute: str) -> list[int]:
        """See `BatchIO.write_many`."""
        return [_write(file, attribute) for file in files]


def _read(path: bytes, size: int, check: Check | None, at: int) -> tuple[memoryview, int]:
    try:
        file = os.open(path, _READ)
    except OSError as error:
        return NOTHING, -(error.errno or errno.EIO)
    try:
        if check is not None and not check(at, file):
            return NOTHING, LEFT_OUT
        data = take(size)
        try:
            return data, os.readv(file, (data,))
        except OSError as error:
            return NOTHING, -(error.errno or errno.EIO)
    finally:
        os.close(file)


def _write(one: NewFile, attribute: str) -> int:
    """0, or the negative errno."""
    try:
        file = _made(os.path.dirname(one.path))
        try:
            if os.write(file, one.data) != len(one.data):
                return -errno.ENOSPC
            os.setxattr(file, attribute, one.attribute)
            # A folder's descriptor makes it linkat(2), which alone follows this link; an absolute path ignores it.
            os.link(f"/proc/self/fd/{file}", one.path, src_dir_fd=file, follow_symlinks=True)
        finally:
            os.close(file)
    except OSError as error:
        return -(error.errno or errno.EIO)
    return 0


def _made(folder: str) -> int:
    try:
        return os.open(folder, _UNNAMED, 0o600)
    except FileNotFoundError:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return os.open(folder, _UNNAMED, 0o600)
