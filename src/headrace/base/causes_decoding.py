"""Why decoded samples, or batches of them, are late: which kind of wait it is, and what is left of it if the advice is
followed. See `headrace.base.verdict`, which asks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headrace.base.causes import Action, Cause
from headrace.base.figures import STAGE, Figures
from headrace.base.units import format_bytes

_FULL: Final = 0.8
"""Share of the allowed cores from which on there is no more of them: the kernel counts in hundredths of a second."""
_LOCKED: Final = 0.5
"""Share of the times the interpreter's lock was asked for and late: it is somebody's most of the time."""
_BLOCKED: Final = 0.3
"""Share of a thread's time in which it neither computes nor waits for a core, while the lock is late."""
_MOSTLY_BLOCKED: Final = 0.5
"""The same, whatever the lock does."""
_QUEUED: Final = 0.25
"""Share of a thread's time that it waits for a core: then there are too few."""
_OTHERS: Final = 0.15
"""Share of the cores that the job may use which other programs compute with."""
_MORE: Final = 8.0
"""Times as many threads as there are, at most: what so many more bring cannot be told from here."""
_LIGHTER: Final = 0.5
"""Of the time that a decoder takes: what advice to do less may be hoped to leave."""
_UNLOCK = (
    "Or decode with a library that releases the GIL (Pillow, simplejpeg, OpenCV, NumPy): see `hr.decode`; or run "
    "several ranks."
)
_SMALLER = "Store samples smaller, or decoded (`headrace pack`); decode on the GPU; cache what decoding makes."


@dataclass(frozen=True, slots=True)
class Decoders:
    """The decode threads, and worker processes. `each`: those of one rank, of which `processes` are processes; `all`:
    of all ranks. The shares are of the time at work: `computing`, `queued` for a core, and `blocked`, which is the
    rest; `locked`: of the times the interpreter's lock was asked for, it was late.
    """

    each: float
    processes: float
    all: float
    busy: float
    computing: float
    queued: float
    locked: float

    @staticmethod
    def of(figures: Figures) -> Decoders | None:
        """None where the threads did not look at themselves."""
        busy, room = figures.sum("loader.decode_busy_s"), figures.sum("loader.decode_room_s")
        if not figures.sum("loader.lock_asked") or not busy or not room:
            return None
        return Decoders(
            figures.ratio("loader.decode_room_s", "loader.elapsed_s"),
            figures.ratio("loader.decode_workers_s", "loader.elapsed_s"),
            room / (figures.seconds or figures.sum("loader.elapsed_s") or 1.0),
            min(busy / room, 1.0),
            min(figures.sum("loader.decode_cpu_s") / busy, 1.0),
            min(figures.sum("loader.decode_queued_s") / busy, 1.0),
            figures.ratio("loader.lock_late", "loader.lock_asked"),
        )

    @property
    def blocked(self) -> float:
        return max(0.0, 1 - self.computing - self.queued)

    @property
    def knob(self) -> str:
        """Of `map`, what most of them are."""
        return "processes" if self.processes > self.each / 2 else "threads"

    @property
    def names(self) -> str:
        threads, processes = round(self.each - self.processes), round(self.processes)
        told = [f"{threads:,} decode threads"] if threads or not processes else []
        return " and ".join(told + ([f"{processes:,} worker processes"] if processes else []))

    @property
    def cores(self) -> float:
        """That they compute with."""
        return self.all * self.busy * self.computing

    @property
    def runnable(self) -> float:
        """How many of them compute, or would."""
        return self.all * self.busy * (self.computing + self.queued)


def decoding(figures: Figures) -> Cause:
    """Why decoded samples are late."""
    threads = Decoders.of(figures)
    if threads is None:
        return _by_cores(figures)
    allowed, used = figures.cores_allowed, figures.cores_used
    evidence = _told(figures, threads)
    if threads.blocked >= _BLOCKED and threads.locked >= _LOCKED:
        return _locked(threads, figures, evidence)
    if threads.blocked >= _MOSTLY_BLOCKED:
        return _waiting(threads, figures, evidence)
    full = used is not None and allowed is not None and used >= _FULL * allowed
    if full or threads.queued >= _QUEUED:
        others = figures.cores_of_others or 0.0
        if allowed and others >= _OTHERS * allowed:
            return _neighbours(threads, figures, evidence)
        return _no_cores(allowed or math.ceil(threads.cores), figures.cores, evidence)
    return _few(threads, figures, evidence)


