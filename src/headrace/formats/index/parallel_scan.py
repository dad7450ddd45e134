"""Many shards, or footers of files, read side by side by threads that end with the first failure, or with Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from headrace.base.metrics import Metrics
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.base.threads import join_all
from headrace.catalog import Shelf
from headrace.fetch import Fetcher, Straight
from headrace.formats.index.shard_bytes import Reader

_T = TypeVar("_T")
_AT_ONCE = 64
"""Shards scanned side by side, at most: where headers alone are read, each waits for one small answer at a time."""
_MOST = 4 << 20
"""Bytes of one read: as many stay in the processor's cache until they are looked at, and a request is paid for."""
_GRACE_S = 1.0  # seconds that threads have to end: of the two in which Ctrl-C ends everything


def scan_all(
    shelf: Shelf,
    settings: Settings,
    missing: Sequence[_T],
    scan: Callable[[_T, Reader, Path, threading.Event], None],
) -> None:
    """Scan and publish, some at once. The first failure, or Ctrl-C, ends it within two seconds, come what may.

    `scan`: called with one of `missing`, what reads for it, a folder that it may make, and what is set when it is
    to end.

    Daemon threads, not a pool: a pool's threads are waited for when the interpreter ends, and one of ours may be in a
    read that a stalled store answers after its deadline.
    """
    fetcher = Fetcher(settings, None, Metrics())
    at_once = min(_AT_ONCE, settings.fetch.connections, len(missing))
    straight = fetcher.straights(at_once)
    most = min(_MOST, settings.fetch.memory // at_once)
    left, turn = _Shared(enumerate(missing)), threading.Lock()
    ends: SimpleQueue[BaseException | None] = SimpleQueue()
    stopped = threading.Event()
    with shelf.workspace() as work:

        def scan_on(own: Straight) -> None:
            reader = Reader(own.get, most, turn)
            try:
                while not stopped.is_set() and (one := next(left, None)) is not None:
                    place, wanted = one
                    scan(wanted, reader, work / str(place), stopped)
            except BaseException as error:
                ends.put(error)
            else:
                ends.put(None)
            finally:
                own.leave()

        threads = [
            threading.Thread(target=scan_on, args=(own,), name=f"headrace-shards-{number}", daemon=True)
            for number, own in enumerate(straight)
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in threads:
                if (error := ends.get()) is not None:
                    raise error
        finally:
            stopped.set()
            for own in straight:
                own.close()
            join_all(threads, _GRACE_S)
            fetcher.close()


class _Shared(Iterator[_T]):
    """An iterator that several threads share."""

    def __init__(self, values: Iterable[_T]) -> None:
        self._values = iter(values)
        self._lock = threading.Lock()

    def __next__(self) -> _T:
        with self._lock:
            return next(self._values)


class _StoppedError(Exception):
    """Another shard failed, or the user wants it to end."""


class Told:
    """Bytes of one shard that progress has heard of; the place where a scan learns that it is to end."""

    def __init__(self, progress: Progress, stopped: threading.Event) -> None:
        self.bytes = 0
        self._progress, self._stopped = progress, stopped

    def advance(self, size: int) -> None:
        if self._stopped.is_set():
            raise _StoppedError
        self.bytes += size
        self._progress.advance(0, size)
