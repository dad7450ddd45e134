"""When a changed file is to be sent: pure arithmetic, and the allowance of requests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.sync.ledger import Sent
from headrace.sync.options import FileClass
from headrace.sync.scan import Stamp
from headrace.upload import COPY_BYTES

SETTLE_S = 0.2
"""A new file is given this long to be written."""
LOOK_S = 0.5
"""How long a file must have been at rest before it is asked whether it is closed."""
NEVER_S = 3600.0
"""A file that is never asked for by itself is looked at so often all the same."""
_CHEAP_BYTES = 4 << 20
"""Sending a file of this size again costs about what a request does."""
_MOST_PERIODS = 60.0
"""However large a file, what it holds is in the bucket after so many periods."""


@dataclass(slots=True)
class Tracked:
    """One file. All times are seconds on the monotonic clock.

    `since`: when the first change that is not sent was seen; `moved`: when its stamp last changed; `begun`: when it was
    last sent; `retry_at`: not before, after a failure.
    """

    name: str
    kind: FileClass
    stamp: Stamp
    since: float
    moved: float
    sent: Sent | None = None
    begun: float | None = None
    retry_at: float = 0.0
    tries: int = 0
    error: str = ""
    away: bool = False
    """It failed because the store did not answer."""
    busy: bool = False
    stubborn: bool = False
    """It failed in a way that another try will not mend."""
    rested: bool = False
    """It lay there when the sync began, had not changed for long by its own time, and has not since."""

    @property
    def dirty(self) -> bool:
        """Whether what is in the store is not what is here."""
        return self.sent is None or self.sent.stamp != self.stamp


def pause(file: Tracked, *, appends: bool) -> float:
    """Seconds between two uploads of a file that has been sent: longer where one costs much and brings little."""
    if file.sent is None:
        return 0.0
    size, new = file.stamp.size, file.stamp.size - file.sent.info.size
    if appends:
        periods = (3 + size / COPY_BYTES) / 6
    elif new > 0 and file.kind.growing:
        periods = size / (16 * new)  # sent anew as a whole: until a sixteenth is new
    else:
        periods = size / _CHEAP_BYTES
    return file.kind.period * min(max(periods, 1.0), _MOST_PERIODS)


def cost(file: Tracked, *, appends: bool, part: int) -> int:
    """Requests that sending it takes, roughly."""
    size = file.stamp.size
    if appends:
        return 3 + math.ceil(size / COPY_BYTES)
    return 1 if size <= part else 2 + math.ceil(size / part)


class Allowance:
    """Requests that may be made: so many an hour, and as many in one burst. One thread."""

    def __init__(self, an_hour: int, now: float) -> None:
        self._most = float(an_hour)
        self._left = float(an_hour)
        self._at = now

    def take(self, count: int, now: float) -> float:
        """Spend them: 0; or the seconds until they may be spent."""
        self._left = min(self._most, self._left + (now - self._at) * self._most / 3600)
        self._at = now
        count = min(count, int(self._most))
        if self._left >= count:
            self._left -= count
            return 0.0
        return (count - self._left) * 3600 / self._most