def _told(figures: Figures, threads: Decoders) -> tuple[str, ...]:
    told = (
        f"{threads.names}, {threads.busy:.0%} busy: computing {threads.computing:.0%} of that, "
        f"waiting for a core {threads.queued:.0%}, standing still {threads.blocked:.0%}; the interpreter's lock was "
        f"late {threads.locked:.0%} of the times it was asked for"
    )
    stages = {
        name.removeprefix(STAGE).rpartition("/")[0]: seconds
        for name, seconds in figures.sums.items()
        if name.startswith(STAGE) and name.endswith("/busy_s")
    }
    if len(stages) < 2:
        return (told,)
    busy = figures.sum("loader.decode_busy_s")
    longest = sorted(stages.items(), key=lambda one: -one[1])[:3]
    return (told, "of decoding, " + ", ".join(f"{name} takes {seconds / busy:.0%}" for name, seconds in longest))


def _cores_for(runnable: float, figures: Figures) -> float:
    """Cores that so many threads would get, beside what others compute."""
    allowed, others = figures.cores_allowed, figures.cores_of_others or 0.0
    if allowed is None or runnable + others <= allowed:
        return runnable
    return min(runnable, max(allowed - others, allowed * runnable / (runnable + others)))


def _quicker(now: float, then: float) -> float:
    """What remains of the time when so many cores compute `then`, where `now` fewer do."""
    return min(1.0, now / then) if then > 0 else 1.0


def _locked(threads: Decoders, figures: Figures, evidence: tuple[str, ...]) -> Cause:
    """As many processes as there are cores, which is not many times as many as there are threads."""
    busy = threads.all * threads.busy
    wanted = busy if figures.cores_allowed is None else min(figures.cores_allowed, _MORE * busy)
    return _lock(evidence, figures.cores_allowed, _quicker(threads.cores, _cores_for(max(wanted, 1.0), figures)))


def _lock(evidence: tuple[str, ...], allowed: float | None, remains: float) -> Cause:
    statement = "Decoding is the limit: it holds Python's lock, so that one core does all."
    number = math.floor(allowed or 0)
    here = f", which is {number:,} here" if number else ""
    advice = f'Run it in worker processes: map(…, processes="auto"){here}. Up to {1 / remains:.1f} times as fast.'
    return Cause(
        "decode-bound", "gil", statement, evidence, (advice, _UNLOCK), remains, Action("processes", number)
    )  # fmt: skip


def _waiting(threads: Decoders, figures: Figures, evidence: tuple[str, ...]) -> Cause:
    """More threads wait side by side, until cores or the lock are what they wait for."""
    most = min(_MORE, 1 / max(threads.locked, 1 / _MORE))
    cores = _cores_for(threads.runnable * most, figures)
    times = max(2.0, min(most, cores / threads.runnable if threads.runnable else most))
    wanted = math.ceil(threads.each * times)
    advice = (
        f"Raise map({threads.knob}=…) from {threads.each:,.0f} to {wanted:,}: they wait side by side.",
        "Or spare what they wait for: a file, a lock, another service, a sleep.",
    )
    statement = "Decoding is the limit: its threads wait for something that is no core and no lock of Python's."
    return Cause("decode-bound", "waits", statement, evidence, advice, 1 / times, Action(threads.knob, wanted))


def _neighbours(threads: Decoders, figures: Figures, evidence: tuple[str, ...]) -> Cause:
    returned = threads.cores + (figures.cores_of_others or 0.0)
    most = min(threads.runnable, returned, figures.cores_allowed or threads.runnable)
    remains = _quicker(threads.cores, most)
    return _others(figures, evidence, remains)


