"""Runs from Python: found, and what the bucket says of them. `hr.run`, `hr.runs`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from headrace.base.cards import card
from headrace.base.errors import NotFoundError
from headrace.base.units import parse_moment
from headrace.namespace.home import Home
from headrace.tracking.record import RunRecord, Status
from headrace.tracking.runs import Run, Runs, RunView
from headrace.tracking.watching import Wanted, Watch

if TYPE_CHECKING:
    from headrace.base.verdict import Verdict
    from headrace.tracking.arrow import Table
    from headrace.tracking.charts import Chart
    from headrace.tracking.curves import Axis
    from headrace.tracking.logs import Line
    from headrace.tracking.reading import MetricsReader, Series


class RecordedRun:
    """A run as its home has it. Every call asks the bucket anew. Any thread.

    `id`: its name in the home; `url`: where it is recorded.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.id = run.id
        self.url = run.url

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    @property
    def record(self) -> RunRecord:
        """What it was when it started, which never changes. Raises any store error."""
        return self._run.record()

    def look(self, *, notes: bool = False) -> RunView:
        """How it stands: its state, its last transition, seconds so far. `notes`: also the tags and the note that it
        got later, for one request more. Raises any store error.
        """
        view = self._run.look()
        return replace(view, kept=self._run.notes(view.record)) if notes else view

    def statuses(self) -> list[Status]:
        """All of its transitions, in order. Raises any store error."""
        return self._run.statuses()

    @property
    def tags(self) -> dict[str, str]:
        """Those that the job was given, and what came later. Raises any store error."""
        record = self._run.record()
        return self._run.notes(record).notes.tags_over(record)

    @property
    def note(self) -> str:
        """What people say of it. Raises any store error."""
        return self._run.notes().notes.note

    def tag(self, tags: Mapping[str, str | None] | None = None, /, **named: str | None) -> dict[str, str]:
        """Give it tags, from now on: ``run.tag(team="vision", best="")``; None takes one away. Returns all that it has.

        Raises:
            ChangedError: somebody else changed them at the same moment; nothing was written. InputError: no name, or no
            value, of a tag. Any store error.
        """
        return self._run.annotate({**(tags or {}), **named}).notes.tags_over(self._run.record())

    def set_note(self, text: str) -> str:
        """Say something of it, instead of what was said before. Empty: nothing. Returns the note. Raises as `tag`."""
        return self._run.annotate(note=text).notes.note

    def metrics(self, *names: str) -> Table:
        """All points, as a pyarrow table with the columns `time` (UTC), `step`, `rank`, `name` and `value`.

        `names`: only of these metrics, or patterns (``train/*``). ``.to_pandas()`` makes a data frame of it.

        Raises:
            CorruptError: a segment is damaged. UnsupportedError: a later version wrote it. Any store error.
        """
        from headrace.tracking.reading import read_metrics

        return read_metrics(self._run.store, f"{self._run.prefix}metrics/", names=names).table

    def series(self, *names: str, rank: int | None = None, own: bool = False) -> dict[str, Series]:
        """Each metric as arrays in the order of steps: ``run.series("loss")["loss"].values``. `rank`: whose; None: the
        lowest that logged it. `own`: only what the job logged itself, nothing of the machine and of headrace.

        Raises as `metrics`. To read on as more comes: `reader`.
        """
        from headrace.tracking.reading import series

        return series(self.metrics(*names), rank=rank, own=own)

    def reader(self, *names: str) -> MetricsReader:
        """Its metrics, read on as more comes, as `headrace metrics --watch` does: each ``reader.series()`` asks the
        bucket for what is new only. `names`: as of `metrics`.
        """
        from headrace.tracking.reading import MetricsReader

        return MetricsReader(self._run.store, f"{self._run.prefix}metrics/", names)

    def logs(self, stream: str = "stdout") -> Iterator[Line]:
        """What it wrote: lines with `time_us` and `text`. `stream`: ``stdout``, ``stderr`` or ``headrace``.

        Raises:
            CorruptError, UnsupportedError, any store error.
        """
        from headrace.tracking.logs import LogReader

        return LogReader(self._run.store, f"{self._run.prefix}logs/", (stream,)).read()

    @overload
    def plot(self, *names: str, x: Axis = "step", log: bool = False, rank: int | None = None) -> Chart: ...
    @overload
    def plot(self, *names: str, x: Axis = "step", log: bool = False, rank: int | None = None, ax: Any) -> Any: ...
    def plot(
        self, *names: str, x: Axis = "step", log: bool = False, rank: int | None = None, ax: Any = None
    ) -> Chart | Any:
        """A picture of metrics, one over the other: in a notebook as such. Its ``svg`` is a file's content, its
        ``figure()`` one of matplotlib's.

        Args:
            names: which; patterns too. None: the job's own.
            x: over steps, or over time.
            log: values on a logarithmic scale.
            rank: whose values; None: of each metric the lowest that logged it.
            ax: matplotlib's axes, in which they are drawn then, beside what is there; returned instead of a chart.

        Raises:
            As `metrics`. NotFoundError: it has logged no such metric.
        """
        from headrace.tracking.charts import Chart
        from headrace.tracking.curves import curve

        found = self.series(*names, rank=rank, own=not names)
        if not found:
            raise NotFoundError("has no such metrics", path=self.id, hint="headrace metrics lists them")
        chart = Chart(self.id, tuple(curve(one, x) for one in found.values()), x, log)
        return chart if ax is None else chart.draw(ax)

    def _repr_html_(self) -> str:
        view = self.look(notes=True)
        record = view.record
        tags = " ".join(f"{name}={value}" if value else name for name, value in view.tags.items())
        rows = {
            "state": view.state, "tags": tags or None, "note": view.note or None,
            "started": record.created, "took": f"{view.seconds:,.0f} s",
            "command": shlex.join(record.command), "ended": view.status.reason or None, "where": self.url,
        }  # fmt: skip
        return card(f"run {self.id}", rows)

    def why(self, *, last_s: float | None = None, rank: int | None = None) -> Verdict:
        """What limits it, as `headrace why` says. `last_s`: of the last so many seconds only; `rank`: of one rank only.

        Raises:
            NotFoundError: there is no such run. As `metrics`.
        """
        from headrace.tracking.figures import NAMES
        from headrace.tracking.judged import judged

        return judged(self._run, self.look(), self.metrics(*NAMES), last_s=last_s, rank=rank)

    def follow(self, *streams: str) -> Iterator[Line]:
        """What it has written, and what comes until it is over, as `headrace logs -f`. A line that is not `over` may
        come again, with more text. Raises as `logs`. `streams`: none: ``stdout`` and ``stderr``.
        """
        from headrace.tracking.following import log_lines

        for lines in log_lines(self._run, streams or ("stdout", "stderr"), follow=True):
            yield from lines

    def stop(self, grace_s: float | None = None, *, wait_s: float | None = None) -> RunView:
        """Order it to stop, as `headrace stop` does: its runner sees that within seconds, wherever it is. How it stands
        then. Arguments and errors: `headrace.tracking.stopping.stop`.
        """
        from headrace.tracking.stopping import stop

        return stop(self._run, grace_s, wait_s=wait_s).view

    def delete(self, *, force: bool = False) -> int:
        """Delete all that is recorded of it: logs, metrics, outputs, checkpoints. How many objects that were.

        Raises:
            InputError: it is not over, and `force` is not set. ReadOnlyError: the home. Any store error.
        """
        if not force:
            self._run.check_over()
        return self._run.delete()


