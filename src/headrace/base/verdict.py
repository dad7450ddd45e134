"""What limits a training loop, from its figures: a class, the evidence, what to change, and the gain to expect.

Pure functions over `headrace.base.figures.Figures`. Docs: docs/guides/why.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.base.cards import card
from headrace.base.causes import Action, Cause, fetching
from headrace.base.causes_decoding import batching, decoding
from headrace.base.figures import Figures
from headrace.base.loop_time import FEWEST, HEALTHY, LoopTime
from headrace.base.ranks import Held, RankTime, in_turn, rank_times, slowest, told_of_steps
from headrace.base.units import format_bytes, format_seconds

STORE: Final = "store-bound"
DECODE: Final = "decode-bound"
REQUESTS: Final = "request-bound"
WRITES: Final = "write-bound"
CONSUMER: Final = "consumer-bound"
UNKNOWN: Final = "not enough data"
FAILED: Final = "failed"
CLASSES: Final = (STORE, DECODE, REQUESTS, WRITES, CONSUMER)
"""Of a loop; `headrace.base.ranks.OF_RANKS`: of several that wait for each other."""

_SURE = 10.0
"""A gain beyond is beyond what the figures can tell."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`bound`: one of `CLASSES` or `OF_RANKS`, `UNKNOWN` or `FAILED`; `cause`: which kind of it, one word;
    `statement`: both in a sentence.

    `evidence`, `advice`: sentences. `gain`: by how much the loop would be faster at most, as a factor; 1: not at all.
    """

    bound: str
    cause: str
    statement: str
    evidence: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    gain: float = 1.0
    action: Action | None = None
    """The first advice as a value, of which `gain` is told."""
    ranks: tuple[RankTime, ...] = ()
    """What each rank needs for a step, where there are several."""

    @property
    def gain_text(self) -> str:
        """For people."""
        if self.gain >= _SURE:
            return f"more than {_SURE:.0f} times as fast, until something else is the limit"
        return f"up to {self.gain:.2f} times as fast"

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "class": self.bound,
            "cause": self.cause,
            "statement": self.statement,
            "evidence": list(self.evidence),
            "advice": list(self.advice),
            "gain": round(self.gain, 3),
            "action": None if self.action is None else {"name": self.action.name, "value": self.action.value},
            "ranks": [one.as_dict() for one in self.ranks],
        }

    def _repr_html_(self) -> str:
        rows = {"to gain": self.gain_text if self.gain > 1.01 else None, "evidence": "; ".join(self.evidence) or None}
        return card(f"{self.bound}: {self.statement}", rows, lines=self.advice)

    def __str__(self) -> str:
        gain = (f"To gain: {self.gain_text}.",) if self.gain > 1.01 else ()
        text = " ".join((self.statement, *self.advice, *gain))
        return f"{text} Evidence: {'; '.join(self.evidence)}." if self.evidence else text


def judge(figures: Figures) -> Verdict:
    """The verdict. Any thread; raises nothing.

    Of several ranks it is that of all their loops together, unless waiting for one of them, or for each in turn, is
    more than that.
    """
    times, together = rank_times(figures), _of_loops(figures)
    verdict = replace(together, ranks=times)
    if together.bound == UNKNOWN or len(times) < 2:
        return together
    slow, turns = slowest(times, figures), in_turn(times)
    if slow is not None and (slow.twice or slow.gain >= together.gain) and (turns is None or slow.gain >= turns.gain):
        return _held(verdict, slow, figures.ranks[slow.ranks[0]])
    if turns is not None and turns.gain > together.gain:
        return _held(verdict, turns, figures)
    more = slow.cause.evidence if slow is not None else told_of_steps(times) if together.bound == CONSUMER else ()
    return replace(verdict, evidence=(*verdict.evidence, *more))


_CAUSES: Final[dict[str, Callable[[Figures], Cause]]] = {"store": fetching, "decode": decoding, "batch": batching}


def _held(together: Verdict, held: Held, figures: Figures) -> Verdict:
    """`figures`: of the rank that is waited for; of all of them, if they wait in turn."""
    cause, evidence, advice = held.cause, _evidence(figures, LoopTime.of(figures)), ()
    if cause.name == "writing":
        more = _writing(figures, LoopTime.of(figures), evidence)
        evidence, advice = more.evidence, more.advice
    elif cause.name in _CAUSES:
        more = _CAUSES[cause.name](figures)
        evidence, advice = (*evidence, *more.evidence), more.advice
    evidence, advice = (*cause.evidence, *evidence), (*cause.advice, *advice)
    return Verdict(cause.bound, cause.name, cause.statement, evidence, advice, held.gain, ranks=together.ranks)


def _of_loops(figures: Figures) -> Verdict:
    """All loops together, as one."""
    if not figures.sum("loader.batches") and figures.sum("mounts/seconds"):
        return _of_mounts(figures)
    enough = figures.sum("loader.batches") - figures.sum("loader.epochs") >= FEWEST
    time = LoopTime.of(figures)
    if not enough or time.total <= 0:
        return _nothing(figures)
    evidence = _evidence(figures, time)
    if max(time.wait, time.stall) < HEALTHY * time.total:
        return _healthy(figures, evidence)
    if time.stall >= max(time.store, time.decode, time.batch):
        return _writing(figures, time, evidence)
    parts = zip((time.store, time.decode, time.batch), _CAUSES.values(), strict=True)
    part, cause_of = max(parts, key=lambda one: one[0])
    cause = cause_of(figures)
    busy = figures.ratio("loader.decode_busy_s", "loader.decode_room_s")
    floor = min(busy, 1.0) if cause_of is fetching else 0.0
    return Verdict(
        cause.bound, cause.name, cause.statement, (*evidence, *cause.evidence), cause.advice,
        time.gain(part, cause, floor), cause.action,
    )  # fmt: skip


def with_end(verdict: Verdict, figures: Figures, how: str) -> Verdict:
    """What is said of a run that did not finish, as `how` says. Before its first batch there is nothing to judge: what
    it had was its start. Any thread.
    """
    by_loader = any(name.startswith(("loader.", "fetch.")) for name in figures.sums)
    by_mounts = verdict.bound != UNKNOWN and not by_loader  # of its own: mounts of others may be here
    if figures.sum("loader.batches") or by_mounts:
        return replace(verdict, evidence=(f"the run did not finish: {how}", *verdict.evidence))
    advice = ("`headrace logs RUN` shows all that it wrote.",)
    return Verdict(FAILED, "start", f"It did not get to its first batch: {how}.", (), advice)


def _nothing(figures: Figures) -> Verdict:
    batches = figures.sum("loader.batches")
    if not batches:
        hint = "nothing was read through headrace's loader, or it has not told of it yet."
        return Verdict(UNKNOWN, "nothing", "Nothing delivered yet: no verdict.", (), (f"No step was seen: {hint}",))
    return Verdict(UNKNOWN, "few", f"{batches:,.0f} batches are too few for a verdict.")


def _healthy(figures: Figures, evidence: tuple[str, ...]) -> Verdict:
    gpu = figures.gpu
    advice = ["Nothing to gain from the data side: make the step itself faster, or take a faster device."]
    if gpu is not None and gpu < 0.5:
        advice = [(f"The data waits for the step, yet the GPU is busy only {gpu:.0%} of the time: look at the step for "
                  "work on the CPU, transfers, and waits for other ranks.")]  # fmt: skip
    return Verdict(CONSUMER, "step", "Healthy: the training step is the limit.", evidence, tuple(advice))


def _writing(figures: Figures, time: LoopTime, evidence: tuple[str, ...]) -> Verdict:
    stalls, size = figures.sum("loader.stalls"), figures.sum("loader.stall_bytes")
    each = f"{format_seconds(time.stall / max(stalls, 1))} and {format_bytes(size / max(stalls, 1))} each"
    told = f"{stalls:,.0f} steps wrote files and took longer than usual by {each}"
    cause = Cause(
        WRITES,
        "checkpoints",
        "Writing is the limit: the loop stands still while it writes its checkpoints.",
        (*evidence, told),
        (
            ("Write checkpoints from another thread or process (torch.distributed.checkpoint.async_save, orbax's "
            "AsyncCheckpointer), into HEADRACE_OUTPUTS on a fast local disk: headrace sends them meanwhile."),
            "Or write them less often.",
        ),
        action=Action("aside"),
        pause=True,
    )
    gain = time.gain(time.stall, cause, time.stall / time.total)  # it takes as long as before, beside the loop
    return Verdict(cause.bound, cause.name, cause.statement, cause.evidence, cause.advice, gain, cause.action)


def _evidence(figures: Figures, time: LoopTime) -> tuple[str, ...]:
    """What is worth knowing in any case."""
    own = figures.sum("loader.own_s")
    parts = (
        f"store {format_seconds(time.store)}, decoding {format_seconds(time.decode)}, "
        f"batching {format_seconds(time.batch)}"
    )
    told = [
        (f"the loop waited {time.wait / time.total:.0%} of the time ({format_seconds(time.wait)}: {parts}) and took "
        f"{format_seconds(own)} itself")
    ]
    if figures.sum("loader.asked"):
        raw, ready = (figures.ratio(f"loader.{one}_empty", "loader.asked") for one in ("raw", "ready"))
        told.append(f"raw queue empty {raw:.0%}, ready queue empty {ready:.0%} of the times asked")
    if time.first > HEALTHY * (time.total + time.first):
        epochs = figures.sum("loader.epochs")
        told.append(f"{format_seconds(time.first)} before the first batches of {epochs:,.0f} epochs")
    allowed, used = figures.cores_allowed, figures.cores_used
    if allowed and used is not None:
        of = f" of {figures.cores}" if figures.cores > allowed else ""
        told.append(f"{used:.1f} cores busy; {allowed:g}{of} cores may be used")
    if figures.gpu is not None:
        told.append(f"GPUs busy {figures.gpu:.0%} of the time")
    return tuple(told)


# Code that reads files of a mount by itself

_MOUNTS = "mounts/"
_QUIET_S = 1.0
"""Time below which figures of a mount say nothing yet."""
_STILL = 0.1
"""Share of the time that reads may stand still: some of them nobody waits for."""
_FULL = 0.8
"""Share of a GPU's time, or of the cores, from which on it is what limits."""


