"""Local files into stores: whole, by parts, or as what is there and a new tail; several at once in bounded memory."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TypeAlias

from headrace.base.budget import ByteBudget
from headrace.base.errors import ChangedError, TryAgainError, UnsupportedError
from headrace.base.memory import Buffers, mapped
from headrace.base.progress import SILENT, Progress
from headrace.base.threads import Crew
from headrace.store.protocol import Assembly, Buffer, ObjectInfo, Store
from headrace.upload.bandwidth import Bandwidth
from headrace.upload.job import Cancel, Job
from headrace.upload.options import UploadOptions
from headrace.upload.outgoing import Means, Outgoing
from headrace.upload.plan import SMALLEST_PART, Piece, plan
from headrace.upload.source import Source, TornError, opened

File: TypeAlias = "int | str | os.PathLike[str]"
"""A file to send: an open descriptor, whose position does not matter and is not moved, or a path."""
_SMALL = 1 << 20
"""Files up to this size do not wait behind the parts of large ones."""
_SLICE_S = 0.5
"""Under a bandwidth limit a part holds about what may go in this time."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Wish:
    """What is to become of one file."""

    store: Store
    key: str
    size: int | None
    metadata: Mapping[str, str] | None
    if_match: str | None
    create: bool
    growing: bool
    progress: Progress
    cancel: Cancel | None
    headers: Mapping[str, str] | None = None


