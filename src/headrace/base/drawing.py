"""Drawing progress on standard error: a bar where that is a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Generator

from headrace.base.progress import Progress
from headrace.base.units import format_bytes, format_seconds

_WORTH_A_RATE_BYTES = 1_000_000
"""The rate of less says more about the first request than about the store."""
_REDRAWN_S = 0.1
"""As often as people see a bar move; a terminal over a network takes more from the work."""


class Tally:
    """Counts, for the bar and the closing line. Any thread."""

    def __init__(self, label: str, unit: str = "") -> None:
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
        rate = f" at {format_bytes(self.size / seconds)}/s" if self.size > _WORTH_A_RATE_BYTES else ""
        return f"{format_bytes(self.size)}{rate}" if self.size else ""

    def closing_line(self) -> str:
        size = self.bytes_and_rate()
        done = f"{self.label}: {self.items:,} {self.unit}{', ' if size else ''}{size}"
        return f"{done} in {format_seconds(time.monotonic() - self._started)}"


@contextlib.contextmanager
def drawn(tally: Tally, *, after: float = 0.0, allowed: bool = True) -> Generator[Progress]:
    """Report to what this yields while the block runs; nothing of the bar stays.

    `after`: seconds of work, from the first that is heard of it, before a bar is worth drawing. `allowed`: the setting.
    """
    if not allowed or not sys.stderr.isatty():
        yield tally
        return
    with contextlib.ExitStack() as stack:
        bar = _Bar(tally, stack, after)
        if not after:
            bar.total(None)
        try:
            yield bar
        finally:
            bar.close()


class _Bar:
    """Passes what it is told to the tally and, at most ten times a second, to the drawing. Any thread."""

    def __init__(self, tally: Tally, stack: contextlib.ExitStack, after: float) -> None:
        self._tally, self._stack, self._after = tally, stack, after
        self._lock = threading.Lock()
        self._since: float | None = None
        self._drawn = 0.0
        self._total: int | None = None
        self._display: object = None
        self._task: object = None
        self._closed = False

    def total(self, items: int | None, size: int | None = None) -> None:
        del size
        self._total = items
        self._update(always=True)

    def advance(self, items: int = 1, size: int = 0) -> None:
        self._tally.advance(items, size)
        self._update(always=False)

    def close(self) -> None:
        """Draw no more: threads that have not heard of the end may still report."""
        with self._lock:
            self._closed = True

    def _update(self, *, always: bool) -> None:
        now = time.monotonic()
        if not always and now - self._drawn <= _REDRAWN_S:
            return
        with self._lock:
            if self._closed:
                return
            self._drawn = now
            self._since = now if self._since is None else self._since
            if self._display is None and now - self._since < self._after:
                return
            if self._display is None:
                self._begin()
            update = getattr(self._display, "update")  # noqa: B009  rich is imported late: its type is not known here
            tally = self._tally
            update(self._task, total=self._total, completed=tally.items, bytes=tally.bytes_and_rate())

    def _begin(self) -> None:
        from rich import progress as rich_progress
        from rich.console import Console

        columns = (
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TextColumn("{task.fields[bytes]}"),
            rich_progress.TimeRemainingColumn(),
        )
        display = rich_progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._display = self._stack.enter_context(display)
        self._task = display.add_task(self._tally.label, total=None, bytes="")
