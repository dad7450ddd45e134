"""Where groups of samples come from, and what a source needs of the pipeline around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.loader.pipeline.batching import Batching, BatchMaker
from headrace.loader.pipeline.byte_window import Bounds, Room
from headrace.loader.pipeline.collector import Collector
from headrace.loader.pipeline.decode_effort import Effort
from headrace.loader.pipeline.slots import Group
from headrace.loader.pipeline.stats import Meter


class Pipe(Protocol):
    """The pipeline, as a source knows it. Any thread."""

    meter: Meter
    room: Room
    batching: Batching

    @property
    def closed(self) -> bool:
        """Whether nobody wants anything any more."""
        ...

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Run one more thread, which the pipeline waits for at its end."""
        ...

    def is_starving(self) -> bool:
        """Whether the consumer has no batch left; where it makes them itself, whether it waits."""
        ...


class Source(Protocol):
    """Plans groups, admits each to the byte window and adds it to the batching, in order; has it fetched and decoded,
    and says when it is finished. `threads` are its work, by name; the pipeline runs each once.
    """

    bounds: Bounds
    batches_ahead: bool
    """Whether batches are made before they are asked for, on a thread of their own: where that is more than to cut them
    out, which is not worth handing them over.
    """

    @property
    def threads(self) -> Sequence[tuple[str, Callable[[], None]]]: ...
    @property
    def undecoded(self) -> int:
        """How much waits for a decode thread."""
        ...

    def collector(self) -> Collector:
        """How groups come back into order."""
        ...

    def builder(self) -> BatchMaker:
        """What makes batches of them."""
        ...

    def open(self, group: Group) -> None:
        """Make a finished group ready to be put into batches, on the batcher's thread. Raises what ends the epoch."""
        ...

    def effort(self) -> Effort:
        """What its decode threads have spent so far. Any thread."""
        ...

    def close(self) -> None:
        """Cancel reads and let all threads go. Any thread, as often as one likes."""
        ...

    def forget(self) -> None:
        """Let go of what is under way. Once the threads have ended, or are given up."""
        ...


