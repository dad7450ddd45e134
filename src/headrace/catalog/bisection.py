"""Bisection of the key space: many workers list one flat or deep prefix at once.

An idle worker takes the busiest range and asks what lies beyond a key in its middle. The answer's page is the first
page of the new range, so a good guess costs nothing, and a bad one halves what is left to guess. Guesses are made of
the characters seen at that place of the keys listed so far, so folders, zero-padded numbers and hashes all split; how
many may fail is bounded by the pages listed.

Memory is bounded: a range waiting for its turn keeps `_HELD_ROWS` rows and puts the rest in an unlinked file.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

from headrace.base.arrow import Batch, pa
from headrace.base.errors import UnsupportedError
from headrace.base.progress import Progress
from headrace.catalog.manifest import MANIFEST_SCHEMA, page_batch
from headrace.store.protocol import ObjectInfo, Store

Pages: TypeAlias = Iterable[Sequence[ObjectInfo]]
_HELD_ROWS = 1 << 14  # rows of a range in memory
_MOST_RANGES = 512  # ranges of one listing, each of which may hold rows in memory, or a file


class _Range:
    """Keys after `after`, up to and including `until`; filled by one worker, drained by the consumer once done."""

    def __init__(self, after: str | None, until: str | None, folder: str) -> None:
        self.at = after
        self.until = until
        self.next: _Range | None = None
        self.done = False
        self.guessing = False
        self.pages = 0
        self.misses = 0
        self._folder = folder
        self._held: list[ObjectInfo] = []
        self._file: BinaryIO | None = None
        self._writer: Any = None

    def add(self, page: Sequence[ObjectInfo], prefix: str) -> None:
        self._held.extend(page)
        if len(self._held) >= _HELD_ROWS:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="list-", dir=self._folder)  # noqa: SIM115
                self._writer = pa.ipc.new_stream(self._file, MANIFEST_SCHEMA)
            assert self._writer is not None
            self._writer.write_batch(page_batch(self._held, prefix))
            self._held = []

    def drain(self, prefix: str) -> Iterator[Batch]:
        if self._file is not None and self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            with self._file, pa.ipc.open_stream(self._file) as reader:
                yield from reader
        if self._held:
            yield page_batch(self._held, prefix)
        self._held = []

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class NotFlatError(Exception):
    """A key lies deeper than in the folder itself."""


class _Bisection:
    """The ranges, in key order as a linked list, and the workers that fill them."""

    def __init__(
        self, store: Store, prefix: str, folder: str, progress: Progress, begun: Pages | None, *, trusted: bool
    ) -> None:
        self.trusted = trusted
        self.begun = begun
        self.store = store
        self.prefix = prefix
        self.progress = progress
        self.folder = folder
        self.head = _Range(None, None, folder)
        self.active = [self.head]
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.stopped = False
        self._letters: set[str] = set()
        self._ranges = 1

    def wait_for(self, target: _Range) -> None:
        """Until `target` may be drained: it is done, and where the order is not trusted all others are too."""
        with self.changed:
            while self.failure is None and not (target.done and (self.trusted or not self.active)):
                self.changed.wait(1.0)
            if self.failure is not None:
                raise self.failure

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def first(self) -> None:
        """The worker that starts with everything, then helps."""
        pages = self.store.list(self.prefix) if self.begun is None else self.begun
        self._guard(lambda: self._fill(self.head, pages))
        self._guard(self._help)

    def help(self) -> None:
        """Split busy ranges and fill the new halves until nothing is left."""
        self._guard(self._help)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # told to the consumer, whatever it is
            with self.changed:
                self.failure = self.failure or error
                self.stopped = True
                self.changed.notify_all()

    def _help(self) -> None:
        while (split := self._next_split()) is not None:
            self._try(*split)

    def _next_split(self) -> tuple[_Range, str] | None:
        """Wait for a range worth splitting; None when all are done."""
        with self.changed:
            while not self.stopped and self.active:
                target = self._busiest()
                if target is None:
                    self.changed.wait(1.0)
                    continue
                guess = middle(target.at or "", target.until, self.prefix, sorted(self._letters))
                if guess is not None:
                    target.guessing = True
                    return target, guess
                target.misses += target.pages + 4  # no room between: leave it alone for a good while
        return None

    def _busiest(self) -> _Range | None:
        """The range most likely to have much left: listed longest, and not guessed at in vain more than listed."""
        if self._ranges >= _MOST_RANGES:
            return None
        ready = [r for r in self.active if r.pages and not r.guessing and r.misses <= 2 * r.pages]
        return max(ready, key=lambda r: r.pages - r.misses, default=None)

    def _try(self, target: _Range, guess: str) -> None:
        pages = iter(self.store.list(self.prefix, start_after=guess))
        page = next(pages, ())
        with self.changed:
            target.guessing = False
            if self.stopped or target.done or target.at is None or target.at >= guess:
                return  # its own worker has passed the guess meanwhile
            beyond, target.until = target.until, guess
            if not page or (beyond is not None and page[0].key > beyond):
                target.misses += 1
                self.changed.notify_all()
                return
            half = _Range(guess, beyond, self.folder)
            half.next, target.next = target.next, half
            target.misses = 0
            self.active.append(half)
            self._ranges += 1
            self.changed.notify_all()
        self._fill(half, _chain(page, pages))

    def _fill(self, target: _Range, pages: Pages) -> None:
        for whole in pages:
            with self.changed:
                if self.stopped:
                    return
                page = self._accept(target, whole)
                finished = len(page) < len(whole) or (self.trusted and target.at == target.until)
            if page:
                target.add(page, self.prefix)
                self.progress.advance(len(page), sum(o.size for o in page))
            if finished:
                break
        with self.changed:
            target.done = True
            self.active.remove(target)
            self.changed.notify_all()

    def _accept(self, target: _Range, whole: Sequence[ObjectInfo]) -> Sequence[ObjectInfo]:
        """What of a page is still the range's own; from here on `target.at` is past it, and no guess may split it."""
        until, cut = target.until, len(self.prefix)
        if not self.trusted and any("/" in o.key[cut:] for o in whole):
            raise NotFlatError
        page = whole if until is None else whole[: bisect_right(whole, until, key=_key)]
        if page:
            self._check_order(target.at, page)
            self._learn(page)
            target.at = page[-1].key
        target.pages += 1
        self.changed.notify_all()
        return page

    def _check_order(self, last: str | None, page: Sequence[ObjectInfo]) -> None:
        keys = [o.key for o in page]
        if (last is not None and keys[0] <= last) or any(a >= b for a, b in itertools.pairwise(keys)):
            raise UnsupportedError(
                "the store lists keys out of order", path=self.store.url, hint="report this store: it breaks S3's rules"
            )

    def _learn(self, page: Sequence[ObjectInfo]) -> None:
        cut = len(self.prefix)
        self._letters.update(page[0].key[cut:], page[len(page) // 2].key[cut:], page[-1].key[cut:])


def _key(info: ObjectInfo) -> str:
    return info.key


def _chain(page: Sequence[ObjectInfo], pages: Iterator[Sequence[ObjectInfo]]) -> Iterator[Sequence[ObjectInfo]]:
    yield page
    yield from pages


def middle(low: str, high: str | None, prefix: str, letters: Sequence[str]) -> str | None:
    """A string strictly between two keys, near the middle of what keys made of sorted `letters` can be.

    At the first place where `low` and `high` (None: no bound) differ, a letter between theirs; where there is none,
    deeper in `low`. None if no letter fits anywhere.
    """
    cut = len(prefix)
    a, b = low[cut:], None if high is None else high[cut:]
    same = 0
    if b is not None:
        while same < min(len(a), len(b)) and a[same] == b[same]:
            same += 1
    for place in range(same, len(a)):
        above = b[place] if b is not None and place == same and place < len(b) else None
        fit = [c for c in letters if c > a[place] and (above is None or c < above)]
        if fit:
            return prefix + a[:place] + fit[len(fit) // 2]
    return None


def bisected(
    store: Store,
    prefix: str,
    folder: str,
    workers: int,
    progress: Progress,
    *,
    trusted: bool,
    begun: Pages | None = None,
) -> Generator[Batch]:
    """Everything below `prefix`, columns as `MANIFEST_SCHEMA`, ascending by key. Closing it stops the workers soon.

    `begun`: the listing of all of it from its first page on, where that has been asked for already.

    Unless `trusted`, nothing is given out before all is listed, and the first key with a ``/`` after `prefix` ends the
    attempt: see `headrace.catalog.prefix_listing`.

    Raises:
        NotFlatError: only if not trusted. UnsupportedError: keys out of order. Any store error.
    """
    work = _Bisection(store, prefix, folder, progress, begun, trusted=trusted)
    tasks = [work.first, *[work.help] * (workers - 1)]
    threads = [threading.Thread(target=task, name="headrace-list", daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    current: _Range | None = work.head
    try:
        while current is not None:
            work.wait_for(current)
            yield from current.drain(prefix)
            current = current.next
    finally:
        work.stop()
        for thread in threads:
            thread.join(0.5 / workers)
        while current is not None:
            current.close()
            current = current.next