def run(text: str = "latest") -> RecordedRun:
    """The run with this id, or whose id begins or ends so, or the newest of this name; ``latest``: the newest.

    Raises:
        NotFoundError: there is none. InputError: it is said of several. SettingError: no home is set.
    """
    return RecordedRun(as_run(text))


AnyRun: TypeAlias = str | Run | RecordedRun
"""A run, or what names it as `run` takes it."""


def as_run(run: AnyRun) -> Run:
    """The run that is meant. Raises as `run`."""
    if isinstance(run, str):
        return Runs(Home.of()).find(run)
    return run if isinstance(run, Run) else run._run  # pyright: ignore[reportPrivateUsage]


def runs(
    name: str | None = None,
    *,
    states: tuple[str, ...] = (),
    tags: Mapping[str, str] | None = None,
    since: str | float | None = None,
    limit: int | None = 20,
) -> list[RecordedRun]:
    """The newest `limit` runs that are wanted (None: all), the newest first.

    Args:
        name: a pattern as a shell's.
        states: any of these.
        tags: all of these; values are patterns (``*``: any).
        since: begun then or later: ``"2d"`` (so long ago), ``"2026-01-31T12:00"``, or seconds since the epoch.
        limit: how many.

    Raises:
        InputError: `since` is no time. SettingError: no home is set. Any store error.
    """
    found = Runs(Home.of())
    wanted = Wanted(name, tuple(states), dict(tags or {}), None if since is None else parse_moment(since, name="since"))
    return [RecordedRun(found.run(view.record.id)) for view in Watch(found, limit, wanted).look()]
