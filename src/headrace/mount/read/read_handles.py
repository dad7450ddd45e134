"""Open files being read: by the kernel itself where it can, from the cache, from memory, or by a stream.

A node is one object version (see `nodes`), so pages that the kernel keeps of it stay good. While a node is open by its
backing file, every open of it must be, and while it is open otherwise none may be: the kernel's rule.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.base.errors import ChangedError, HeadraceError, NotFoundError
from headrace.base.memory import take
from headrace.cache import EntryLabel
from headrace.fetch import Read, Ticket
from headrace.mount.kernel import wire
from headrace.mount.kernel.wire import Fopen
from headrace.mount.read.neighbour_prefetch import NeighbourPrefetch
from headrace.mount.read.object_streams import ObjectStream, ObjectStreams
from headrace.mount.read.passthrough import BackingFiles
from headrace.store.protocol import Blob, Store

if TYPE_CHECKING:
    from headrace.fetch import Fetcher
    from headrace.fetch.readahead import BlockCursor
    from headrace.mount.kernel.kernel_requests import Answer, Request
    from headrace.mount.kernel.process_groups import ProcessGroups
    from headrace.mount.names.node_record import NodeRecord
    from headrace.mount.names.nodes import NamedNode

_log = logging.getLogger("headrace.mount")
_BY_KERNEL: Final = int(Fopen.PASSTHROUGH | Fopen.NOFLUSH)
_BY_US: Final = int(Fopen.KEEP_CACHE | Fopen.NOFLUSH)
_KERNELS_HANDLE: Final = 0  # the handle of every file that the kernel reads by itself; ours begin at 1
_HANDLE: Final = wire.HANDLE_IN.unpack_from
_LARGE: Final = 1 << 20
"""Bytes from which on an object is read from the cache's file as soon as it is there, and leaves memory."""


class ReadHandle:
    """One open file that the kernel asks us to read: from a file, from memory, or from a stream."""

    __slots__ = ("cursor", "data", "fd", "held", "name", "node", "path", "size", "stream")

    def __init__(self, node: int, size: int, path: str) -> None:
        self.node = node
        self.size = size
        self.path = path
        self.fd = -1
        self.data: memoryview | None = None
        self.held = 0
        self.name = ""
        self.stream: ObjectStream | None = None
        self.cursor: BlockCursor | None = None

    def read_from(self, stream: ObjectStream) -> None:
        """Its bytes come from `stream`, which it uses until it is released."""
        self.stream, self.cursor = stream, stream.cursor()


