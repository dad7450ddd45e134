"""The pipeline of one epoch: feeder → fetch → decode threads → batcher → consumer, all threads of this process.

    feeder   positions, objects, reads; waits while the byte window is full, or where the cache is read by groups, while
             enough is planned
    fetch    `headrace.fetch` calls `arrived` on its own threads
    decode   map and filter, some groups of samples at a time; absent where there is nothing to do. Where that is no
             more than verifying or unpacking records of files, these threads read what is in the page cache, too
    batcher  groups back into order, bad samples judged, batches put together
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
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from headrace.base.errors import HeadraceError, InputError
from headrace.base.threads import join_all
from headrace.catalog import Stage
from headrace.fetch import Fetcher, Read
from headrace.formats import Forms
from headrace.loader.joining_limits import MOST_JOINED
from headrace.loader.pipeline.after_batch import AfterBatch, settled
from headrace.loader.pipeline.bad_samples import Judge, Skip, Skipped
from headrace.loader.pipeline.batch_builder import Builder, Delivery
from headrace.loader.pipeline.batching import Batching
from headrace.loader.pipeline.byte_window import Bounds, Room
from headrace.loader.pipeline.cached_readers import Readers
from headrace.loader.pipeline.collector import InOrder, InTurn, WithinWindow
from headrace.loader.pipeline.decode_effort import Watch
from headrace.loader.pipeline.feeder import CHUNK, MOST_CHUNK, Course, Leaf, Maker, mean_size, register, settle
from headrace.loader.pipeline.packed_batches import PackedBuilder
from headrace.loader.pipeline.packing import Packing, one_by_one
from headrace.loader.pipeline.page_cached import CachedFiles
from headrace.loader.pipeline.range_groups import Answer, RangedGroup
from headrace.loader.pipeline.run_stages import is_flat
from headrace.loader.pipeline.slots import Group, Slot
from headrace.loader.pipeline.stats import Meter, Stats, summarise
from headrace.loader.pipeline.transform import Transform
from headrace.loader.pipeline.whole_objects import ObjectGroup
from headrace.loader.pipeline.worker_processes import Workers
from headrace.store.protocol import Blob

_GROUP = 64
"""Samples in a group that nobody decodes: a wake-up of another thread is shared by all of them."""
_GROUP_FILES, _BETWEEN = 512, 64
"""Samples in a group that is one read of a file: what a wake-up of another thread costs is shared by all of them. And
bytes that lie between two of them.
"""
_GROUP_DECODED = 16  # samples that one decode thread takes at a time, at most, so that a batch is shared by all
_GROUP_BYTES = 1 << 20  # bytes in such a group: of large samples each is one
_GROUP_BYTES_RAW = 8 << 20  # bytes in a group that nobody decodes
_OVERHEAD = 1024
"""Bytes of this process that a sample takes beside its own, roughly: tiny samples must not fill the memory either."""
_BUNDLE = 32  # samples submitted together, where each is a group of its own
_WAKE = 16  # samples that arrived, after which the batcher is woken where any order will do
_TIED = 4
"""Samples that share reads are submitted together, in portions of this part of the byte window."""
_WARM, _WARM_TOGETHER = 128 << 20, 32 << 20
"""Bytes of the window while the cache serves; fewer where no reads are joined, which gains from reading far ahead."""
_WARM_CHUNK = 2048
"""Samples planned at once while the cache serves whole objects."""
_JOIN_S = 1.8
"""Seconds that threads have to end: of the two in which Ctrl-C ends everything."""
_FIRST = -1
"""Before every group."""
_LOOK_S = 0.25  # seconds after which Ctrl-C, or that all is closed, is seen: an endless wait is not interrupted


@dataclass(frozen=True)
class Plan:
    """What every epoch's pipeline has in common. `prefetch`: bytes. `window`: None for the exact order."""

    leaves: tuple[Leaf, ...]
    stages: tuple[Stage, ...]
    batch: int | None
    drop_last: bool
    skip: Skip | None
    prefetch: int
    window: int | None
    forms: Forms | None = None
    """What columns are in batches, where that does not follow from their values."""
    packing: Packing | None = None
    """How samples become batches, where those are not the next `batch` samples, stacked."""
    after: tuple[Stage, ...] = ()
    """What sees whole batches."""

    @property
    def stages_by_leaf(self) -> list[tuple[Stage, ...]]:
        return [(*leaf.stages, *self.stages) for leaf in self.leaves]

    @property
    def is_steady(self) -> bool:
        """Whether every batch is made of the samples that come next: none is left out, and none overtakes."""
        kinds = {stage.kind for stages in (*self.stages_by_leaf, self.after) for stage in stages}
        even = self.packing is None or self.packing.is_even
        return self.window is None and self.skip is None and kinds <= {"map"} and even

    @property
    def is_flat(self) -> bool:
        """Whether one sample may become several."""
        return is_flat(self.stages_by_leaf)

    def builder(self, course: Course) -> Builder | PackedBuilder:
        """What makes the batches of a course."""
        if self.packing is None and not self.is_flat:
            return Builder(self.batch, course.progress, drop_last=self.drop_last, forms=self.forms)
        packing = (self.packing or one_by_one(self.batch)).typed(self.forms)
        given = course.given() if self.is_flat else None
        return PackedBuilder(packing, course.progress, drop_last=self.drop_last, given=given)


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

    `workers`: the loader's, for stages that ask for processes.
    """

    def __init__(
        self, plan: Plan, course: Course, fetcher: Fetcher, ledger: list[Skipped], workers: Workers | None = None
    ) -> None:
        self.meter = Meter(partial(fetcher.metrics.get, "cache.bytes_filled"))
        self._plan, self._course, self._fetcher = plan, course, fetcher
        self._before = fetcher.stats().counters
        alike = None if plan.packing or plan.is_flat else plan.batch
        self._transform = Transform(plan.stages_by_leaf, alike, workers)
        self._threads_wanted = self._transform.threads
        self._judge = Judge(plan.skip, course.end, course.residual.epoch, ledger)
        self._batching = Batching(
            InOrder() if plan.window is None else WithinWindow(plan.window, min(_WAKE, plan.batch or 1)),
            plan.builder(course),
            self,
        )
        self._files = self._files_here()
        self._readers = self._readers_here()
        self._raw: InTurn[Group | Read | None] = InTurn()
        self._ready: SimpleQueue[Sequence[_Made] | Failure | Finished] = SimpleQueue()
        self._at_hand: deque[_Made] = deque()  # the consumer's own
        self._uneven = False  # a whole batch was filtered out
        self._built = self._taken = self._returned = self._given_back = 0
        bounds = Bounds(plan.prefetch, _WARM_TOGETHER if self._readers or self._files is not None else _WARM)
        self._room = Room(bounds, lambda: fetcher.warm or fetcher.behind)
        self._after = AfterBatch(plan.after, self._room.hold) if plan.after else None
        self._fed = 0
        self.closed = False
        self._watches = [Watch() for _ in range(self._threads_wanted)]
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"headrace-loader-{name}", daemon=True)
            for name, work in self._works()
        ]
        for thread in self._threads:
            thread.start()

    def _files_here(self) -> CachedFiles | None:
        """Files that the decode threads read themselves, as they have little more to do than to look at the bytes."""
        leaf, ours = self._plan.leaves[0], self._transform.columns and self._threads_wanted
        if not ours or leaf.window is not None or leaf.index.abilities.ranges is None:
            return None
        return CachedFiles.of(leaf.index.store, self._fetcher)

    @property
    def _serve_files(self) -> bool:
        return self._files is not None and self._files.serve

    def _readers_here(self) -> Readers | None:
        """Threads of the pipeline's own that read what the cache holds; None where nothing is read group by group."""
        leaf, fetcher = self._plan.leaves[0], self._fetcher
        alone = len(self._plan.leaves) == 1 and leaf.window is None and self._plan.window is None
        kept = alone and leaf.index.abilities.objects is not None and fetcher.keeps(leaf.index.store)
        return Readers(leaf, fetcher, fetcher.cache, self) if kept and fetcher.cache is not None else None

    def _works(self) -> list[tuple[str, Any]]:
        bring = self._readers
        readers = [] if bring is None else [(f"read-{i}", bring.run) for i in range(bring.count)]
        decoders = [(f"decode-{i}", lambda watch=watch: self._decode(watch)) for i, watch in enumerate(self._watches)]
        return [("feeder", self._feed), ("batcher", self._batch), *readers, *decoders]

    # -- consumer ------------------------------------------------------------------------------------------------

    def take(self) -> Delivery | Finished:
        """The next batch. Blocks. Raises whatever ended the pipeline."""
        meter = self.meter
        meter.asking(self._raw.qsize(), self._built - self._taken)
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
                self._room.took(self._given_back, self._taken - self._returned)
                self._given_back, self._returned = 0, self._taken
            if not self._after or delivery.samples:
                meter.account(began, time.perf_counter(), delivery)
                return delivery
            self._uneven = True

    def _next_made(self) -> Delivery:
        made = self._at_hand.popleft()
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

    def _next_ready(self) -> Sequence[_Made] | Failure | Finished:
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
            decode=self._transform.effort(self._watches),
            held=self._room.held,
            counters=self._counted(),
        )

    def _counted(self) -> dict[str, float]:
        now = self._fetcher.stats().counters
        return {name: value - self._before.get(name, 0.0) for name, value in now.items()}

    def close(self) -> None:
        """Stop: cancel reads, wake everyone, wait for the threads (at most 1.8 s, should a user's function hang)."""
        self.closed = True
        self._room.close()
        self._transform.close()
        self._batching.release()
        for group in self._batching.collector.pending():
            if group.ticket is not None:
                group.ticket.cancel()
        for _ in range(self._threads_wanted):
            self._raw.put(_FIRST, None)
        self._ready.put(Failure(closed()))  # a consumer that waits on another thread
        if self._readers is not None:
            self._readers.close()
        if self._after is not None:
            self._after.close()
        join_all(self._threads, _JOIN_S)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            if not self.closed:
                self._ready.put(Failure(error))

    # -- feeder --------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        maker = Maker(self._plan.leaves, self._plan.prefetch // _TIED)
        number, mean = 0, mean_size(self._plan.leaves)
        step = self._plan.batch if self._transform.columns and (self._plan.batch or CHUNK) < CHUNK else 1
        for chunk in self._course.chunks(lambda: self._chunk(mean), step or 1):
            limit, bundle = self._group_limit(mean)
            planned = maker.lots(*chunk, number, limit)
            if planned is not None:
                for lot in planned:
                    number += len(lot.groups)
                    for group in lot.groups:
                        group.size += _OVERHEAD * group.count
                    if not self._send(lot.groups, lot.reads):
                        return
                continue
            first = not number  # read here: what becomes of it tells how to go on
            readers = self._readers if first or self._fetcher.warm else None
            if readers and (kept := maker.together(chunk, number, limit, readers.cache)):
                number += len(kept)
                if not self._send_kept(readers, kept, here=first):
                    return
                continue
            groups: list[Group] = []
            slots: list[Slot] = []
            reads: list[Read] = []
            size, were_tied = 0, False
            for slot, more, bytes_more, tied in maker.make(*chunk):
                slots.append(slot)
                reads += more
                size += bytes_more
                loosed, were_tied = were_tied and not tied, tied
                if loosed or len(slots) >= limit:
                    groups.append(_group(number, slots, size))
                    slots, size, number = [], 0, number + 1
                    if len(groups) >= bundle and not tied:
                        if not self._send(groups, reads):
                            return
                        groups, reads = [], []
            if slots:
                groups.append(_group(number, slots, size))
                number += 1
            if groups and not self._send(groups, reads):
                return
            self.meter.shared = maker.shared
        self._end_feed()

    def _end_feed(self) -> None:
        if self._readers is not None:
            self._readers.end()
        else:
            self._batching.end()

    def _chunk(self, mean: int) -> int:
        """Samples planned at once: whole groups. Planning costs the interpreter's lock, for many hardly more than for
        few.
        """
        if not self._serve_files:
            return _WARM_CHUNK if self._readers and self._fetcher.warm else CHUNK
        limit, _ = self._group_limit(mean)
        return MOST_CHUNK // limit * limit

    def _group_limit(self, mean: int) -> tuple[int, int]:
        """Samples in a group, and groups submitted together. `mean`: bytes of a sample.

        One sample where they may overtake each other; else few enough to spread over the decode threads, to fit the
        window several times, and to be here soon; and many enough to make locks rare, whatever the batch.
        """
        room = max(1, self._plan.prefetch // (8 * mean))
        if self._plan.window is not None:
            return 1, min(room, _BUNDLE, self._plan.batch or _BUNDLE)
        if self._threads_wanted and not self._transform.columns:
            limit = max(1, min(_GROUP_DECODED, _GROUP_BYTES // mean))
            return min(limit, room, self._plan.batch or limit), 1
        if self._serve_files:
            most = max(1, min(room, _GROUP_FILES, MOST_JOINED // (mean + _BETWEEN)))
            return _whole_batches(most, self._plan.batch), 1
        soon = max(1, _GROUP_BYTES_RAW // mean, min(self._plan.batch or 1, _GROUP))
        return min(_GROUP, room, soon), 1

    def _send_kept(self, readers: Readers, groups: list[ObjectGroup], *, here: bool) -> bool:
        """Have groups read from the cache, or do it `here`. False: closed."""
        for group in groups:
            group.size += _OVERHEAD * group.count
        if not here:
            return readers.leave(groups)
        for group in groups:
            if not self.admit([group], len(group.kept.entries)):
                return False
            readers.bring(group)
        return True

    def admit(self, groups: Sequence[Group], reads: int) -> bool:
        """Wait until there is room for these groups, and count them. False: closed."""
        size = sum(group.size for group in groups)
        if not self._room.wait(size, self._needs_more):
            return False
        self._room.hold(size)
        self.meter.reads += reads
        for group in groups:
            self._fed += group.count
            self._batching.add(group)
        return True

    def _send(self, groups: Sequence[Group], reads: list[Read]) -> bool:
        """Have groups fetched, once there is room for them. False: closed."""
        return self._readers.leave((groups, reads)) if self._readers else self.submit(groups, reads)

    def submit(self, groups: Sequence[Group], reads: list[Read]) -> bool:
        """Admit groups, and have `reads` fetched for them. False: closed."""
        if not self.admit(groups, len(reads)):
            return False
        # Before anything can arrive: what is complete already (windows of known frames) carries on at once.
        for group in groups:
            for slot in group.slots:
                if register(slot):
                    self._complete(slot)
        if reads and self._files is not None and self._files.suit(len(reads), sum(group.size for group in groups)):
            for read in reads:
                self._raw.put(groups[0].number, read)
        elif reads:
            ticket = self._fetcher.submit(reads, self.arrived, here=True)
            for group in groups:
                group.ticket = ticket
            if self.closed:
                ticket.cancel()
        return True

    def _needs_more(self) -> bool:
        # Never stuck: the batch under construction may be completed even when it is larger than the window.
        return (self._nothing_ready() and self._fed - self._batching.settled < (self._plan.batch or 1)) or self._idle()

    def _idle(self) -> bool:
        return not len(self._batching.collector) and self._nothing_ready()

    def _nothing_ready(self) -> bool:
        return not self._at_hand and self._ready.empty()

    # -- fetch threads -------------------------------------------------------------------------------------------

    def arrived(self, read: Read, result: Blob | HeadraceError) -> None:
        """What came of one read."""
        if isinstance(read.tag, Answer):
            for group in read.tag.settle(read, result):
                self._here(group)
            return
        settled = settle(read, result)
        if isinstance(settled, Read):
            self._fetcher.submit([settled], self.arrived)
            return
        for slot in settled:
            self._complete(slot)

    def filled(self, group: ObjectGroup) -> None:
        """See `headrace.loader.pipeline.cached_readers.Around`."""
        self._here(group)

    def fed(self) -> None:
        """See `headrace.loader.pipeline.cached_readers.Around`."""
        self._batching.end()

    def _complete(self, slot: Slot) -> None:
        if slot.group.arrived():
            self._here(slot.group)

    def _here(self, group: Group) -> None:
        if self._threads_wanted:
            self._raw.put(group.number, group)
        else:
            self._finish(group)

    def _finish(self, group: Group) -> None:
        group.done_at = time.perf_counter()
        self._batching.finished(group)

    # -- decode threads ------------------------------------------------------------------------------------------

    def _decode(self, watch: Watch) -> None:
        with closing(watch):
            self._decode_all(watch)

    def _decode_all(self, watch: Watch) -> None:
        while (job := self._raw.get()) is not None and not self.closed:
            groups = self._read(job) if isinstance(job, Read) else [job]
            del job
            while groups:  # and nothing of them stays here: who has taken a batch gives its bytes back
                self._decode_group(watch, groups.pop(0))

    def _read(self, read: Read) -> list[RangedGroup]:
        """Bytes from the page cache, else through `headrace.fetch`. Returns the groups that have everything now."""
        assert self._files is not None
        answer: Answer = read.tag
        blob = self._files.get(read)
        if blob is not None:
            return answer.settle(read, blob)
        waiting = list(answer.groups)
        ticket = self._fetcher.submit([read], self.arrived)
        for group in waiting:
            group.ticket = ticket
        if self.closed:
            ticket.cancel()
        return []

    def _decode_group(self, watch: Watch, group: Group) -> None:
        watch.run(lambda call: self._room.hold(self._transform.run(group, _OVERHEAD, call, watch.away)))
        self._finish(group)

    # -- batcher -------------------------------------------------------------------------------------------------

    def _batch(self) -> None:
        self._batching.run()
        if not self.closed:
            self._ready.put(FINISHED)

    def open_group(self, group: Group) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        if not self._threads_wanted:
            self._transform.open(group)

    def hand_on(self, made: list[Delivery]) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        self._built += len(made)
        self._ready.put(made if self._after is None else [self._after.begin(one) for one in made])

    def leave_out(self, slot: Slot, seen: int) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        if slot.error is not None:
            self._judge.skip(slot.key, *slot.error, seen)
            self.meter.skipped += 1
        else:
            self.meter.filtered += 1

    def knock(self) -> None:
        """See `headrace.loader.pipeline.batching.Around`."""
        self._room.knock()


def _whole_batches(count: int, batch: int | None) -> int:
    """`count` or a little fewer samples, which are whole batches, if they are more than one."""
    return count if batch is None or count < batch else count // batch * batch


def _group(number: int, slots: list[Slot], size: int) -> Group:
    group = Group(number, slots, size)
    group.size += _OVERHEAD * len(slots)
    return group
