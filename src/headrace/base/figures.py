"""What a training loop and everything below it did in a stretch of time, as numbers by name: what a verdict is made of.

Counters (sums of what was added in the stretch; docs/reference/metrics.md has ``fetch.*`` and ``cache.*``):

======================== ======== =====================================================================================
name                     unit     what it counts
======================== ======== =====================================================================================
loader.epochs            epochs   begun
loader.batches           batches  handed to the loop
loader.samples           samples  in them
loader.bytes             bytes    fetched for them
loader.elapsed_s         seconds  of epochs under way
loader.wait_s            seconds  the loop waited for a batch, split by what it waited for:
loader.wait_store_s               bytes,
loader.wait_decode_s              map and filter,
loader.wait_batch_s               being put together
loader.first_wait_s      seconds  of ``wait_s``, before the first batch of an epoch, split likewise: ``first_store_s`` …
loader.own_s             seconds  the loop took itself, between two batches
loader.long_s            seconds  of ``own_s``, what steps took beyond the usual one that were half as long again
loader.stall_s           seconds  of ``long_s``, in steps in which the process wrote files
loader.stalls            steps    of that kind
loader.stall_bytes       bytes    written in them
loader.own_cpu_s         seconds  of ``own_s``, the loop's thread computed
loader.own_queued_s      seconds  of ``own_s``, it could run while no core was free
loader.uneven_s          seconds  of ``own_s``, it stood still beyond what it does in others of its steps
loader.asked             times    a batch was asked for
loader.raw_empty         times    of these, nothing waited to be decoded or batched
loader.ready_empty       times    of these, no batch was ready
loader.decode_busy_s     seconds  of decode threads and worker processes, at work
loader.decode_room_s     seconds  of decode threads and worker processes, in all
loader.decode_workers_s  seconds  of ``decode_room_s``, of worker processes
loader.decode_cpu_s      seconds  of ``decode_busy_s``, computing
loader.decode_queued_s   seconds  of ``decode_busy_s``, ready to run while no core was free
loader.lock_asked        times    decode threads gave the interpreter's lock away, to see when they have it again
loader.lock_late         times    of these, another thread computed with it meanwhile
loader.stage/*/busy_s    seconds  of decode threads in one stage (``map(decode)``); likewise ``cpu_s``, ``queued_s``
process.cpu_s            seconds  of CPU, by the processes that tell these figures
process.seconds          seconds  they were looked at
======================== ======== =====================================================================================

``mounts/*``: what a run's processes did on mounts, what those fetched meanwhile, and ``mounts/seconds``, for which
they were looked at.

Means of gauges: ``system/*`` and ``job/*`` of `headrace.tracking.samplers`, and ``fetch.concurrency`` (requests that
may be under way), ``fetch.connections`` (the most that the setting allows), ``process.cores`` (that it may use).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import frexp
from typing import Final

STAGE: Final = "loader.stage/"
"""Before the name of a stage and what of it is counted."""
FIRST_BYTE: Final = "fetch.first_byte."
"""Before the bound of a class of latencies in microseconds: how many answers began within it, and not within half."""
_SHORTEST_US: Final = 125
"""The first class of latencies; each is twice the one before. A local store answers within it."""
_PER_S: Final = 1e6 / _SHORTEST_US
_CLASSES: Final = 20
"""The last bound is a minute, the default deadline of a read."""
_BOUNDS: Final = tuple(_SHORTEST_US << number for number in range(_CLASSES))
LATENCIES: Final = tuple(f"{FIRST_BYTE}{bound}us" for bound in _BOUNDS)
"""Names of the counters, from short to long. The last holds all that is longer."""
_STRAGGLES: Final = 8
"""Times the median."""
_FEW: Final = 0.1
"""Share of the answers up to which they are a few."""


def latency_class(seconds: float) -> int:
    """The index in `LATENCIES` of an answer that began after so many seconds."""
    number = frexp(seconds * _PER_S)[1]
    return 0 if number < 0 else min(number, _CLASSES - 1)


@dataclass(frozen=True, slots=True)
class Latency:
    """How long answers took to begin, from their classes; seconds, as exact as the classes are (a factor of 2).

    `stragglers`: share of all waiting that was for a few answers, the slowest tenth at most, of more than eight times
    the median; `straggling`: their share of the answers; `straggler`: how long one takes, on average.
    """

    count: float = 0.0
    low: float = 0.0
    median: float = 0.0
    high: float = 0.0
    stragglers: float = 0.0
    straggling: float = 0.0
    straggler: float = 0.0

    @staticmethod
    def of(sums: Mapping[str, float]) -> Latency:
        """From counters by name; `low` and `high`: the 1st and the 99th percentile."""
        counts = [sums.get(name, 0.0) for name in LATENCIES]
        total = sum(counts)
        if not total:
            return Latency()
        reached = list(accumulate(counts))
        low, median, high = (
            next(at for at, count in enumerate(reached) if count >= share * total - 1e-9) for share in (0.01, 0.5, 0.99)
        )
        spent = [count * middle(at) for at, count in enumerate(counts)]
        slow = median + _STRAGGLES.bit_length() - 1
        while sum(counts[slow:]) > _FEW * total:  # more have waited in a queue, at the store or in this process
            slow += 1
        late, many = sum(spent[slow:]), sum(counts[slow:])
        return Latency(
            total, middle(low), middle(median), middle(high), late / sum(spent), many / total, late / max(many, 1)
        )


def middle(number: int) -> float:
    """Seconds: the middle of a class of latencies."""
    return _BOUNDS[number] * (0.75 if number else 0.5) * 1e-6


@dataclass(frozen=True, slots=True)
class Figures:
    """`sums`: what was added to counters in the stretch; `means`: of gauges over it; `seconds`: its length, by the
    clock on the wall. What is missing is not known.

    `ranks`: the same of each rank, where several have a loop; `node`: of one rank, the lowest on its machine.
    """

    sums: Mapping[str, float] = field(default_factory=dict[str, float])
    means: Mapping[str, float] = field(default_factory=dict[str, float])
    seconds: float = 0.0
    ranks: Mapping[int, Figures] = field(default_factory=dict[int, "Figures"])
    node: int = 0

    def sum(self, name: str) -> float:
        """A counter, 0 if it was never told."""
        return self.sums.get(name, 0.0)

    def mean(self, name: str) -> float | None:
        """A gauge, None if it was never told."""
        return self.means.get(name)

    def ratio(self, part: str, whole: str) -> float:
        """One counter for each of another; 0 where there are none."""
        return self.sum(part) / self.sum(whole) if self.sum(whole) else 0.0

    @property
    def latency(self) -> Latency:
        """Of the store's answers."""
        return Latency.of(self.sums)

    @property
    def cores_allowed(self) -> float | None:
        """That the job may use."""
        known = self.mean("system/cpus")
        return self.mean("process.cores") if known is None else known

    @property
    def cores_used(self) -> float | None:
        """By the processes of the job, on average."""
        own, told = self.cores_of_process, self.mean("job/cpu")
        known = [one for one in (own, None if told is None else told / 100) if one is not None]
        return max(known, default=None)

    @property
    def cores_of_process(self) -> float | None:
        """The same, as the processes tell of themselves."""
        return self.sum("process.cpu_s") / self.seconds if self.seconds and "process.cpu_s" in self.sums else None

    @property
    def cores_of_others(self) -> float | None:
        """Of the machine, busy with what is not of the job."""
        busy, own = self.mean("system/cpu"), self.cores_used
        return None if busy is None or own is None or not self.cores else max(0.0, self.cores * busy / 100 - own)

    @property
    def cores(self) -> int:
        """Of the machine; 0: not known."""
        return sum(name.startswith("system/cpu/") for name in self.means)

    @property
    def gpu(self) -> float | None:
        """Mean utilisation of the GPUs, 0 to 1."""
        found = [v for k, v in self.means.items() if k.startswith("system/gpu/") and k.endswith("/utilization")]
        return sum(found) / len(found) / 100 if found else None
