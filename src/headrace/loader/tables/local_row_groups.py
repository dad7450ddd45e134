"""Row groups of files on this machine: read by the thread that decodes them, where the file lies.

Through `headrace.fetch` every range would be handed from thread to thread and its bytes would pass through Python, for
files in the page cache at half the cost of decoding them. What the disk must bring is asked for ahead, so that two
decoding threads keep it as busy as thirty reading ones.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from headrace.base.errors import ChangedError, HeadraceError
from headrace.base.metrics import Metrics
from headrace.catalog import LIST_AGAIN, Part
from headrace.formats import DecodedRows, OpenedTable, RowGroup
from headrace.store.protocol import ObjectInfo, Store

DESCRIPTORS = "/proc/self/fd"
"""Where an open file has a name: what makes pyarrow read the very file whose version was looked at."""

_KEPT = 32
"""Files that a run keeps open between their row groups."""


class Found(NamedTuple):
    """A row group decoded. `fetched_at`: when its bytes were there (`time.perf_counter`)."""

    decoded: DecodedRows
    fetched_at: float


class _Idle(NamedTuple):
    """An open file that nobody reads just now. `file`: its device and inode."""

    file: tuple[int, int]
    opened: OpenedTable


class Near:
    """The files of one store, for one run. `expect` on one thread, `decode` on any.

    Files in the page cache are not asked for: every call into the kernel gives the interpreter away, and waits to have
    it back. The first row group that is not there has all that are planned asked for, and from then on each at once.
    """

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics
        self._planned: deque[RowGroup] = deque()
        self._cold = False
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []
        self._most = _KEPT

    @staticmethod
    def of(store: Store, metrics: Metrics) -> Near | None:
        """None where objects are no files."""
        return Near(store, metrics) if store.local_root is not None and os.path.isdir(DESCRIPTORS) else None

    def expect(self, group: RowGroup) -> None:
        """This one will be decoded, after those named before. Does not wait."""
        self._planned.append(group)
        if self._cold:
            self._ask()

    def decode(self, group: RowGroup) -> Found:
        """The rows of a group.

        Raises:
            CorruptError. NotFoundError, ChangedError: the file is another than was indexed. DeniedError, TryAgainError.
        """
        with suppress(IndexError):
            self._planned.popleft()  # this one, or one that another thread decodes at the same time
        with self._opened(group) as descriptor:
            self._wait(descriptor, group.parts)
            fetched_at = time.perf_counter()
            decoded = self._read(group, descriptor)
        self._metrics.add("fetch.requests", len(group.parts))
        self._metrics.add("fetch.bytes", group.size)
        return Found(decoded, fetched_at)

    def close(self) -> None:
        """Give back the files kept open. What is being decoded ends."""
        with self._lock:
            self._most = 0
            idle, self._idle = self._idle, []
        for one in idle:
            one.opened.close()

    def _read(self, group: RowGroup, descriptor: int) -> DecodedRows:
        """Out of a file that was opened for a row group before, where it is the very same: making pyarrow's reader
        takes a tenth of the time for a row group, and no other thread runs Python meanwhile.
        """
        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        opened: OpenedTable | None = None
        try:
            with _steady(descriptor, group):
                opened = self._kept(file) or group.open(descriptor)
                decoded = group.decode_file(opened)
        except BaseException:
            if opened is not None:
                opened.close()
            raise
        with self._lock:
            self._idle.append(_Idle(file, opened))
            over = self._idle.pop(0) if len(self._idle) > self._most else None
        if over is not None:
            over.opened.close()
        return decoded

    def _kept(self, file: tuple[int, int]) -> OpenedTable | None:
        with self._lock:
            for at, one in enumerate(self._idle):
                if one.file == file:
                    return self._idle.pop(at).opened
        return None

    def _wait(self, descriptor: int, parts: Sequence[Part]) -> None:
        """Until the bytes are in the page cache, or nearly: the last byte of a range comes last."""
        if not self._cold and _here(descriptor, (parts[-1].stop or 1) - 1):
            return
        self._cold = True
        _ask(descriptor, parts)
        self._ask()
        for part in parts:
            os.pread(descriptor, 1, (part.stop or 1) - 1)

    def _ask(self) -> None:
        """For all that are planned. Errors show when they are decoded."""
        while self._planned:
            with suppress(IndexError, HeadraceError, OSError):
                group = self._planned.popleft()
                with self._opened(group) as descriptor:
                    _ask(descriptor, group.parts)

    @contextmanager
    def _opened(self, group: RowGroup) -> Generator[int]:
        """The descriptor of the file, in the version that was indexed."""
        part = group.parts[0]
        try:
            descriptor = self._store.open_file(part.key, part.version)
        except HeadraceError as error:
            raise error.at(group.url) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def _steady(descriptor: int, group: RowGroup) -> Generator[None]:
    """Raises ChangedError in the end, instead of any other error, where the file is no longer what was indexed.

    Not what it was a moment ago: what is read after the first of somebody's writes is neither version.
    """
    try:
        yield
    finally:
        part = group.parts[0]
        if part.version not in (None, ObjectInfo.of_file(part.key, os.fstat(descriptor)).version):
            raise ChangedError("was written while it was read", path=group.url, hint=LIST_AGAIN)


def _ask(descriptor: int, parts: Sequence[Part]) -> None:
    """Have the disk begin with these."""
    for part in parts:
        os.posix_fadvise(descriptor, part.start, (part.stop or 0) - part.start, os.POSIX_FADV_WILLNEED)


def _here(descriptor: int, at: int) -> bool:
    """Whether a byte is in the page cache; yes, where the file system cannot tell."""
    try:
        os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
