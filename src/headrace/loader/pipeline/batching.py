"""What becomes of finished groups: back into order, and into batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.collector import Collector, Gate
from headrace.loader.pipeline.slots import Group, Slot

_LOOK_S = 0.25
"""How soon Ctrl-C is seen by a consumer that waits."""


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


class _NoBatches:
    """Of a run that is closed: it holds no sample."""

    waiting = 0

    def add(self, group: Group, leave_out: Callable[[Slot, int], None], /) -> Iterator[Delivery]:  # noqa: ARG002
        return iter(())

    def finish(self) -> list[Delivery]:
        return []


class Around(Protocol):
    """What the batches' making needs of the pipeline around it."""

    def open_group(self, group: Group) -> None:
        """Make what is in a group ready to be put into batches. May raise."""
        ...

    def leave_out(self, slot: Slot, seen: int) -> None:
        """A sample is bad, or was filtered out; `seen`: samples so far. May raise."""
        ...

    def hand_on(self, made: list[Delivery]) -> None:
        """Batches for the consumer, in their order."""
        ...

    def knock(self) -> None:
        """The feeder may find that it can go on."""
        ...


class Batching:
    """The feeder calls `add` and `end`; who has finished a group, `finished`; one thread `run` or `pull`."""

    def __init__(self, collector: Collector, builder: BatchMaker, around: Around) -> None:
        self.collector = collector
        self.settled = 0
        """Samples that are in batches, or were left out."""
        self._builder: BatchMaker = builder
        self._around = around
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

    def forget(self) -> None:
        """Let go of all that is in no batch yet. Once the threads have ended, or are given up."""
        for group in self.collector.pending():
            group.forget()
        self.collector.clear()
        self._builder = _NoBatches()

    def finished(self, group: Group) -> None:
        """A group has all that it waited for."""
        if self.collector.finished(group):
            self._gate.knock()

    @property
    def is_waiting(self) -> bool:
        """Whether who makes batches has nothing to make them of."""
        return self._gate.waiting

    @property
    def waiting(self) -> int:
        """Samples that wait for their batch to be made."""
        return self._builder.waiting

    def run(self) -> None:
        """Make batches, those of a group together, until all that was added is in one, or until released. Raises what a
        bad sample or a user's function does.
        """
        while self._gate.wait(self._something) and not self._all:
            while self.collector.ready():
                made: list[Delivery] = []
                try:
                    made.extend(self._build(self.collector.take()))
                finally:  # what came before a bad sample that ends the epoch is delivered
                    if made:
                        self._around.hand_on(made)
        last = self._builder.finish() if self._all else []
        if last:
            self._around.hand_on(last)

    def pull(self, waiting: Callable[[], AbstractContextManager[None]]) -> Generator[Delivery]:
        """The same, each batch made when it is asked for. `waiting`: entered while there is nothing to make one of."""
        while True:
            if not self.collector.ready():
                with waiting():
                    if not self._gate.wait(self._something, _LOOK_S):
                        return
                if self._all:
                    break
            yield from self._build(self.collector.take())
        yield from self._builder.finish()

    @property
    def _all(self) -> bool:
        return self._ended and not len(self.collector)

    def _something(self) -> bool:
        """Whether there is something to do. Before the wait the feeder is told, who may be waiting for just that."""
        if self.collector.ready() or self._all:
            return True
        self._around.knock()
        return False

    def _build(self, group: Group) -> Iterator[Delivery]:
        self._around.open_group(group)
        before = self._seen
        self._seen = before + group.count
        yield from self._builder.add(group, lambda slot, at: self._around.leave_out(slot, before + at + 1))
        self.settled = self._seen - self._builder.waiting
        self._around.knock()
