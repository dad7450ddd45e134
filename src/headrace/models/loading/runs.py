"""The engine: stretches of objects, received in parts by a few threads straight into the memory they are wanted in.

A `Run` is memory that is filled from one object, and what of it goes where. Runs are taken in order; their parts are
received by threads of `fetch.Straight`, eight MiB each, into their places. What is a part of larger rows is received
aside, and only the columns wanted are kept. Where the node's cache keeps the store, parts come through it, so that
processes of one node that read parts of one object fetch each block once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from headrace.base.memory import copy, mapped
from headrace.fetch import Fetcher, Straight

if TYPE_CHECKING:
    from headrace.models.loading.objects import Source
    from headrace.store.protocol import Buffer

PART: Final = 8 << 20
"""Bytes of one request."""
_AT_ONCE: Final = 16
"""Threads that receive; how many of them at a time is found out (`fetch.straight`)."""
_GRACE_S: Final = 2.0  # seconds for threads to end


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes [start, stop) of the object, and where in the run's memory they go: to `at`; or `put` is called with that
    memory and the bytes, on a thread of its own.
    """

    start: int
    stop: int
    at: int = 0
    put: Callable[[memoryview, Buffer], None] | None = None

    def moved(self, by: int) -> Piece:
        """The same, so many bytes further on in the memory."""
        return self if not by else Piece(self.start, self.stop, self.at + by, self.put)


@dataclass(frozen=True, slots=True)
class Run:
    """`size`: bytes of memory; `pieces`: what fills it; `tag`: the caller's own."""

    source: Source
    size: int
    pieces: Sequence[Piece]
    tag: object = None


def contiguous(start: int, stop: int, part: int = PART) -> list[Piece]:
    """Bytes [start, stop) of an object, as they are, to the beginning of the memory."""
    return [Piece(at, min(at + part, stop), at - start) for at in range(start, stop, part)]


def received(fetcher: Fetcher, runs: Sequence[Run], *, ahead: int | None = None) -> Generator[tuple[Run, memoryview]]:
    """Each run with its memory, in order, as soon as it is full; the next are received meanwhile.

    `ahead`: so many runs are begun before the first of them is taken; None: all. Memory begins at a page, is given back
    to the kernel when the last view of it is gone, and may be written to.

    Raises:
        ChangedError, NotFoundError: the object is no longer that version. As `Fetcher.get`, the first failure.
        MemoryError: there is not that much.
    """
    work = _Work(runs, ahead)
    count = min(_AT_ONCE, sum(len(run.pieces) for run in runs), fetcher.settings.fetch.connections)
    readers = fetcher.straights(count)
    threads = [
        threading.Thread(target=work.receive, args=(fetcher, one), name=f"headrace-load-{number}", daemon=True)
        for number, one in enumerate(readers)
    ]
    try:
        for thread in threads:
            thread.start()
        yield from work.full()
    finally:
        work.stop()
        for one in readers:
            one.close()
        for thread in threads:
            with suppress(RuntimeError):  # one that was never started
                thread.join(_GRACE_S)


class _Work:
    """What is left to do, shared by the threads."""

    def __init__(self, runs: Sequence[Run], ahead: int | None) -> None:
        self._runs = runs
        self._room = threading.Semaphore(len(runs) if ahead is None else ahead)
        self._turn = threading.Lock()
        """Of whoever takes the next part, and may wait for room with it."""
        self._lock = threading.Lock()
        self._left = [len(run.pieces) for run in runs]
        self._memory: dict[int, memoryview] = {}
        self._parts = self._all()
        self._stopped = False
        self._full: SimpleQueue[int | BaseException] = SimpleQueue()

    def full(self) -> Iterator[tuple[Run, memoryview]]:
        """Runs in order, each when it is full."""
        ready: set[int] = set()
        for number, run in enumerate(self._runs):
            while run.pieces and number not in ready:
                one = self._full.get()
                if isinstance(one, BaseException):
                    raise one
                ready.add(one)
            memory = self._memory.pop(number, None)
            yield run, mapped(run.size).data if memory is None else memory
            del memory
            self._room.release()

    def receive(self, fetcher: Fetcher, reader: Straight) -> None:
        """Take one part after the other. A thread's whole life."""
        try:
            while (part := self._next()) is not None:
                number, piece, memory = part
                _fetch(fetcher, reader, self._runs[number].source, piece, memory)
                del part, memory
                with self._lock:
                    self._left[number] -= 1
                    last = self._left[number] == 0
                if last:
                    self._full.put(number)
        except BaseException as error:
            self._full.put(error)
        finally:
            reader.leave()

    def stop(self) -> None:
        """No further part is begun."""
        self._stopped = True
        for _ in range(_AT_ONCE):
            self._room.release()  # whoever waits for room

    def _next(self) -> tuple[int, Piece, memoryview] | None:
        with self._turn:
            return None if self._stopped else next(self._parts, None)

    def _all(self) -> Iterator[tuple[int, Piece, memoryview]]:
        for number, run in enumerate(self._runs):
            if not run.pieces:
                continue
            self._room.acquire()
            if self._stopped:
                return
            self._memory[number] = memory = mapped(run.size).data
            for piece in run.pieces:
                yield number, piece, memory


def _fetch(fetcher: Fetcher, reader: Straight, source: Source, piece: Piece, memory: memoryview) -> None:
    read = source.part(piece.start, piece.stop)
    into = None if piece.put is not None else memory[piece.at : piece.at + piece.stop - piece.start]
    if not source.kept:
        data = reader.get(read, into=into).data
    else:
        reader.leave()
        data = fetcher.get(read).data
        if into is not None:
            copy(into, data)
    if piece.put is not None:
        piece.put(memory, data)
