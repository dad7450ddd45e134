"""Samples on their way: planned, fetched, decoded, some at a time.

    feeder   positions, objects, reads; waits while the byte window is full, or where the cache is read by groups, while
             enough is planned
    fetch    `headrace.fetch` calls `arrived` on its own threads
    decode   map and filter, some groups of samples at a time (`headrace.loader.pipeline.decode_threads`); absent where
             there is nothing to do. Where that is no more than verifying or unpacking records of files, these threads
             read what is in the page cache, too

Where the node's cache holds whole objects, a few more threads read those (`headrace.loader.pipeline.cached_readers`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from headrace.base.errors import HeadraceError
from headrace.fetch import Fetcher, Read
from headrace.loader.joining_limits import MOST_JOINED
from headrace.loader.pipeline.batching import BatchMaker
from headrace.loader.pipeline.byte_window import Bounds
from headrace.loader.pipeline.cached_readers import Readers
from headrace.loader.pipeline.collector import Collector, InOrder, WithinWindow
from headrace.loader.pipeline.decode_effort import Effort, Watch
from headrace.loader.pipeline.decode_threads import DecodeThreads
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import CHUNK, MOST_CHUNK, Course, Maker, mean_size, register, settle
from headrace.loader.pipeline.page_cached import CachedFiles
from headrace.loader.pipeline.range_groups import Answer, RangedGroup
from headrace.loader.pipeline.slots import Group, Slot
from headrace.loader.pipeline.source import Pipe
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


class SampleSource:
    """A `headrace.loader.pipeline.source.Source` of samples, one by one or planned by arrays.

    `workers`: the loader's, for stages that ask for processes.
    """

    batches_ahead = True

    def __init__(
        self, plan: Plan, course: Course, fetcher: Fetcher, pipe: Pipe, workers: Workers | None = None
    ) -> None:
        self._plan, self._course, self._fetcher, self._pipe = plan, course, fetcher, pipe
        alike = None if plan.packing or plan.is_flat else plan.batch
        self._transform = Transform(plan.stages_by_leaf, alike, workers)
        self._decodes = bool(self._transform.threads)
        self._files = self._files_here()
        self._readers = self._readers_here()
        self.bounds = Bounds(plan.prefetch, _WARM_TOGETHER if self._readers or self._files is not None else _WARM)
        found = self._decodes and plan.finds_threads and not self._transform.columns
        self._decoding = DecodeThreads(None if found else self._transform.threads, self._decode, pipe.begin)
        self._fed = 0

    def _files_here(self) -> CachedFiles | None:
        """Files that the decode threads read themselves, as they have little more to do than to look at the bytes."""
        leaf, ours = self._plan.leaves[0], self._transform.columns and self._decodes
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

    @property
    def threads(self) -> list[tuple[str, Callable[[], None]]]:
        """See `headrace.loader.pipeline.source.Source`; this and all below."""
        bring = self._readers
        readers = [] if bring is None else [(f"read-{i}", bring.run) for i in range(bring.count)]
        return [("feeder", self._feed), *readers, *self._decoding.threads]

    @property
    def undecoded(self) -> int:
        return self._decoding.jobs.qsize()

    def collector(self) -> Collector:
        plan = self._plan
        return InOrder() if plan.window is None else WithinWindow(plan.window, min(_WAKE, plan.batch or 1))

    def builder(self) -> BatchMaker:
        return self._plan.builder(self._course)

    def open(self, group: Group) -> None:
        if not self._decodes:
            self._transform.open(group)

    def effort(self) -> Effort:
        return self._transform.effort(self._decoding.effort())

    def close(self) -> None:
        for group in self._pipe.batching.collector.pending():
            if group.ticket is not None:
                group.ticket.cancel()
        self._decoding.close()
        if self._readers is not None:
            self._readers.close()
        self._transform.close()

    def forget(self) -> None:
        self._decoding.forget()

    @property
    def closed(self) -> bool:
        """See `headrace.loader.pipeline.cached_readers.Around`."""
        return self._pipe.closed

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
            self._pipe.meter.shared = maker.shared
        self._end_feed()

    def _end_feed(self) -> None:
        if self._readers is not None:
            self._readers.end()
        else:
            self._pipe.batching.end()

    def _chunk(self, mean: int) -> int:
        """Samples planned at once: whole groups. Planning costs the interpreter's lock, for many hardly more than for
        few.
        """
        if any(leaf.index.abilities.shares for leaf in self._plan.leaves):
            return MOST_CHUNK
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
        if self._decodes and not self._transform.columns:
            limit = max(1, min(_GROUP_DECODED, _GROUP_BYTES // mean, self._decoding.job_samples))
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
        if not self._pipe.room.wait(size, self._needs_more):
            return False
        self._pipe.room.hold(size)
        self._pipe.meter.reads += reads
        for group in groups:
            self._fed += group.count
            self._pipe.batching.add(group)
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
                self._decoding.jobs.put(groups[0].number, read)
        elif reads:
            ticket = self._fetcher.submit(reads, self.arrived, here=True)
            for group in groups:
                group.ticket = ticket
            if self.closed:
                ticket.cancel()
        return True

    def _needs_more(self) -> bool:
        # Never stuck: the batch under construction may be completed even when it is larger than the window.
        batching = self._pipe.batching
        under_way = self._fed - batching.settled
        return (under_way < (self._plan.batch or 1) or not len(batching.collector)) and self._pipe.is_starving()

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
        self._pipe.batching.end()

    def _complete(self, slot: Slot) -> None:
        if slot.group.arrived():
            self._here(slot.group)

    def _here(self, group: Group) -> None:
        if self._decodes:
            self._decoding.jobs.put(group.number, group)
        else:
            self._finish(group)

    def _finish(self, group: Group) -> None:
        group.done_at = time.perf_counter()
        self._pipe.batching.finished(group)

    # -- decode threads ------------------------------------------------------------------------------------------

    def _decode(self, watch: Watch, job: Group | Read) -> int:
        """Returns how many samples that were."""
        groups = self._read(job) if isinstance(job, Read) else [job]
        del job
        count = 0
        while groups:  # and nothing of them stays here: who has taken a batch gives its bytes back
            count += groups[0].count
            self._decode_group(watch, groups.pop(0))
        return count

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
        watch.run(lambda call: self._pipe.room.hold(self._transform.run(group, _OVERHEAD, call, watch.away)))
        self._finish(group)


def _whole_batches(count: int, batch: int | None) -> int:
    """`count` or a little fewer samples, which are whole batches, if they are more than one."""
    return count if batch is None or count < batch else count // batch * batch


def _group(number: int, slots: list[Slot], size: int) -> Group:
    group = Group(number, slots, size)
    group.size += _OVERHEAD * len(slots)
    return group