class ReadHandles:
    """Opens, reads and releases files. Any thread.

    Args:
        fetcher: where bytes come from.
        backings: the kernel's backing files; not enabled where it knows none.
        prefetcher: sees every small file that is opened.
        groups: counts opens by process group.
        record: of what was opened, for the next server of this mount; None: there will be none.
    """

    opens: ClassVar[bool] = True
    """Whether the kernel sends every open."""

    def __init__(
        self, fetcher: Fetcher, backings: BackingFiles, prefetcher: NeighbourPrefetch | None, groups: ProcessGroups,
        record: NodeRecord | None = None,
    ) -> None:  # fmt: skip
        self._fetcher = fetcher
        self._record = record
        self._first = record.first if record is not None else 0
        self._cache = fetcher.cache
        self.backings = backings
        self._prefetcher = prefetcher
        self._groups = groups
        self._whole = fetcher.settings.cache.whole
        self.streams = ObjectStreams(fetcher)
        self.handles: dict[int, ReadHandle] = {}
        self._numbers = itertools.count(self._first + 1)
        self._ours: dict[int, int] = {}
        self.lock = threading.Lock()

    def end_passed(self, unique: int, node: int, message: memoryview) -> bytes | None:
        """RELEASE of what the kernel reads by itself (a `headrace.mount.kernel.session.Quick`); None: see `release`."""
        if _HANDLE(message, wire.HEADER)[0] != _KERNELS_HANDLE:
            return None
        self.backings.release(node)
        return wire.OUT.pack(16, 0, unique)

    def reopen(self, unique: int, node: int) -> bytes | None:
        """The answer to OPEN where the kernel has the node's file already."""
        backing = self.backings.reuse(node)
        return None if backing is None else wire.opened(unique, _KERNELS_HANDLE, _BY_KERNEL, backing.id)

    def open(self, known: NamedNode, request: Request, failed: Callable[[HeadraceError], Exception]) -> Answer:
        """The answer to OPEN for reading; None: it comes later. `failed`: what to say of a fetch that failed.

        Raises:
            WouldBlock. OSError: ESTALE, the object has changed: look it up again. HeadraceError, InterruptedError.
        """
        if self._record is not None:
            self._record.file(known)
        if known.size == 0:
            return self._opened(request, ReadHandle(known.id, 0, ""))
        place = known.folder.place
        assert place is not None
        info = known.info
        if place.store.local_root is not None:
            return self._open_local(known, place.store.local_root, request)
        name = ""
        if self._cache is not None:
            name = self._cache.name(place.store.identity, info.key, info.version, info.size)
            fd = self._cache.descriptor(name)
            if fd is not None:
                if self._prefetcher is not None and info.size <= self._whole:
                    self._prefetcher.opened(known, missed=False)
                self._groups.opened("cached", request.pid)
                return self._open_file(known, fd, self._cache.path_of(name), request)
        handle = ReadHandle(known.id, info.size, f"{place.store.url}/{info.key}")
        if info.size <= self._whole and self.streams.budget.take(info.size):
            handle.held, handle.name = info.size, name
            self._groups.opened("fetched", request.pid)
            self._fetch(known, handle, place.store, name, request, failed)
            return None
        request.must_wait()
        label = EntryLabel(place.store.identity, info.key, info.version, info.size)
        entry = self._cache.blocks(name, info.size, label) if self._cache is not None else None
        if entry is not None and entry.complete:
            entry.close()
            return self.open(known, request, failed)
        handle.read_from(self.streams.open(known.id, place.store, info, entry))
        self._groups.opened("streamed", request.pid)
        return self._opened(request, handle)

    def read(self, request: Request) -> Answer:
        """The answer to READ.

        Raises:
            KeyError: unknown handle. WouldBlock. HeadraceError, InterruptedError, OSError.
        """
        number, start, count, *_ = wire.READ_IN.unpack_from(request.body)
        return self.part(self.handles[number], start, count, request)

    def part(self, handle: ReadHandle, start: int, count: int, request: Request) -> Answer:
        """The answer to READ of `count` bytes from `start`, fewer at the end. Raises as `read`."""
        stop = min(start + count, handle.size)
        if start >= stop:
            return wire.reply(request.unique)
        if handle.held > _LARGE:
            self._move_to_file(handle)
        data = handle.data
        if data is not None:
            views = [data[start:stop]]
        elif handle.fd >= 0:
            views = [_from_file(handle.fd, start, stop, request)]
        else:
            assert handle.stream is not None
            assert handle.cursor is not None
            try:
                views = handle.stream.read(handle.cursor, start, stop, request)
            except HeadraceError as error:
                error.at(handle.path)
                raise
        return (wire.OUT.pack(16 + sum(map(len, views)), 0, request.unique), *views)

    def is_earlier(self, number: int) -> bool:
        """Whether a handle was given by an earlier server of this mount."""
        return 0 < number < self._first

    def open_again(self, number: int, known: NamedNode) -> None:
        """Open again, under the same number, a handle that an earlier server gave. May wait for the disk, not for the
        store.

        Raises:
            ChangedError, NotFoundError: the file of a local store is another one, or gone. OSError.
        """
        place = known.folder.place
        assert place is not None
        info = known.info
        handle = ReadHandle(known.id, known.size, f"{place.store.url}/{info.key}")
        if known.size > 0 and place.store.local_root is not None:
            handle.fd = _local_file(known, place.store.local_root)
        elif known.size > 0:
            fd = entry = None
            if self._cache is not None:
                handle.name = self._cache.name(place.store.identity, info.key, info.version, info.size)
                fd = self._cache.descriptor(handle.name)
                label = EntryLabel(place.store.identity, info.key, info.version, info.size)
                entry = self._cache.blocks(handle.name, info.size, label) if fd is None else None
            if fd is not None:
                handle.fd = fd
            else:
                handle.read_from(self.streams.open(known.id, place.store, info, entry))
        with self.lock:
            if number in self.handles:  # another READ was quicker
                self._discard(handle)
                return
            self._ours[known.id] = self._ours.get(known.id, 0) + 1
            self.handles[number] = handle

    def release(self, request: Request) -> None:
        """RELEASE of what was opened here and is read by us."""
        self._close(wire.HANDLE_IN.unpack_from(request.body)[0])

    def sweep(self) -> None:
        """Let go of files that nobody has open and that have left the cache. Called now and then."""
        self.backings.sweep()

    def forget(self, node: int) -> None:
        """The kernel has forgotten the node."""
        self.backings.drop(node)

    def _move_to_file(self, handle: ReadHandle) -> None:
        """Read a handle from the cache's file, once it is there, instead of from memory."""
        fd = self._cache.descriptor(handle.name) if self._cache is not None else None
        if fd is None:
            return
        with self.lock:
            if handle.fd < 0:
                handle.fd, fd = fd, -1
        if fd >= 0:
            os.close(fd)
        handle.data = None
        self._forget_data(handle)

    def _forget_data(self, handle: ReadHandle) -> None:
        with self.lock:
            held, handle.held = handle.held, 0
        if held:
            self.streams.budget.give(held)

    def _close(self, number: int) -> None:
        handle = self.handles.pop(number)
        self._forget_data(handle)
        with self.lock:
            left = self._ours[handle.node] - 1
            if left:
                self._ours[handle.node] = left
            else:
                del self._ours[handle.node]
                if self._record is not None and handle.node >= self._first:  # of others, handles may be unread yet
                    self._record.drop(handle.node)
        if handle.fd >= 0:
            os.close(handle.fd)
        elif handle.stream is not None:
            self.streams.release(handle.node)

    def is_open(self, node: int) -> bool:
        """Whether anyone reads the node now."""
        return node in self._ours or self.backings.is_open(node)

    @property
    def open_count(self) -> int:
        """Files open for reading."""
        return len(self.handles) + self.backings.open_count

    def close(self) -> None:
        """Release everything."""
        self.backings.close()
        self.streams.close()

    def _fetch(
        self,
        known: NamedNode,
        handle: ReadHandle,
        store: Store,
        name: str,
        request: Request,
        failed: Callable[[HeadraceError], Exception],
    ) -> None:
        """Fetch a small object whole. The thread that brings it answers, so no thread waits."""
        info = known.info
        ticket = Ticket()

        def cancel() -> None:
            self._forget_data(handle)
            ticket.cancel()

        waiting = request.deferred(cancel)

        def came(result: Blob | HeadraceError) -> None:
            if isinstance(result, HeadraceError):
                self._forget_data(handle)
                waiting.fail(failed(result.at(handle.path)))
                return
            handle.data = result.data
            answer = self._opened(waiting, handle)
            if not waiting.finish(answer):
                self._undo(answer, known.id)

        def ask() -> None:
            read = Read(store, info.key, info.size, info.version)
            self._fetcher.submit([read], lambda _, result: came(result), ticket=ticket)

        def handed_over(result: Blob | HeadraceError) -> None:
            if isinstance(result, HeadraceError):  # speculation has given up: ask in our own name
                ask()
            else:
                came(result)

        comes = self._prefetcher is not None and self._prefetcher.hand_over(name, handed_over)
        if self._prefetcher is not None:
            self._prefetcher.opened(known, missed=True)
        if not comes:
            ask()

    def _undo(self, answer: Answer, node: int) -> None:
        """Give up an open whose caller is gone."""
        assert isinstance(answer, bytes)
        number = wire.handle_of(answer)
        if number == _KERNELS_HANDLE:
            self.backings.release(node)
        else:
            self._close(number)

    def _open_local(self, known: NamedNode, root: str, request: Request) -> Answer:
        fd = _local_file(known, root)
        self._groups.opened("cached", request.pid)
        return self._open_file(known, fd, "", request)

    def _open_file(self, known: NamedNode, fd: int, path: str, request: Request) -> Answer:
        """Give `fd` to the kernel, or to a handle of ours, which closes it."""
        if self.backings.enabled:
            with self.lock:
                backing = None if known.id in self._ours else self.backings.open(known.id, fd, path)
            if backing is not None:
                os.close(fd)
                return wire.opened(request.unique, _KERNELS_HANDLE, _BY_KERNEL, backing.id)
        handle = ReadHandle(known.id, known.size, path)
        handle.fd = fd
        return self._opened(request, handle)

    def _opened(self, request: Request, handle: ReadHandle) -> Answer:
        """The answer to OPEN, now that the file is at hand."""
        with self.lock:
            if self.backings.enabled:  # opened by its backing file meanwhile: then this one must be, too
                answer = self.reopen(request.unique, handle.node)
                if answer is not None:
                    self._discard(handle)
                    return answer
            self._ours[handle.node] = self._ours.get(handle.node, 0) + 1
        number = next(self._numbers)
        self.handles[number] = handle
        return wire.opened(request.unique, number, _BY_US)

    def _discard(self, handle: ReadHandle) -> None:
        held, handle.held = handle.held, 0  # the lock is held
        if held:
            self.streams.budget.give(held)
        if handle.fd >= 0:
            os.close(handle.fd)
        elif handle.stream is not None:
            self.streams.release(handle.node)


def _local_file(known: NamedNode, root: str) -> int:
    """A descriptor of a file of a local store. Raises NotFoundError, ChangedError, OSError."""
    path = f"{root.rstrip('/')}/{known.key}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise NotFoundError("no such file", path=path) from None
    stat = os.fstat(fd)
    if stat.st_size != known.size or stat.st_mtime_ns // 1000 != known.mtime_us:
        os.close(fd)
        raise ChangedError("the file has changed", path=path)
    return fd


def _from_file(fd: int, start: int, stop: int, request: Request) -> memoryview:
    """Bytes of a cached file; where the disk would make us wait, on a thread that may. Raises WouldBlock, OSError."""
    buffer = take(stop - start)
    if not request.may_wait:
        try:
            got = os.preadv(fd, (buffer,), start, os.RWF_NOWAIT)
        except OSError:  # not in memory, or a file system that cannot say
            got = 0
        if got == len(buffer):
            return buffer
        request.must_wait()
    return buffer[: os.preadv(fd, (buffer,), start)]