def _of_mounts(figures: Figures) -> Verdict:
    """Without a step clock: when its reads stood still, what its processes computed, and what the mounts fetched."""
    sums = {name.removeprefix(_MOUNTS): value for name, value in figures.sums.items() if name.startswith(_MOUNTS)}
    seconds = sums["seconds"]
    mounts = Figures(sums, figures.means, seconds)
    opened = mounts.sum("mount.opened")
    if seconds < _QUIET_S or not opened + mounts.sum("fetch.requests"):
        return Verdict(UNKNOWN, "nothing", "No step was seen, and nothing was read of a mount: no verdict.")
    waited = min(mounts.sum("mount.waited_s") / seconds, 1.0)
    allowed, used, gpu = figures.cores_allowed, figures.cores_used, figures.gpu
    evidence = [
        f"its reads of mounts stood still {waited:.0%} of {format_seconds(seconds)}; {opened:,.0f} files were opened"
    ]
    if allowed and used is not None:
        evidence.append(f"{used:.1f} cores busy; {allowed:g} may be used")
    if gpu is not None:
        evidence.append(f"GPUs busy {gpu:.0%} of the time")
    told = tuple(evidence)
    if gpu is not None and gpu >= _FULL:
        return _healthy(figures, told)
    if used is not None and allowed and used >= _FULL * allowed and used > waited * allowed:
        statement = "Computing is the limit, decoding if it is not the step: the CPU that the job may use is busy."
        cause = decoding(figures)
        gain = 1 / cause.remains if cause.remains else 1.0
        return Verdict(DECODE, "cpu", statement, told, cause.advice, gain, cause.action)
    if waited >= _STILL:
        cause = fetching(mounts)
        share = LoopTime(waited * seconds, 0.0, 0.0, 0.0, seconds, 0.0)
        more = "Read with more workers, or ahead; headrace's loader does it for you."
        gain = share.gain(share.store, replace(cause, pause=True))
        advice = (*cause.advice, more)
        return Verdict(cause.bound, cause.name, cause.statement, (*told, *cause.evidence), advice, gain, cause.action)
    return _healthy(figures, told)
