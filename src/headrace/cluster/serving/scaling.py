"""How many replicas a service wants, from how many requests its servers have under way. Plain arithmetic."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headrace.base.errors import InputError

_RANGE: Final = re.compile(r"([1-9][0-9]{0,4})(?:\.\.([1-9][0-9]{0,4}))?")


@dataclass(frozen=True, slots=True)
class Scale:
    """Between which numbers a service is scaled, and by what.

    Args:
        least: replicas, at least.
        most: replicas, at most.
        target: requests under way, waiting ones among them, that are aimed at for each replica.
        down_after: seconds for which fewer must have been enough before there are fewer.
    """

    least: int
    most: int
    target: float = 16.0
    down_after: float = 60.0

    def __post_init__(self) -> None:
        """Raises InputError."""
        if not 1 <= self.least <= self.most:
            raise InputError(f"{self.least}..{self.most} are no numbers of replicas", hint="like 2, or 2..8")
        if not 0 < self.target < math.inf or self.down_after < 0:
            raise InputError("requests for each replica, and the time, are above 0")

    @staticmethod
    def parse(text: str, *, target: float = 16.0, down_after: float = 60.0) -> Scale:
        """``2``, or ``2..8``. Raises InputError."""
        found = _RANGE.fullmatch(text.strip())
        if found is None:
            raise InputError(f"{text!r} is no number of replicas", hint="like 2, or 2..8")
        least = int(found[1])
        return Scale(least, int(found[2]) if found[2] else least, target, down_after)

    def __str__(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least}..{self.most}"


def wanted(scale: Scale, looks: Iterable[tuple[float, float]], now: float) -> int:
    """The most replicas that any look of the last `down_after` seconds asked for: more at once, fewer when fewer have
    been enough for that long. Any thread.

    Args:
        scale: see there.
        looks: when, in seconds of the clock that `now` is of; and how many requests were under way then.
        now: the present.
    """
    asked = [
        math.ceil(under_way / scale.target)
        for at, under_way in looks
        if now - scale.down_after <= at <= now and math.isfinite(under_way)
    ]
    return min(scale.most, max([scale.least, *asked]))
