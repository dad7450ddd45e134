"""The pipeline of one epoch: plan → fetch → decode → assemble → batch → consumer, all threads of this process.

    source   plans groups, has them fetched and decoded, on threads of its own: of samples
             (`headrace.loader.pipeline.sample_source`), or of row groups (`headrace.loader.tables.table_source`)
    batcher  groups back into order, bad samples judged, batches put together (`headrace.loader.pipeline.batching`); the
             consumer does it where batches are only cut out of columns
    consumer `take`

A sample's bytes count against the window from the moment its reads are submitted until the consumer takes its batch;
decoded samples count with what they became. The window grows by what is taken, and is smaller while reads are served by
the node's cache, or its disk is behind: there is no latency to hide then (`room`). Nothing here waits for one
particular sample longer than the fetch room's deadline, and `close` ends everything.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeAlias

from headrace.base.errors import InputError
from headrace.base.threads import join_all
from headrace.fetch import Fetcher
from headrace.loader.pipeline.after_batch import AfterBatch, settled
from headrace.loader.pipeline.bad_samples import Judge, Skipped
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.batching import Batching
from headrace.loader.pipeline.byte_window import Room
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.sample_source import SampleSource
from headrace.loader.pipeline.slots import Group, Slot
from headrace.loader.pipeline.source import Source
from headrace.loader.pipeline.stats import Meter, Stats, summarise
from headrace.loader.pipeline.worker_processes import Workers
from headrace.loader.tables.table_source import TableSource, index_of

_JOIN_S = 1.8
"""Seconds that threads have to end: of the two in which Ctrl-C ends everything."""
_LOOK_S = 0.25  # seconds after which Ctrl-C, or that all is closed, is seen: an endless wait is not interrupted


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """The pipeline's end by an error, to be raised in the consumer."""

    error: BaseException


class Finished:
    """All of the stripe was delivered."""


FINISHED = Finished()
_Made: TypeAlias = "Delivery | Future[Delivery]"
"""A batch, or what becomes of one."""


def closed() -> InputError:
    """What a run's `take` raises that was closed meanwhile; `headrace.loader.loader` says why it was."""
    return InputError("this epoch was closed", hint="iter(loader) begins another")


