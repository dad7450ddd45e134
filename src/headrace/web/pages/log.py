"""``/runs/ID/log``: what a run has written: any line at once, live, searched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from headrace.base.words import plain
from headrace.tracking.logs import STREAMS
from headrace.tracking.pages import LogPages, Numbered
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World

Stream: TypeAlias = Literal["stdout", "stderr", "headrace"]
COUNT: Final = 200  # lines on a page
_MOST: Final = 2000  # lines on a page, whatever is asked for
_FOUND: Final = 100  # lines that a search shows
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""What moves a terminal's cursor, colours, and sets its title: ECMA-48, 5.3 and 8.3, and xterm's OSC."""
_ERROR: Final = re.compile(
    r"^\s*(Traceback \(most recent call last\)|[\w.]*(Error|Exception)\b|.*\b(CUDA error|out of memory)\b)"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """`start`: the number of the first line, from 0; -1: so that the last one is shown. `q`: lines that hold it, from
    `start` on, instead.
    """

    run: str
    stream: Stream = "stdout"
    start: int = -1
    count: int = COUNT
    q: str = ""


@dataclass(frozen=True, slots=True)
class LineShown:
    """`time`: RFC 3339; `error`: whether it looks like the beginning of one; `over`: False, it may still change."""

    number: int
    time: str
    text: str
    error: bool
    over: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """`total`: lines there are so far; `counts`: of every stream."""

    run: RunRow
    stream: str
    total: int
    counts: dict[str, int]
    start: int
    lines: tuple[LineShown, ...]
    first_error: LineShown | None
    q: str
    over: bool
    problem: str | None = None
    age_s: float = 0.0


def view(world: World, asked: Asked) -> Told:
    """A stretch of it."""
    follower = world.followers.of(asked.run)
    state = follower.view()
    counts = {stream: follower.log(stream).count() for stream in STREAMS}
    pages, total, count = follower.log(asked.stream), counts[asked.stream], min(max(1, asked.count), _MOST)
    start = max(0, total - count) if asked.start < 0 else asked.start
    if asked.q:
        start = max(0, asked.start)
        found = list(pages.search(asked.q, start=start, most=_FOUND))
    else:
        found = pages.lines(start, start + count)
    problem, age = follower.problem()
    shown = Shown(
        RunRow.of(state), asked.stream, total, counts, start, tuple(map(shown_line, found)), _first_error(pages, total),
        asked.q, state.over, problem, age,
    )  # fmt: skip
    python = f"hr.run({asked.run!r}).logs({asked.stream!r})"
    return Told(shown, f"headrace logs {asked.run} --stream {asked.stream}", python)


def shown_line(one: Numbered) -> LineShown:
    """As a page may show it: without what would move a terminal's cursor."""
    text = plain(_ESCAPES.sub("", one.line.text))
    moment = datetime.fromtimestamp(one.line.time_us / 1e6, UTC).isoformat(timespec="milliseconds")
    return LineShown(one.number, moment.replace("+00:00", "Z"), text, _ERROR.match(text) is not None, one.line.over)


def _first_error(pages: LogPages, total: int) -> LineShown | None:
    """The first among the last lines: what ended the run stands there."""
    lines = (shown_line(one) for one in pages.lines(total - COUNT, total))
    return next((line for line in lines if line.error), None)


PAGE = Page("/runs/{run}/log", "log", Asked, Shown, view, "Lines of what a run has written.")
