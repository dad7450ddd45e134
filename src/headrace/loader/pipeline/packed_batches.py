"""Batches of a `Packing`: samples wait in buckets until one is full. One thread makes them, the batcher's.

A sample that waits is not done: a state says so, and whoever goes on from it reads the sample again, in its order. The
buckets then hold what they held, so the same batches come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.base.errors import BadSampleError, HeadraceError
from headrace.formats import Sample
from headrace.loader.order.progress_state import Progress
from headrace.loader.pipeline.batch_builder import Delivery, Track
from headrace.loader.pipeline.packing import Packing, UnfitError
from headrace.loader.pipeline.run_stages import key_in
from headrace.loader.pipeline.slots import Group, Slot

_NAMED = 3


class _Bucket:
    """Samples that wait for their batch."""

    __slots__ = ("cost", "done_at", "fetched_at", "held", "locals", "raw", "samples")

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.locals: list[int] = []
        self.cost = 0.0
        self.raw = self.held = 0
        self.fetched_at = self.done_at = 0.0


class PackedBuilder:
    """As `headrace.loader.pipeline.batch_builder.Builder`, for a `Packing`. One thread."""

    def __init__(self, packing: Packing, start: Progress, *, drop_last: bool) -> None:
        self._packing, self._drop_last = packing, drop_last
        self._track = Track(start)
        self._buckets: dict[int, _Bucket] = {}
        """By number, the one whose first sample has waited longest first."""
        self._raw = self._held = 0
        """Bytes of samples that were left out since the last batch."""
        self.waiting = 0
        """Samples that wait for their batch to be full."""

    def add(self, group: Group, leave_out: Callable[[Slot, int], None]) -> Iterator[Delivery]:
        """Take a finished group; the batches it completes. As `Builder.add`."""
        slots = group.slots
        raw, raw_rest = divmod(group.raw, max(len(slots), 1))
        held, held_rest = divmod(group.size, max(len(slots), 1))
        self._raw, self._held = self._raw + raw_rest, self._held + held_rest
        for at, slot in enumerate(slots):
            place = self._place(slot)
            if place is None:
                self._raw, self._held = self._raw + raw, self._held + held
                leave_out(slot, at)
                self._track.even = False
                self._track.mark(slot.local)
                continue
            number, cost = place
            full = self._buckets.get(number)
            if full is not None and full.cost + cost > self._packing.limit:
                yield self._deliver(number)
            bucket = self._buckets.setdefault(number, _Bucket())
            bucket.samples.append(slot.sample)
            bucket.locals.append(slot.local)
            slot.sample = None  # slots and groups refer to each other: their bytes must not wait for the collector
            bucket.cost += cost
            bucket.raw, bucket.held = bucket.raw + raw, bucket.held + held
            bucket.fetched_at = max(bucket.fetched_at, group.fetched_at)
            bucket.done_at = max(bucket.done_at, group.done_at)
            self.waiting += 1
            if len(bucket.samples) == self._packing.most[number]:
                yield self._deliver(number)
            elif self.waiting > self._packing.window:
                yield self._deliver(next(iter(self._buckets)))

    def finish(self) -> list[Delivery]:
        """What is left in the buckets, each a short batch."""
        return [] if self._drop_last else [self._deliver(number) for number in list(self._buckets)]

    def _place(self, slot: Slot) -> tuple[int, float] | None:
        """None: it is left out."""
        if slot.error is not None or not slot.kept:
            return None
        try:
            return self._packing.place(slot.sample)
        except UnfitError as unfit:
            slot.key = key_in(slot.sample, slot.key)
            slot.sample, slot.error = None, (unfit.stage, unfit.error)
            return None

    def _deliver(self, number: int) -> Delivery:
        bucket = self._buckets.pop(number)
        count = len(bucket.samples)
        self.waiting -= count
        try:
            data: Any = self._packing.collate(bucket.samples)
        except HeadraceError:
            raise
        except Exception as error:
            keys = ", ".join(key_in(one, "?") for one in bucket.samples[:_NAMED])
            raise BadSampleError(
                f"collate failed: {type(error).__name__}: {error}",
                path=keys if count <= _NAMED else f"{keys} and {count - _NAMED} more",
                hint="collate gets the list of a batch's samples",
            ) from error
        self._track.mark_all(bucket.locals)
        raw, held, self._raw, self._held = self._raw + bucket.raw, self._held + bucket.held, 0, 0
        return Delivery(data, self._track.now(), (), count, raw, held, bucket.fetched_at, bucket.done_at)