def _others(figures: Figures, evidence: tuple[str, ...], remains: float) -> Cause:
    told = f"other programs compute with {figures.cores_of_others or 0.0:.1f} of the machine's {figures.cores} cores"
    statement = "Decoding is the limit: other processes take the CPU."
    advice = ("Run it where nothing else runs, or stop what else does.", _SMALLER)
    return Cause("decode-bound", "neighbours", statement, (*evidence, told), advice, remains, Action("alone"))


def _few(threads: Decoders, figures: Figures, evidence: tuple[str, ...]) -> Cause:
    allowed = figures.cores_allowed
    each = threads.computing + threads.queued
    most = _cores_for(max(allowed or 2 * threads.all, threads.all), figures)
    wanted = max(math.ceil(threads.each * most / max(threads.cores, 1e-9)), math.ceil(threads.each) + 1)
    wanted = min(wanted, math.ceil(_MORE * threads.each))
    remains = _quicker(threads.cores, min(most, threads.cores * wanted / threads.each / max(threads.busy, 0.1)))
    return _more(threads.each, wanted, allowed, evidence, remains if each else 1.0, threads.knob)


def _more(
    now: float, wanted: int, allowed: float | None, evidence: tuple[str, ...], remains: float, knob: str = "threads"
) -> Cause:
    advice = (
        f"Raise map({knob}=…) from {now:,.0f} to {wanted:,}, while there are cores"
        + (f": {allowed:g} may be used." if allowed else "."),
        "Decode with a library that releases the GIL (Pillow, simplejpeg, OpenCV); store samples smaller.",
    )
    statement = f"Decoding is the limit: too few {knob}."
    return Cause("decode-bound", "threads", statement, evidence, advice, remains, Action(knob, wanted))


def _no_cores(allowed: float, cores: int, evidence: tuple[str, ...]) -> Cause:
    if cores > allowed:
        statement = f"Decoding is the limit: the job may use {allowed:g} of {cores} cores, and uses them."
        return Cause(
            "decode-bound", "cores", statement, evidence, (f"Ask for more than {allowed:g} cores.", _SMALLER),
            allowed / cores, Action("cores", cores),
        )  # fmt: skip
    statement = "Decoding is the limit: all cores of the machine are busy."
    advice = (f"{_SMALLER} With half the CPU a sample it is twice as fast.", "Take a machine with more cores.")
    return Cause("decode-bound", "cpu", statement, evidence, advice, _LIGHTER, Action("lighten", _LIGHTER))


def _by_cores(figures: Figures) -> Cause:
    """From the cores alone: of threads that did not look at themselves, and of code that reads a mount."""
    threads = figures.ratio("loader.decode_room_s", "loader.elapsed_s")
    busy = figures.ratio("loader.decode_busy_s", "loader.decode_room_s")
    allowed, used = figures.cores_allowed, figures.cores_used
    evidence = (f"{threads:,.0f} decode threads, {busy:.0%} busy",)
    if allowed and used is not None and used >= _FULL * allowed:
        return _no_cores(allowed, figures.cores, evidence)
    if allowed and (figures.cores_of_others or 0.0) >= _OTHERS * allowed and (figures.mean("system/cpu") or 0.0) > 90:
        return _others(figures, evidence, 0.5)
    if used is not None and allowed and threads > 1 and used < 1.3 and allowed >= 2:
        return _lock(evidence, allowed, 1 / min(threads, allowed))
    wanted = max(math.ceil(allowed or 2 * threads), math.ceil(threads) + 1)
    return _more(threads, wanted, allowed, evidence, min(1.0, max(threads, 1.0) / (allowed or 2 * max(threads, 1.0))))


def batching(figures: Figures) -> Cause:
    """Why batches are late when their samples are here."""
    samples, size = figures.sum("loader.samples"), figures.sum("loader.bytes")
    mean = size / samples if samples else 0.0
    told = (f"{samples:,.0f} samples of {format_bytes(mean)}",)
    advice = (
        ('Return arrays of the final dtype and size from map; take batches on where="process" when your loop holds the '
        "GIL; read small records by columns (no function in between)."),
    )
    statement = "Batching is the limit: copying samples into one array."
    return Cause("decode-bound", "batching", statement, told, advice, 0.5)
