"""Batches of a `Packing`: samples wait in buckets until one is full. One thread makes them, the batcher's.

A sample that waits is not done: a state says so, and whoever goes on from it reads the sample again, in its order. The
buckets then hold what they held, so the same batches come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headrace.base.errors import BadSampleError, HeadraceError
from headrace.formats import Sample
from headrace.loader.order.progress_state import PartOf, Progress, handed_out, merged
from headrace.loader.pipeline.bad_samples import first_keys
from headrace.loader.pipeline.batch_builder import Delivery, Track
from headrace.loader.pipeline.packing import Packing, Place, UnfitError
from headrace.loader.pipeline.run_stages import key_in
from headrace.loader.pipeline.slots import Group, Slot


class _Bucket:
    """Samples that wait for their batch."""

    __slots__ = ("cost", "done_at", "fetched_at", "held", "locals", "raw", "samples")

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.locals: list[tuple[int, int]] = []
        """Of each sample its own index, and its number among those that became of one."""
        self.cost = 0.0
        self.raw = self.held = 0
        self.fetched_at = self.done_at = 0.0


class PackedBuilder:
    """As `headrace.loader.pipeline.batch_builder.Builder`, for a `Packing`. One thread."""

    def __init__(
        self,
        packing: Packing,
        start: Progress,
        *,
        drop_last: bool,
        flat: bool = False,
        given: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        """`flat`: samples are lists of what became of them. `given`: what of them was given before, by own index."""
        self._packing, self._drop_last, self._flat = packing, drop_last, flat
        self._track = Track(start)
        told = [(local, number) for local, numbers in (given or {}).items() for number in numbers]
        self._given: dict[int, set[int]] = {}
        for local, number in told:
            if number >= 0:
                self._given.setdefault(local, set()).add(number)
        self._handed = {(local, handed_out(number)) for local, number in told if number < 0}
        """Handed out before, of batches that were not through: they are put into them again, and not handed out."""
        self._owed: dict[int, int] = {}
        """How many samples became of one that is not done."""
        if self._flat or not packing.is_even:  # unlike samples: no other stripe stands where this one does
            self._track.even = False
        self._buckets: dict[int, _Bucket] = {}
        """By number, the one whose first sample has waited longest first."""
        self._raw = self._held = 0
        """Bytes that no bucket has: of samples that were left out, and of the next one."""
        self.waiting = 0
        """Samples that wait for their batch to be full."""

    def add(self, group: Group, leave_out: Callable[[Slot, int], None]) -> Iterator[Delivery]:
        """Take a finished group; the batches it completes. As `Builder.add`."""
        slots = group.slots
        raw, raw_rest = divmod(group.raw, max(len(slots), 1))
        held, held_rest = divmod(group.size, max(len(slots), 1))
        self._raw, self._held = self._raw + raw_rest, self._held + held_rest
        for at, slot in enumerate(slots):
            self._raw, self._held = self._raw + raw, self._held + held  # until it is known where they belong
            if slot.error is not None or not slot.kept:
                leave_out(slot, at)
                self._track.even = False
                self._track.mark(slot.local)
                continue
            samples = slot.sample if self._flat else [slot.sample]
            slot.sample = None  # slots and groups refer to each other: their bytes must not wait for the collector
            given = self._given.get(slot.local, ())
            self._owed[slot.local] = len(samples)
            for number, sample in enumerate(samples):
                if number in given:
                    continue
                try:
                    place = self._packing.place(sample)
                except UnfitError as unfit:
                    left = Slot(key_in(sample, slot.key), slot.leaf, slot.local, None, [])
                    left.error = (unfit.stage, unfit.error)
                    leave_out(left, at)
                    self._track.even = False
                    self._done(slot.local, number)
                    continue
                yield from self._put(sample, place, (slot.local, number), group)

    def _put(self, sample: Sample, place: Place, which: tuple[int, int], group: Group) -> Iterator[Delivery]:
        full = self._buckets.get(place.bucket)
        if full is not None and full.cost + place.cost > self._packing.limit:
            yield self._deliver(place.bucket)
        bucket = self._buckets.setdefault(place.bucket, _Bucket())
        bucket.samples.append(sample)
        bucket.locals.append(which)
        bucket.cost += place.cost
        bucket.raw, bucket.held, self._raw, self._held = bucket.raw + self._raw, bucket.held + self._held, 0, 0
        bucket.fetched_at = max(bucket.fetched_at, group.fetched_at)
        bucket.done_at = max(bucket.done_at, group.done_at)
        self.waiting += 1
        if len(bucket.samples) == self._packing.most[place.bucket]:
            yield self._deliver(place.bucket)
        elif self.waiting > self._packing.window:
            yield self._deliver(next(iter(self._buckets)))

    def _done(self, local: int, number: int) -> None:
        """One of the samples that became of one is done."""
        self._handed.discard((local, number))
        given = self._given.setdefault(local, set())
        given.add(number)
        if len(given) == self._owed[local]:
            del self._given[local], self._owed[local]
            self._track.mark(local)

    def _now(self) -> Progress:
        progress = self._track.now()
        if not self._given and not self._handed:
            return progress
        inside = [(local, tuple(numbers)) for local, numbers in self._given.items()]
        inside += [(local, (handed_out(number),)) for local, number in self._handed]
        return progress._replace(inside=tuple(merged(inside).items()), even=progress.even and not self._handed)

    def finish(self) -> list[Delivery]:
        """What is left in the buckets, each a short batch."""
        return [] if self._drop_last else [self._deliver(number) for number in list(self._buckets)]

    def _deliver(self, number: int) -> Delivery:
        bucket = self._buckets.pop(number)
        count = len(bucket.samples)
        self.waiting -= count
        try:
            data: Any = self._packing.collate(bucket.samples)
        except HeadraceError:
            raise
        except Exception as error:
            raise BadSampleError(
                f"collate failed: {type(error).__name__}: {error}",
                path=first_keys([key_in(one, "?") for one in bucket.samples]),
                hint="collate gets the list of a batch's samples",
            ) from error
        before = self._now()
        is_new = [which not in self._handed for which in bucket.locals]
        for local, one in bucket.locals:
            self._done(local, one)
        after = self._now()
        steps = tuple(_steps(before, after, bucket.locals, is_new)) if self._packing.is_taken_apart else ()
        raw, held, self._raw, self._held = self._raw + bucket.raw, self._held + bucket.held, 0, 0
        return Delivery(data, after, steps, count, raw, held, bucket.fetched_at, bucket.done_at)


def _steps(
    before: Progress, after: Progress, samples: list[tuple[int, int]], is_new: list[bool]
) -> Iterator[Progress | None]:
    """The state once each sample of a batch is received; None: it was, before."""
    handed = [(local, (handed_out(number),)) for (local, number), new in zip(samples, is_new, strict=True) if new]
    count = 0
    for new in is_new:
        count += new
        if not new:
            yield None
        elif count == len(handed):
            yield after
        else:
            yield before._replace(inside=PartOf(before.inside, handed, count), even=False)