class Pipeline:
    """Threads that run one epoch's stripe. One consumer; `close` from any thread, as often as one likes.

    `arrow`: batches of tables stay tables. `workers`: the loader's, for stages that ask for processes.
    """

    def __init__(
        self, plan: Plan, course: Course, fetcher: Fetcher, ledger: list[Skipped], *, arrow: bool = False,
        workers: Workers | None = None,
    ) -> None:  # fmt: skip
        self.meter = Meter(partial(fetcher.metrics.get, "cache.bytes_filled"))
        self.closed = False
        self._fetcher, self._size = fetcher, plan.batch or 1
        self._before = fetcher.stats().counters
        self._judge = Judge(plan.skip, course.end, course.residual.epoch, ledger)
        table = index_of(plan)
        self._source: Source = (
            SampleSource(plan, course, fetcher, self, workers)
            if table is None
            else TableSource(plan, course, fetcher, self, table, arrow=arrow)
        )
        self.room = Room(self._source.bounds, lambda: fetcher.warm or fetcher.behind)
        self.batching = Batching(self._source.collector(), self._source.builder(), self)
        self._after = AfterBatch(plan.after, self.room.hold) if plan.after else None
        self._ready: SimpleQueue[Sequence[_Made] | Failure | Finished] = SimpleQueue()
        self._beginning = threading.Lock()
        self._at_hand: deque[_Made] = deque()  # the consumer's own
        self._uneven = False  # a whole batch was filtered out
        self._built = self._taken = self._returned = self._given_back = 0
        works = [*self._source.threads]
        if self._source.batches_ahead:
            works.append(("batcher", self._run_batcher))
        self._pulled = None if self._source.batches_ahead else self.batching.pull(fetcher.hurry)
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"headrace-loader-{name}", daemon=True)
            for name, work in works
        ]
        for thread in [*self._threads]:
            thread.start()

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """See `headrace.loader.pipeline.source.Pipe`."""
        thread = threading.Thread(target=self._guarded, args=(work,), name=f"headrace-loader-{name}", daemon=True)
        with self._beginning:
            if not self.closed:
                thread.start()
                self._threads.append(thread)

    # -- consumer ------------------------------------------------------------------------------------------------

    def take(self) -> Delivery | Finished:
        """The next batch. Blocks. Raises whatever ended the pipeline."""
        meter = self.meter
        meter.asking(self._source.undecoded, self._ready_now)
        began = time.perf_counter()
        while True:
            if not self._at_hand:
                got = self._next_ready()
                if isinstance(got, Failure):
                    self.close()
                    raise got.error
                if isinstance(got, Finished):
                    meter.ended = time.perf_counter()
                    return got
                self._at_hand.extend(got)
            delivery = self._next_made()
            self._taken += 1
            self._given_back += delivery.held
            if not self._at_hand:  # those that were made together at once
                self.room.took(self._given_back, self._taken - self._returned)
                self._given_back, self._returned = 0, self._taken
            if not self._after or delivery.samples:
                meter.account(began, time.perf_counter(), delivery)
                return delivery
            self._uneven = True

    def _next_made(self) -> Delivery:
        try:
            made = self._at_hand.popleft()
        except IndexError:  # another thread has closed it just now
            raise closed() from None
        if not isinstance(made, Future):
            return made
        try:
            with self._fetcher.hurry():
                delivery = settled(made, lambda: self.closed)
            if delivery is None:
                raise closed()
        except BaseException:
            self.close()
            raise
        if self._uneven:
            delivery = delivery._replace(progress=delivery.progress._replace(even=False))
        return delivery

    @property
    def _ready_now(self) -> int:
        """Batches that the consumer need not wait for; where it makes them itself, whether there is one."""
        if self._pulled is None:
            return self._built - self._taken
        batching = self.batching
        return int(batching.waiting >= self._size or batching.collector.ready())

    def _next_ready(self) -> Sequence[_Made] | Failure | Finished:
        if self._pulled is not None:
            for made in self._pulled:
                return (made,)
            if not self.closed and self._ready.empty():
                return FINISHED
        if self._ready.empty():
            with self._fetcher.hurry():
                return self._wait_ready()
        return self._ready.get()

    def _wait_ready(self) -> Sequence[_Made] | Failure | Finished:
        # Never without an end: a Ctrl-C between the interpreter's last look for signals and its wait does not end the
        # wait, and is seen at the next look.
        while True:
            with suppress(Empty):
                return self._ready.get(timeout=_LOOK_S)

    def stats(self) -> Stats:
        """Figures so far. Any thread."""
        return summarise(
            self.meter,
            decode=self._source.effort(),
            held=self.room.held,
            counters=self._counted(),
        )

    def _counted(self) -> dict[str, float]:
        now = self._fetcher.stats().counters
        return {name: value - self._before.get(name, 0.0) for name, value in now.items()}

    def close(self) -> None:
        """Stop: cancel reads, wake everyone, wait for the threads (at most 1.8 s, should a user's function hang)."""
        self.closed = True
        self.room.close()
        self.batching.release()
        self._source.close()
        self._ready.put(Failure(closed()))  # a consumer that waits on another thread
        if self._after is not None:
            self._after.close()
        with self._beginning:
            threads = [*self._threads]
        join_all(threads, _JOIN_S)
        self._forget()

    def _forget(self) -> None:
        """What nobody takes any more: up to a window of bytes would wait for the garbage collector."""
        self._at_hand.clear()
        with suppress(Empty):
            while True:
                self._ready.get_nowait()
        self._ready.put(Failure(closed()))
        self._source.forget()
        self.batching.forget()
        if self._pulled is not None:
            with suppress(ValueError):  # the consumer is in it, and leaves it
                self._pulled.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            if not self.closed:
                self._ready.put(Failure(error))
                if self._pulled is not None:
                    self.batching.release()

    # -- batcher -------------------------------------------------------------------------------------------------

    def _run_batcher(self) -> None:
        self.batching.run()
        if not self.closed:
            self._ready.put(FINISHED)

    def open_group(self, group: Group) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        self._source.open(group)

    def hand_on(self, made: list[Delivery]) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        self._built += len(made)
        self._ready.put(made if self._after is None else [self._after.begin(one) for one in made])

    def is_starving(self) -> bool:
        """See `headrace.loader.pipeline.source.Pipe`."""
        return (not self._at_hand and self._ready.empty()) if self._pulled is None else self.batching.is_waiting

    def leave_out(self, slot: Slot, seen: int) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        if slot.error is not None:
            self._judge.skip(slot.key, *slot.error, seen)
            self.meter.skipped += 1
        else:
            self.meter.filtered += 1

    def knock(self) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        self.room.knock()
