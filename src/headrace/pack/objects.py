"""Filling a tar with single objects as they are: the common case, in which nobody looks at a sample.

The loader would make a dict of each sample, lead it through stages that are not there, and hand it from thread to
thread. Here objects are asked for in lots, a lot is written once all of it is here, and one thread does both. What an
object costs the store, and what comes of one that cannot be read, is the same: retries, hedges, deadlines and the
memory budget are the fetch room's, and `headrace.loader.pipeline.bad_samples` judges.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.base.errors import BadSampleError, HeadraceError, TryAgainError
from headrace.catalog import Part, SampleSpec
from headrace.fetch import Read, Ticket
from headrace.loader import Dataset, Judge, Skip, Skipped
from headrace.pack.filling import Means, Tally, left_out, refuse_twin
from headrace.pack.layouts import Sink
from headrace.pack.members import PRIVATE, members
from headrace.store.protocol import Blob, Buffer, Store

_LOT = 64
"""Samples asked for and written together."""
_LOT_BYTES = 1 << 20  # bytes of them, at most, unless one is larger
_CHUNK = 512  # samples planned at once
_AHEAD = 2048
"""Samples under way in each shard: more would only take memory, and push out of the processor's caches what is next."""
_OVERHEAD = 1024
"""Bytes that a sample takes beside its own, roughly."""
_LOOK_S = 0.25  # seconds after which it is seen that all is to stop


def takes(dataset: Dataset) -> bool:
    """Whether its samples are single objects to which nothing is done."""
    leaf = dataset.leaves[0]
    plain = len(dataset.leaves) == 1 and leaf.window is None and not leaf.stages and not dataset.stages
    return plain and leaf.index.abilities.objects is not None


class ObjectFiller:
    """Fills tars with samples as `takes` wants them. Any thread, each a shard of its own."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def fill(self, sink: Sink, dataset: Dataset) -> Tally:
        """See `Filler.fill`."""
        means = self._means
        tally, coming, waiting = Tally(), _lots(dataset), deque["_Lot"]()
        book = _Book(means, sink, tally, len(dataset))
        held = ahead = 0
        following = next(coming, None)
        try:
            while following is not None or waiting:
                while following is not None and (
                    not waiting or (held + following.size <= means.prefetch and ahead < _AHEAD)
                ):
                    following.submit(means)
                    waiting.append(following)
                    held, ahead = held + following.size, ahead + len(following.specs)
                    following = next(coming, None)
                lot = waiting[0]
                lot.wait(means)
                book.write(lot)
                waiting.popleft()
                held, ahead = held - lot.size, ahead - len(lot.specs)
        finally:  # whatever ended it early: nobody waits for these any more
            for lot in waiting:
                lot.ticket.cancel()
        tally.left_out.sort(key=lambda one: one.key)
        return tally


class _Lot:
    """Some samples that follow each other. Filled by the fetch room's threads, all else by one."""

    __slots__ = ("_here", "_left", "_store", "data", "failed", "size", "specs", "ticket")

    def __init__(self, store: Store, specs: list[SampleSpec], size: int) -> None:
        self.specs, self.size = specs, size
        self.failed = False
        self.ticket = Ticket()
        count = sum(len(spec[1]) for spec in specs)
        self.data: list[Buffer | HeadraceError | None] = [None] * count
        """The bytes of all parts of all samples, one after the other, or why there are none."""
        self._left = [None] * count
        self._here = threading.Event()
        self._store = store

    def submit(self, means: Means) -> None:
        store, reads = self._store, list[Read]()
        for _, parts, _ in self.specs:
            for _, key, size, version, start, stop in parts:
                reads.append(Read(store, key, size, version, start, stop, len(reads)))
        self.ticket = means.fetcher.submit(reads, self._arrived)

    def _arrived(self, read: Read, result: Blob | HeadraceError) -> None:
        if isinstance(result, Blob):
            self.data[read.tag] = result.data
        else:
            self.data[read.tag] = result.at(read.path)
            self.failed = True
        self._left.pop()  # atomic, so that no lock is needed
        if not self._left:
            self._here.set()

    def wait(self, means: Means) -> None:
        """Until all of it is here. Raises TryAgainError when stopped."""
        if not self._here.is_set():
            with means.fetcher.hurry():
                while not self._here.wait(_LOOK_S) and not means.stop.is_set():
                    pass
        if means.stop.is_set():
            raise TryAgainError("stopped")


class _Book:
    """What is written, and what is left out. One thread."""

    def __init__(self, means: Means, sink: Sink, tally: Tally, total: int) -> None:
        self._means, self._sink, self._tally = means, sink, tally
        self._keys: set[str] = set()
        self._seen = 0
        # Nothing may be left out, or as much as the budget over all shards allows, which `left_out` asks.
        self._bad: list[Skipped] = []
        self._judge = Judge(Skip(max_rate=1.0) if means.budget.allowed else None, total, 0, self._bad)

    def write(self, lot: _Lot) -> None:
        """Write a lot of which all is here. Raises as `Filler.fill`."""
        made: list[tuple[str, Buffer]] = []
        count = place = 0
        for key, parts, extra in lot.specs:
            self._seen += 1
            data = lot.data[place : place + len(parts)]
            place += len(parts)
            if lot.failed and (error := next((one for one in data if isinstance(one, HeadraceError)), None)):
                self._judge.skip(key, "fetch", error, self._seen)
                left_out(self._means.budget, self._tally, self._bad.pop())
                continue
            try:
                found = _members(key, parts, data, extra)
                refuse_twin(key, self._keys)
            except BadSampleError as error:
                if not self._means.budget.allowed:
                    raise
                left_out(self._means.budget, self._tally, Skipped(error.path or key, "pack", error.reason))
                continue
            made += found
            count += 1
        before = self._sink.size
        self._sink.put(made)
        self._tally.samples += count
        self._means.progress.advance(count, self._sink.size - before)


def _members(key: str, parts: Sequence[Part], data: list[Any], extra: Mapping[str, Any]) -> list[tuple[str, Buffer]]:
    """As `members`, without looking again at the key and the names, which the plan has looked at."""
    if len(parts) == 1 and not extra and not parts[0].name.startswith(PRIVATE):
        return [(f"{key}.{parts[0].name}", data[0])]
    fields = {part.name: one for part, one in zip(parts, data, strict=True)}
    return members({"__key__": key, **fields, **extra})


def _lots(dataset: Dataset) -> Iterator[_Lot]:
    """All samples, in order."""
    index = dataset.leaves[0].index
    for first in range(0, len(dataset), _CHUNK):
        positions = np.arange(first, min(first + _CHUNK, len(dataset)), dtype=np.int64)
        specs, size = list[SampleSpec](), 0
        for spec in index.specs(dataset.stream.locate(0, positions)[1]):
            specs.append(spec)
            size += _OVERHEAD + sum(part.size for part in spec[1])
            if len(specs) == _LOT or size >= _LOT_BYTES:
                yield _Lot(index.store, specs, size)
                specs, size = list[SampleSpec](), 0
        if specs:
            yield _Lot(index.store, specs, size)
