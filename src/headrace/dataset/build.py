"""Batches out of samples, and the book of what is done: what the batcher's thread does, without the thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.dataset.batch import collate
from headrace.dataset.slots import Group, Slot
from headrace.dataset.state import Progress


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """What the consumer takes: a batch, or without batching a list of single samples.

    `progress`: the state once it is received; `steps`: for single samples, the state after each.
    `raw`: bytes fetched for it; `held`: bytes of the window it gives back. `fetched_at`, `done_at`: when the last of
    its samples had its bytes, and was decoded (`time.perf_counter`).
    """

    data: Any
    progress: Progress
    steps: tuple[Progress, ...]
    count: int
    raw: int
    held: int
    fetched_at: float
    done_at: float


class Track:
    """Which indices of a stripe are done. One thread."""

    def __init__(self, start: Progress) -> None:
        self._frontier = start.frontier
        self._ahead = set(start.ahead)
        self.even = start.even

    def mark(self, local: int) -> None:
        """One more is done."""
        if local != self._frontier:
            self._ahead.add(local)
            return
        self._frontier += 1
        while self._ahead and self._frontier in self._ahead:
            self._ahead.remove(self._frontier)
            self._frontier += 1

    def now(self) -> Progress:
        """The state if nothing more came."""
        if not self._ahead:
            return Progress(self._frontier, (), self.even)
        return Progress(self._frontier, tuple(sorted(self._ahead)), even=False)


class Builder:
    """Cuts samples into batches of `size` (None: hands them on singly). One thread."""

    def __init__(self, size: int | None, start: Progress, *, drop_last: bool) -> None:
        self._size, self._drop_last = size, drop_last
        self._track = Track(start)
        self._samples: list[Any] = []
        self._locals: list[int] = []
        self._left_out: set[int] = set()
        self._raw = self._held = 0
        self._fetched_at = self._done_at = 0.0

    @property
    def waiting(self) -> int:
        """Samples that wait for their batch to be full."""
        return len(self._samples)

    def add(self, group: Group, leave_out: Callable[[Slot, int], None]) -> Iterator[Delivery]:
        """Take a finished group; the batches it completes. Slots that are bad or were filtered out, and their places in
        the group, go to `leave_out`, which may raise.
        """
        self._raw += group.raw
        self._held += group.size
        self._fetched_at = max(self._fetched_at, group.fetched_at)
        self._done_at = max(self._done_at, group.done_at)
        slots = group.slots
        for place, slot in enumerate(slots):
            self._locals.append(slot.local)
            if slot.error is not None or not slot.kept:
                leave_out(slot, place)
                self._track.even = False
                self._left_out.add(slot.local)
                continue
            self._samples.append(slot.sample)
            slot.sample = None  # slots and groups refer to each other: their bytes must not wait for the collector
            if len(self._samples) == self._size:
                yield self._deliver(rest=(len(slots) - place - 1) / len(slots), group=group)
        if self._size is None and self._samples:
            yield self._deliver_singly()

    def finish(self) -> list[Delivery]:
        """The last, short batch."""
        if self._samples and not self._drop_last:
            return [self._deliver(0.0, None)]
        return []

    def _deliver(self, rest: float, group: Group | None) -> Delivery:
        """A batch of all samples waiting; `rest`: the share of the last group that stays for the next one."""
        held_back = int(group.size * rest) if group is not None else 0
        raw_back = int(group.raw * rest) if group is not None else 0
        samples, self._samples = self._samples, []
        for local in self._locals:
            self._track.mark(local)
        self._locals.clear()
        self._left_out.clear()
        data = collate(samples)
        return self._packed(data, (), len(samples), raw_back, held_back)

    def _deliver_singly(self) -> Delivery:
        samples, self._samples = self._samples, []
        steps: list[Progress] = []
        for local in self._locals:
            self._track.mark(local)
            if local not in self._left_out:
                steps.append(self._track.now())
        self._locals.clear()
        self._left_out.clear()
        return self._packed(samples, tuple(steps), len(samples), 0, 0)

    def _packed(self, data: Any, steps: tuple[Progress, ...], count: int, raw_back: int, held_back: int) -> Delivery:
        delivery = Delivery(
            data,
            self._track.now(),
            steps,
            count,
            self._raw - raw_back,
            self._held - held_back,
            self._fetched_at,
            self._done_at,
        )
        self._raw, self._held = raw_back, held_back
        return delivery