class Uploader:
    """Sends files. One for a process is enough; any thread may call; `close` it at the end.

    An object appears whole or not at all, and holds what the file held at one moment: a file that changes while it is
    read is begun anew, and given up with ChangedError when it does not stop.
    """

    def __init__(self, options: UploadOptions | None = None) -> None:
        self.options = options or UploadOptions()
        self._crew = Crew("upload", self.options.threads)
        self._budget = ByteBudget(self.options.memory)
        self._bandwidth = Bandwidth(self.options.bandwidth)
        self._lock = threading.Lock()
        self._users = 0
        self._buffers = Buffers(self.options.memory, mapped)

    def __enter__(self) -> Uploader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def held(self) -> int:
        """Bytes read and not yet acknowledged: 0 when nothing is under way."""
        return self._budget.used

    def hold(self, size: int) -> AbstractContextManager[None]:
        """Count that many bytes as `held` inside, once there is room for them: of what its caller sends by itself."""
        return self._budget.hold(size)

    def close(self) -> None:
        """End the threads. What is under way elsewhere is waited for two seconds."""
        self._crew.close()

    def put_file(
        self,
        store: Store,
        key: str,
        file: File,
        size: int | None = None,
        metadata: Mapping[str, str] | None = None,
        *,
        if_match: str | None = None,
        create: bool = False,
        headers: Mapping[str, str] | None = None,
        growing: bool = False,
        progress: Progress = SILENT,
        cancel: Cancel | None = None,
    ) -> ObjectInfo:
        """Write a file, or its first `size` bytes, as one object.

        Args:
            store: where to.
            key: the object's key there.
            file: what to send.
            size: bytes; None: all that the file holds now.
            metadata: the object's.
            if_match: only over that version, as in `Store.put`.
            create: only if the key is free.
            headers: the object's, as in `Store.put`.
            growing: the file's writer only appends (a log), so the file may grow meanwhile.
            progress: told bytes as they arrive, and one item at the end.
            cancel: set it to stop early.

        Raises:
            ChangedError: the file keeps changing, or `if_match`. AlreadyExistsError, UnsupportedError: as `Store.put`.
            NotFoundError, DeniedError: the file, or the store. TryAgainError: also when cancelled.
        """
        wish = _Wish(store, key, size, metadata, if_match, create, growing, progress, cancel, headers)

        def once(descriptor: int, name: str) -> ObjectInfo:
            return self._send_whole(wish, Source(descriptor, size, growing=growing, name=name))

        with opened(file) as (descriptor, name):
            return self._unchanging(lambda: once(descriptor, name))

    def put_from(
        self,
        store: Store,
        key: str,
        size: int,
        read: Callable[[int, int], Buffer],
        metadata: Mapping[str, str] | None = None,
        *,
        if_match: str | None = None,
        create: bool = False,
        headers: Mapping[str, str] | None = None,
        progress: Progress = SILENT,
        cancel: Cancel | None = None,
    ) -> ObjectInfo:
        """Write an object whose bytes come from somewhere else, as parts, several at once.

        Args:
            store: where to.
            key: the object's key there.
            size: bytes of it.
            read: brings the bytes [start, stop) of it; called from several threads at once, in any order, once each.
            metadata: the object's.
            if_match: only over that version, as in `Store.put`.
            create: only if the key is free.
            headers: the object's, as in `Store.put`.
            progress: told bytes as they arrive, and one item at the end.
            cancel: set it to stop early.

        Raises:
            HeadraceError: what `read` raises; nothing was written then. As `Store.put`.
        """
        wish = _Wish(store, key, size, metadata, if_match, create, False, progress, cancel, headers)
        if size <= self.options.part:
            with self._budget.hold(size):
                info = self._put(wish, read(0, size))
            progress.advance(1, size)
            return info
        with self._assembling(wish) as assembly:
            pieces = self._plan(size, 0, assembly)
            self._send_pieces(wish, None, assembly, pieces, lambda at, size: read(at, at + size), _nothing)
            info = assembly.complete()
        progress.advance(1, 0)
        return info

    def outgoing(
        self, store: Store, key: str, *, create: bool = False, insist: bool = True, cancel: Cancel | None = None
    ) -> Outgoing:
        """An object that is sent while it is written, in parts; whole at its `finish`, or not at all.

        Args:
            store: where to.
            key: the object's key there.
            create: only if the key is free, which the store looks at when the object is finished.
            insist: whether a store that cannot promise that is refused with UnsupportedError; else it is not asked to.
            cancel: set it to stop early.

        No request is made here.
        """

        def take(size: int, held: ExitStack) -> memoryview:
            held.enter_context(self._budget.hold(size))
            return self._buffers.take(size)

        means = Means(self.options.part, take, self._crew.add, self._bandwidth.take)
        return Outgoing(store, key, means, create=create, insist=insist, cancel=cancel)

    def append(
        self,
        store: Store,
        key: str,
        base: ObjectInfo,
        file: File,
        size: int | None = None,
        metadata: Mapping[str, str] | None = None,
        *,
        growing: bool = False,
        progress: Progress = SILENT,
        cancel: Cancel | None = None,
    ) -> ObjectInfo:
        """Make an object that holds the beginning of a file hold all of it, by sending only what is new.

        What is there is copied inside the store where the store can and the object is large enough (5 MiB in S3);
        else the whole file is sent. That the object's bytes are the file's first ones is for the caller to know.

        Args:
            store: where the object is.
            key: its key there.
            base: the object as it is, as last written or seen: its size and version count.
            file: all of what the object shall hold, also what it holds already.
            size: as in `put_file`.
            metadata: of the new object; None: none.
            growing: as in `put_file`.
            progress: told the bytes that were sent, not those that were copied.
            cancel: set it to stop early.

        Raises:
            ChangedError: the object is another version than `base`, or the file is shorter. The rest as `put_file`.
        """
        wish = _Wish(store, key, size, metadata, None, False, growing, progress, cancel)

        def once(descriptor: int, name: str) -> ObjectInfo:
            source = Source(descriptor, size, growing=growing, name=name)
            if source.size < base.size:
                raise ChangedError(f"the file is shorter than the object of {base.size} bytes", path=name)
            try:
                return self._send_tail(wish, source, base)
            except UnsupportedError:
                if store.capabilities.copied_parts is not None:
                    raise
                store.record(dataclasses.replace(store.capabilities, copied_parts=False))
                return self._send_tail(wish, source, base)

        with opened(file) as (descriptor, name):
            return self._unchanging(lambda: once(descriptor, name))

    def appends(self, store: Store, base: ObjectInfo) -> bool:
        """Whether `append` to `base` sends only what is new, as far as is known of it. No request; any thread."""
        seen = store.capabilities
        return seen.copied_parts is not False and seen.parts is not False and base.size >= SMALLEST_PART

    def _unchanging(self, attempt: Callable[[], ObjectInfo]) -> ObjectInfo:
        with self._lock:
            self._users += 1
        try:
            for left in reversed(range(self.options.tries)):
                try:
                    return attempt()
                except TornError:
                    if not left:
                        raise
            raise AssertionError
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:  # nothing under way: the memory goes back
                    self._buffers = Buffers(self.options.memory, mapped)

    def _send_whole(self, wish: _Wish, source: Source) -> ObjectInfo:
        if source.size > self.options.part:
            return self._send_parts(wish, source, None)
        if wish.cancel is not None and wish.cancel.is_set():
            raise TryAgainError("stopped before it was sent", path=source.name)
        with self._budget.hold(source.size):
            view = self._buffers.take(source.size)
            source.read_whole(view)
            stopped = wish.cancel.is_set if wish.cancel else _never
            self._bandwidth.take(source.size, stopped, urgent=source.size <= _SMALL)
            info = self._put(wish, view)
        wish.progress.advance(1, source.size)
        return info

    def _put(self, wish: _Wish, data: Buffer) -> ObjectInfo:
        return wish.store.put(
            wish.key, data, if_match=wish.if_match, create=wish.create, metadata=wish.metadata, headers=wish.headers
        )

    def _send_tail(self, wish: _Wish, source: Source, base: ObjectInfo) -> ObjectInfo:
        if not self.appends(wish.store, base):
            return self._send_whole(self._over(wish, base), source)
        if source.size == base.size and wish.metadata is None:
            return base
        return self._send_parts(self._over(wish, base), source, base)

    def _over(self, wish: _Wish, base: ObjectInfo) -> _Wish:
        """The same over `base` only, where the store is known to keep that; else it is looked at before the end."""
        return dataclasses.replace(wish, if_match=base.version) if _keeps(wish.store) else wish

    def _send_parts(self, wish: _Wish, source: Source, base: ObjectInfo | None) -> ObjectInfo:
        source.settle()
        with self._assembling(wish) as assembly:
            pieces = self._plan(source.size, base.size if base is not None else 0, assembly)
            # The job may outlive this call by a request that hangs: it reads through a descriptor of its own.
            mine = source.twin()

            def read(at: int, size: int) -> memoryview:
                view = self._buffers.take(size)
                mine.read(at, view)
                return view

            self._send_pieces(wish, base, assembly, pieces, read, mine.close)
            source.must_be_unchanged()
            if base is not None and wish.if_match is None:
                _must_still_be(wish.store, base)
            info = assembly.complete()
        wish.progress.advance(1, 0)
        return info

    @contextmanager
    def _assembling(self, wish: _Wish) -> Generator[Assembly]:
        """Parts that are thrown away if anything fails inside."""
        assembly = wish.store.assemble(
            wish.key, if_match=wish.if_match, create=wish.create, metadata=wish.metadata, headers=wish.headers
        )
        try:
            yield assembly
        except BaseException:
            assembly.abort()
            raise

    def _plan(self, size: int, base: int, assembly: Assembly) -> list[Piece]:
        return plan(size, base, part=self._part(assembly), smallest=assembly.smallest, most=assembly.most)

    def _send_pieces(
        self,
        wish: _Wish,
        base: ObjectInfo | None,
        assembly: Assembly,
        pieces: Sequence[Piece],
        read: Callable[[int, int], Buffer],
        ended: Callable[[], None],
    ) -> None:
        """`read` brings so many bytes from a place on. `ended`: when it is called no more."""

        def send(piece: Piece) -> None:
            if piece.copied and base is not None:
                assembly.copy_part(
                    piece.number, piece.at, wish.key, piece.at, piece.at + piece.size, if_match=base.version
                )
                return
            self._bandwidth.take(piece.size, job.stopped)
            with self._budget.hold(piece.size):
                if job.stopped():
                    return
                assembly.part(piece.number, piece.at, read(piece.at, piece.size))
            wish.progress.advance(0, piece.size)

        job = Job(pieces, send, self.options.threads, wish.cancel, ended)
        job.run(self._crew.add)

    def _part(self, assembly: Assembly) -> int:
        rate = self.options.bandwidth
        limited = self.options.part if rate is None else min(self.options.part, int(rate * _SLICE_S))
        return max(limited, assembly.smallest, 1)


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


def _keeps(store: Store) -> bool:
    return bool(store.capabilities.conditional_parts)


def _must_still_be(store: Store, base: ObjectInfo) -> None:
    """Raises ChangedError, NotFoundError."""
    if store.head(base.key).version != base.version:
        raise ChangedError("the object has changed", path=f"{store.url}/{base.key}")
