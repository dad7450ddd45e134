"""``/runs/ID``: how a run stands, what limits it, what it did, and the end of what it wrote."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.models.names import Reference
from headrace.tracking.curves import Curve
from headrace.tracking.logs import STREAMS
from headrace.tracking.summary import OURS, main_metric
from headrace.web.followers import Checkpoint
from headrace.web.index import RunRow
from headrace.web.pages.log import LineShown, shown_line
from headrace.web.told import Page, Told
from headrace.web.verdicts import VerdictShown, columns, shown_verdict
from headrace.web.world import World

TAIL = 12  # last lines of a run


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: an id. `since`, `until`: of the main metric, steps."""

    run: str
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A step of its life. `time`: RFC 3339."""

    state: str
    time: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Shown:
    """`left`: bytes that are not in the bucket yet; `main`: the curve of the main metric; `models`: those
    made of it, ``name@number``.
    """

    run: RunRow
    url: str
    verdict: VerdictShown
    transitions: tuple[Transition, ...]
    checkpoints: tuple[Checkpoint, ...]
    main: Curve | None
    metrics: int
    tail: tuple[LineShown, ...]
    tail_stream: str
    files: int
    bytes: int
    files_left: int
    left: int
    parent: dict[str, Any] | None
    problem: str | None = None
    age_s: float = 0.0
    models: tuple[str, ...] = ()


def view(world: World, asked: Asked) -> Told:
    """What is known of it now."""
    follower = world.followers.of(asked.run)
    run, state = follower.run, follower.view()
    measured = follower.measured()
    metrics = {name: one for name, one in measured.metrics.items() if not name.startswith(OURS)}
    main = main_metric(metrics)
    stream, tail = _tail(world, asked.run)
    lease, status = state.lease, state.status
    problem, age = follower.problem()
    verdict = shown_verdict(follower.verdict())
    curve = measured.curve(main, start=asked.since, stop=asked.until) if main is not None else None
    world.index.learn(asked.run, state.record.created, **columns(follower))
    shown = Shown(
        RunRow.of(state), run.url, verdict,
        tuple(Transition(one.state, one.time, one.attempt, one.reason) for one in follower.statuses()),
        tuple(follower.checkpoints()), curve, len(metrics), tail, stream,
        lease.files if lease is not None and not state.over else status.files, status.bytes,
        state.files_left, state.bytes_left or 0,
        dict(state.record.parent) if state.record.parent is not None else None, problem, age,
        tuple(map(str, made_of(world, asked.run))),
    )  # fmt: skip
    return Told(shown, f"headrace runs show {asked.run}", f"hr.run({asked.run!r}).look()")


def made_of(world: World, run: str) -> list[Reference]:
    """None, while the store does not answer: the rest of the page says so."""
    with suppress(HeadraceError):
        return world.made_of(run)
    return []


def _tail(world: World, name: str) -> tuple[str, tuple[LineShown, ...]]:
    """Of the stream that somebody would look at: errors of a run that failed, else what it says."""
    follower = world.followers.of(name)
    failed = follower.view().state in ("failed", "lost")
    for stream in sorted(STREAMS, key=lambda one: one != ("stderr" if failed else "stdout")):
        pages = follower.log(stream)
        count = pages.count()
        if count:
            return stream, tuple(map(shown_line, pages.lines(count - TAIL, count)))
    return "stdout", ()


PAGE = Page("/runs/{run}", "run", Asked, Shown, view, "How a run stands, and what limits it.")
