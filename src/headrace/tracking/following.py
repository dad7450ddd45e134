"""What a run has written, and what comes while it is at work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from headrace.tracking.logs import Line, LogReader
from headrace.tracking.record import FINAL
from headrace.tracking.runs import Run

_EVERY_S = 1.0  # seconds between looks for lines
_STATE_S = 5.0  # seconds between looks whether the run is over
_OLD_S = 30.0
"""Age of a lease after which the run itself is looked at."""


def log_lines(
    run: Run, streams: tuple[str, ...] = ("stdout", "stderr"), *, tail: int | None = None, follow: bool = False
) -> Iterator[Iterable[Line]]:
    """Lines in the order in which they came, some at a time: all that is there, or the last `tail`; with `follow` what
    comes, once a second, until the run is over. A line that is not `over` may be given again, with more text.

    One thread.

    Raises:
        NotFoundError: there is no such run. CorruptError, UnsupportedError: of a segment. Any store error.
    """
    run.record()
    reader = LogReader(run.store, f"{run.prefix}logs/", streams)
    over = run.look().over  # asked before reading: what was there when it ended is read
    yield reader.read() if tail is None else reader.tail(tail)
    look_at = time.monotonic() + _STATE_S
    while follow and not over:
        time.sleep(_EVERY_S)
        yield reader.poll()
        if time.monotonic() >= look_at:
            over = _is_over(run)
            look_at = time.monotonic() + _STATE_S
    yield reader.read()


def _is_over(run: Run) -> bool:
    lease = run.lease()
    if lease is None or lease[0].state in FINAL or time.time() - lease[1].mtime_us / 1e6 > _OLD_S:
        return run.look().over
    return False
