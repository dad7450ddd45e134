"""What limits a run, as its metrics in the bucket tell: what `headrace why` says, and the page."""

from __future__ import annotations

from headrace.base.figures import Figures
from headrace.base.verdict import Verdict, judge, with_end
from headrace.store.protocol import Store
from headrace.tracking.arrow import Table
from headrace.tracking.ending import LOOKED_AT, ending
from headrace.tracking.figures import figures_of
from headrace.tracking.logs import LogReader
from headrace.tracking.record import Status
from headrace.tracking.runs import Run, RunView


def judged(
    run: Run,
    view: RunView,
    points: Table,
    *,
    last_s: float | None = None,
    rank: int | None = None,
    span: tuple[int, int] | None = None,
) -> Verdict:
    """The verdict on a run, or on a stretch of it. Any thread.

    Args:
        run: which; asked for the end of its log, where it did not finish.
        view: how it stands.
        points: its metrics, those of `headrace.tracking.figures.NAMES` at least.
        last_s: of the last seconds only.
        rank: of one rank only.
        span: of these times only, [first, last) in microseconds since the epoch.

    Raises:
        Any store error, CorruptError, UnsupportedError: of its log.
    """
    figures = figures_of(points, last_s=last_s, rank=rank, span=span)
    verdict = judge(figures)
    if span is not None or not view.over:
        return verdict
    return at_its_end(verdict, figures, view.ended, run.store, run.prefix)


def at_its_end(verdict: Verdict, figures: Figures, status: Status, store: Store, prefix: str) -> Verdict:
    """The same of a run that is over, with how it ended if it did not finish. `prefix`: of all of the run.

    Raises as `judged`.
    """
    if status.state == "finished":
        return verdict
    lines = LogReader(store, f"{prefix}logs/", ("stderr",)).tail(LOOKED_AT)
    return with_end(verdict, figures, ending(status, [line.text for line in lines]))
