"""Drawing progress on standard error: a bar on a terminal, one closing line elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Generator

import click

from headrace.base.progress import Progress
from headrace.base.units import format_bytes, format_seconds

_WORTH_A_RATE = 1_000_000


@contextlib.contextmanager
def progress(label: str, unit: str = "objects") -> Generator[Progress]:
    """Report to what this yields while the block runs; the closing line comes only when the block succeeds."""
    tally = _Tally(label, unit)
    with _drawn(tally) as report:
        yield report
    click.echo(tally.closing_line(), err=True)


def passing(label: str) -> contextlib.AbstractContextManager[Progress]:
    """As `progress`, but nothing of it stays: a bar on a terminal, nothing elsewhere."""
    return _drawn(_Tally(label, ""))


class _Tally:
    """Counts, for the closing line. Any thread."""

    def __init__(self, label: str, unit: str) -> None:
        self.label = label
        self.unit = unit
        self.items = 0
        self.size = 0
        self._started = time.monotonic()
        self._lock = threading.Lock()

    def total(self, items: int | None, size: int | None = None) -> None:
        """The closing line says what was done, not what was to do."""

    def advance(self, items: int = 1, size: int = 0) -> None:
        with self._lock:
            self.items += items
            self.size += size

    def bytes_and_rate(self) -> str:
        """Empty before there are bytes."""
        seconds = max(time.monotonic() - self._started, 1e-6)
        rate = f" at {format_bytes(self.size / seconds)}/s" if self.size > _WORTH_A_RATE else ""
        return f"{format_bytes(self.size)}{rate}" if self.size else ""

    def closing_line(self) -> str:
        size = self.bytes_and_rate()
        done = f"{self.label}: {self.items:,} {self.unit}{', ' if size else ''}{size}"
        return f"{done} in {format_seconds(time.monotonic() - self._started)}"


@contextlib.contextmanager
def _drawn(tally: _Tally) -> Generator[Progress]:
    if not sys.stderr.isatty():
        yield tally
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn("{task.fields[bytes]}"),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as display:
        yield _Bar(tally, display, display.add_task(tally.label, total=None, bytes=""))


class _Bar:
    """Passes what it is told to the tally and, at most ten times a second, to the drawing."""

    def __init__(self, tally: _Tally, display: object, task: object) -> None:
        self._tally = tally
        self._display = display
        self._task = task
        self._drawn = 0.0

    def total(self, items: int | None, size: int | None = None) -> None:
        del size
        self._update(total=items)

    def advance(self, items: int = 1, size: int = 0) -> None:
        self._tally.advance(items, size)
        now = time.monotonic()
        if now - self._drawn > 0.1:
            self._drawn = now
            self._update(completed=self._tally.items, bytes=self._tally.bytes_and_rate())

    def _update(self, **fields: object) -> None:
        update = getattr(self._display, "update")  # noqa: B009  rich is imported late, so its type is not known here
        update(self._task, **fields)
