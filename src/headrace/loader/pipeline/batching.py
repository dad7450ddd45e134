"""What becomes of finished groups: back into order, and into batches, on the batcher's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.collector import Collector, Gate
from headrace.loader.pipeline.slots import Group, Slot

_FIRST, _TOGETHER = 8, 32
"""Batches of a group that are handed on together: few at first, as somebody may wait, then more. A group of narrow rows
is tens of thousands of them.
"""


class BatchMaker(Protocol):
    """Cuts groups into batches. One thread."""

    @property
    def waiting(self) -> int:
        """Samples that wait for their batch to be full."""
        ...

    def add(self, group: Group, leave_out: Callable[[Slot, int], None], /) -> Iterator[Delivery]:
        """Take a finished group; the batches it completes. `leave_out`: told of slots that are in none."""
        ...

    def finish(self) -> list[Delivery]:
        """The last batches."""
        ...


class Around(Protocol):
    """What the batches' making needs of the pipeline around it."""

    def open_group(self, group: Group) -> None:
        """Make what is in a group ready to be put into batches. May raise."""
        ...

    def leave_out(self, slot: Slot, seen: int) -> None:
        """A sample is bad, or was filtered out; `seen`: samples so far. May raise."""
        ...

    def hand_on(self, made: list[Delivery]) -> bool:
        """Batches for the consumer, in their order. Waits while there are many. False: closed."""
        ...

    def knock(self) -> None:
        """The feeder may find that it can go on."""
        ...


class Batching:
    """The feeder calls `add` and `end`; who has finished a group, `finished`; the batcher's thread, `run`."""

    def __init__(self, collector: Collector, builder: BatchMaker, around: Around) -> None:
        self.collector = collector
        self.settled = 0
        """Samples that are in batches, or were left out."""
        self._builder, self._around = builder, around
        self._gate = Gate()
        self._seen = 0
        self._ended = False

    def add(self, group: Group) -> None:
        """The next group, not finished yet."""
        self.collector.add(group)

    def end(self) -> None:
        """No more will be added."""
        self._ended = True
        self._gate.knock()

    def release(self) -> None:
        """Nobody waits any more."""
        self._gate.release()

    def finished(self, group: Group) -> None:
        """A group has all that it waited for."""
        if self.collector.finished(group):
            self._gate.knock()

    def run(self) -> None:
        """Make batches until all that was added is in one, or until released. Raises what a bad sample or a user's
        function does.
        """
        while self._gate.wait(self._something) and not self._all:
            while self.collector.ready():
                self._build(self.collector.take())
        last = self._builder.finish() if self._all else []
        if last:
            self._around.hand_on(last)

    @property
    def _all(self) -> bool:
        return self._ended and not len(self.collector)

    def _something(self) -> bool:
        """Whether there is something to do. Before the wait the feeder is told, who may be waiting for just that."""
        if self.collector.ready() or self._all:
            return True
        self._around.knock()
        return False

    def _build(self, group: Group) -> None:
        self._around.open_group(group)
        before = self._seen
        self._seen = before + group.count
        made: list[Delivery] = []
        together = _FIRST
        try:
            for one in self._builder.add(group, lambda slot, at: self._around.leave_out(slot, before + at + 1)):
                made.append(one)
                if len(made) == together:
                    some, made, together = made, [], min(2 * together, _TOGETHER)
                    if not self._around.hand_on(some):
                        return
        finally:  # what came before a bad sample that ends the epoch is delivered
            if made:
                self._around.hand_on(made)
        self.settled = self._seen - self._builder.waiting
        self._around.knock()
