"""What limits a loop of many ranks that wait for each other at each step: one that is slower, or each in turn.

A rank that waits in a collective looks like one whose step is long. So the straggler is the rank that needs most for
a step as far as that is known: its waits for data, its writing, and what the thread of its loop computes. The rest of a
step it stands still: for others, for a device, or for what else is not recorded.

Pure functions over the figures of ranks; see `headrace.base.verdict`, which asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from headrace.base.causes import Cause
from headrace.base.figures import Figures
from headrace.base.loop_time import FEWEST, HEALTHY, MOST, LoopTime
from headrace.base.units import format_bytes, format_seconds

STRAGGLER: Final = "straggler"
COLLECTIVE: Final = "collective-bound"
OF_RANKS: Final = (STRAGGLER, COLLECTIVE)

_TOGETHER: Final = 0.25
"""By how much a step's length may differ between ranks that wait for each other at each step."""
_QUIETER: Final = 0.6
"""Share of what the others stand still, at most, that a rank does which the others wait for because it computes."""
_BUSIER: Final = 1.5
"""Times what the others compute: then that is the matter, whether there are cores or not."""
_TURNS: Final = 0.2
"""Share of a step that every rank stands still, and one of them in some steps more than in others."""
_NAMED: Final = 8
"""Ranks that a sentence names; of more it says how many."""
_CORES: Final = 0.2
"""Cores by which processes differ so that it is told."""
_NOT_KNOWN: Final = (
    "a device takes as long in every step, so this is waiting for others, or for a network that is slow now and then; "
    "which rank was the last in which step is not recorded"
)
_PARTS: Final = {
    "store": "waits for the store", "decode": "waits for decoding", "batch": "waits for batches to be put together",
    "writing": "writes its checkpoints", "computing": "computes",
    "queued": "waits for a core",
}  # fmt: skip
_OF_THREAD: Final = ("computing", "queued")
_MACHINE: Final = {
    "system/cpu": "CPUs busy", "system/cpus": "cores that may be used", "system/memory_available": "memory left"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankTime:
    """What one rank needs for a step, in seconds: waits by what it waited for, `writing` files; of the thread of its
    loop `computing`, `queued` for a core, and `still`, the rest, in which that thread slept. `uneven`: how much of
    `still` is beyond what it stands still in its other steps. `first`: waits for the first batches of epochs, which are
    beside. `node`: the lowest rank on its machine; `steps`: how many.
    """

    rank: int
    node: int
    steps: float
    store: float
    decode: float
    batch: float
    writing: float
    computing: float
    queued: float
    still: float
    uneven: float
    first: float

    @staticmethod
    def of(rank: int, figures: Figures) -> RankTime | None:
        """None where there is too little."""
        time, steps = LoopTime.of(figures), figures.sum("loader.batches") - figures.sum("loader.epochs")
        if steps < FEWEST or time.total <= 0:
            return None
        own = max(0.0, time.total - time.wait - time.stall)
        computing = min(own, figures.sum("loader.own_cpu_s"))
        queued = min(own - computing, figures.sum("loader.own_queued_s"))
        still = own - computing - queued
        uneven = min(still, figures.sum("loader.uneven_s"))
        first = figures.sum("loader.wait_s") + figures.sum("loader.own_s") - time.total
        parts = (time.store, time.decode, time.batch, time.stall, computing, queued, still, uneven, first)
        return RankTime(rank, figures.node, steps, *(one / steps for one in parts))

    @property
    def late(self) -> float:
        return self.store + self.decode + self.batch + self.writing

    @property
    def need(self) -> float:
        return self.late + self.computing + self.queued

    @property
    def whole(self) -> float:
        return self.need + self.still

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, to the microsecond."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Held:
    """Why ranks wait for each other. `ranks`: those that are waited for, the slowest first; none: all, in turn.

    `twice`: they need at least twice as long as any other.
    """

    cause: Cause
    gain: float
    ranks: tuple[int, ...] = ()
    twice: bool = False


def rank_times(figures: Figures) -> tuple[RankTime, ...]:
    """Of all ranks that have a loop and did enough; none of a job of one rank."""
    found = (RankTime.of(rank, figures.ranks[rank]) for rank in sorted(figures.ranks))
    return tuple(one for one in found if one is not None)


def slowest(times: Sequence[RankTime], figures: Figures) -> Held | None:
    """The ranks that all others wait for at each step, half of all at most. `figures`: of all ranks."""
    shown = _is_recorded(times) and any(one.still >= HEALTHY * one.whole for one in times)
    need: Callable[[RankTime], float] = (lambda one: one.need) if shown else (lambda one: one.late)
    ordered = sorted(times, key=need, reverse=True)
    gaps = {at: need(ordered[at - 1]) - need(ordered[at]) for at in range(1, len(ordered) // 2 + 1)}
    for count, gap in sorted(gaps.items(), key=lambda one: -one[1]):
        slow, others = ordered[:count], ordered[count:]
        part = _part(slow, others, gap, shown=shown)
        if part is None:
            continue
        who, sure = _who(slow, times), _surely(slow, others, part, shown=shown)
        told = (*_told_of(slow, others), sure, *_told_of_machines(slow, others, figures))
        cause = Cause(STRAGGLER, part, _stated(who, slow, others, part), told, _advised(who, part))
        ranks = tuple(one.rank for one in slow)
        return Held(cause, _gain(_middle(slow, "whole"), gap), ranks, gap >= need(slow[-1]) / 2)
    return None


def _part(slow: Sequence[RankTime], others: Sequence[RankTime], gap: float, *, shown: bool) -> str | None:
    """What these need more of than the others, by so much that those wait for them; None: they do not."""
    least = HEALTHY * _middle(slow, "whole")
    if gap < least or not _is_together(slow, others):
        return None
    beyond = {one: _beyond(slow, others, one) for one in _PARTS if shown or one not in _OF_THREAD}
    part = max(beyond, key=beyond.__getitem__)
    if part == "queued" and _middle(slow, "computing") > _BUSIER * _middle(others, "computing"):
        part = "computing"  # who computes longer waits longer for a core too
    if beyond[part] < least:  # each is slow for a cause of its own
        return None
    if part in _OF_THREAD and _middle(slow, "still") > _QUIETER * _middle(others, "still"):
        return None
    return part


def in_turn(times: Sequence[RankTime]) -> Held | None:
    """Whether every rank stands still for others in some steps, and is waited for in others."""
    if len(times) < 2:
        return None
    whole = _middle(times, "whole")
    still, uneven = min(one.still for one in times), max(one.uneven for one in times)
    part = min(still, uneven)
    shortest, longest = (min(times, key=_all), max(times, key=_all))
    if part < _TURNS * whole or not _is_together([shortest], [longest]):
        return None
    most = max(times, key=lambda one: one.uneven)
    stand = f"each of {len(times)} ranks stands still {format_seconds(still)} or longer"
    least = f"rank {most.rank} stands still {format_seconds(uneven)} a step longer than where it does least"
    told = (
        f"a step takes {format_seconds(whole)}, in which {stand}: {_listed([one.still for one in times])}",
        f"{least}, in steps of the same length: who is waited for changes",
        _NOT_KNOWN,
    )
    advice = (
        "Make steps alike: samples of one size in the batches of a step, the same work on all ranks.",
        "Where data are late now and then, a larger prefetch of the loader evens it out.",
        "Let ranks meet less often: accumulate gradients over several batches (DistributedDataParallel.no_sync).",
    )
    statement = "The ranks wait for each other, and none of them is always the slowest."
    return Held(Cause(COLLECTIVE, "turns", statement, told, advice), _gain(whole, part))


def told_of_steps(times: Sequence[RankTime]) -> tuple[str, ...]:
    """What is worth knowing where all ranks stand still alike."""
    if not _is_recorded(times) or min(one.still for one in times) < _TURNS * _middle(times, "whole"):
        return ()
    share = _middle(times, "still") / _middle(times, "whole")
    who = f"on all {len(times)} ranks alike the loop's thread sleeps in its steps, {share:.0%} of the time"
    return (f"{who}: for its device, for communication or for others; which of these is not recorded",)


def _middle(times: Sequence[RankTime], name: str) -> float:
    return median(getattr(one, name) for one in times)


def _is_recorded(times: Sequence[RankTime]) -> bool:
    """Whether it is known what threads computed: in older records it is not."""
    return any(one.computing > 0 for one in times)


def _all(time: RankTime) -> float:
    return time.whole + time.first


def _gain(whole: float, part: float) -> float:
    return min(MOST, whole / max(whole - part, whole / MOST))


def _beyond(slow: Sequence[RankTime], others: Sequence[RankTime], part: str) -> float:
    """By how much each of them needs more of it than the others."""
    return min(getattr(one, part) for one in slow) - _middle(others, part)


def _is_together(some: Sequence[RankTime], others: Sequence[RankTime]) -> bool:
    """Whether a step takes as long on the ones as on the others, which it does if they wait for each other."""
    one, other = (median(_all(time) for time in times) for times in (some, others))
    return abs(one - other) <= _TOGETHER * max(one, other)


# in words


def _who(slow: Sequence[RankTime], times: Sequence[RankTime]) -> str:
    ranks = sorted(one.rank for one in slow)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    nodes = {one.node for one in slow}
    alone = len(nodes) == 1 and all(one.rank in ranks for one in times if one.node in nodes)
    return f"ranks {', '.join(str(one) for one in ranks[:_NAMED])}{more}{' (one machine)' if alone else ''}"


def _stated(who: str, slow: Sequence[RankTime], others: Sequence[RankTime], part: str) -> str:
    much, usual = (format_seconds(_middle(some, part)) for some in (slow, others))
    what = f"is slow: it {_PARTS[part]}" if len(slow) == 1 else f"are slow: each {_PARTS[part]}"
    alone = len(others) == 1
    rest, wait = (f"rank {others[0].rank}", "that one waits") if alone else ("the others", "they wait")
    it = "it" if len(slow) == 1 else "them"
    return f"{who.capitalize()} {what} {much} a step ({rest}: {usual}), and {wait} for {it}."


def _told_of(slow: Sequence[RankTime], others: Sequence[RankTime]) -> tuple[str, ...]:
    rest = f"rank {others[0].rank}" if len(others) == 1 else f"the other {len(others)} ranks, at the median"
    named = [(f"rank {one.rank}", [one]) for one in slow[:_NAMED]]
    return tuple(f"{who}: {_steps(some)}" for who, some in (*named, (rest, others)))


def _steps(times: Sequence[RankTime]) -> str:
    words = {"store": "store", "decode": "decoding", "batch": "batching", "writing": "writing",
             "computing": "computing", "queued": "waiting for a core", "still": "standing still"}  # fmt: skip
    parts = ((word, _middle(times, part)) for part, word in words.items())
    told = ", ".join(f"{word} {format_seconds(seconds)}" for word, seconds in parts if seconds > 0)
    return f"a step takes {format_seconds(_middle(times, 'whole'))}: {told}"


def _told_of_machines(slow: Sequence[RankTime], others: Sequence[RankTime], figures: Figures) -> tuple[str, ...]:
    """Of theirs and of the others', where they differ in what tells something."""
    ours = [figures.ranks[one] for one in sorted({one.node for one in slow}) if one in figures.ranks]
    theirs = [figures.ranks[one] for one in sorted({one.node for one in others}) if one in figures.ranks]
    told: list[str] = []
    used = [[one for rank in some if (one := figures.ranks[rank.rank].cores_of_process) is not None]
            for some in (slow, others)]  # fmt: skip
    if all(used) and abs(median(used[0]) - median(used[1])) >= _CORES:
        told.append(f"its process keeps {median(used[0]):.1f} cores busy, the others' {median(used[1]):.1f}")
    for name, words in _MACHINE.items():
        here, there = ([one.means[name] for one in some if name in one.means] for some in (ours, theirs))
        if here and there and {one.node for one in slow} != {one.node for one in others}:
            told.append(
                f"on its machine {words} {_amount(name, median(here))}, elsewhere {_amount(name, median(there))}"
            )
    return tuple(told)


def _amount(name: str, value: float) -> str:
    return f"{value:.0f}%" if name == "system/cpu" else f"{value:g}" if name == "system/cpus" else format_bytes(value)


def _surely(slow: Sequence[RankTime], others: Sequence[RankTime], part: str, *, shown: bool) -> str:
    if not shown:
        longer = format_seconds(max(0.0, _own(others) - _own(slow)))
        unseen = "who waits in a step is not seen: no thread sleeps, or it was not recorded"
        return f"{unseen}; elsewhere a step without its waits takes {longer} longer"
    if part in _OF_THREAD:
        return "computing is what the loops' own threads do; what a device computes does not show in it"
    longer = format_seconds(max(0.0, _middle(others, "still") - _middle(slow, "still")))
    return f"elsewhere the loop's thread sleeps {longer} longer in a step: for that, unless it is for its device"


def _listed(seconds: Sequence[float]) -> str:
    more = ", …" if len(seconds) > _NAMED else ""
    return ", ".join(format_seconds(one) for one in seconds[:_NAMED]) + more


def _own(times: Sequence[RankTime]) -> float:
    return median(one.computing + one.queued + one.still for one in times)


def _advised(who: str, part: str) -> tuple[str, ...]:
    if part == "computing":
        only = f"Look for work that only {who} does (evaluation, logging, saving)"
        return (
            f"{only}, and for larger samples: shuffle, or batch by size.",
            "Look for other programs on its cores, fewer cores, or a slower processor; try it without that machine.",
        )
    if part == "queued":
        return (f"Free the cores that {who} computes on: other programs are on them, or more threads than cores.",)
    if part == "writing":
        return ()
    where = "its way to the store, its settings and its cache" if part == "store" else (
        "its cores, other programs on them, and the size of its samples"
    )  # fmt: skip
    return (f"Look at what differs for {who}: {where}. The others do the same quicker.",)
