"""Which entries this process has looked at lately: size, age and soundness of them need no second look yet."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

_PLACES = 1 << 20
"""Numbers of 8 bytes: as many as a large data set has objects."""
_FORGET_S = 300.0
"""Half of `reading.TOUCH_S`, so that the time of use moves of what is read again and again."""

Marks = npt.NDArray[np.int64]


class Seen:
    """A set of `headrace.cache.entries.Entries.marks` that forgets: the older of two that share a place, and all of
    them every five minutes. 8 MB at most. Any thread; one that races with another at worst looks twice.
    """

    def __init__(self) -> None:
        self._marks: Marks = np.zeros(_PLACES, np.int64)
        self._until = time.monotonic() + _FORGET_S

    def holds(self, marks: Marks) -> list[bool]:
        """Which of them were noted."""
        if time.monotonic() > self._until:
            self._marks = np.zeros(_PLACES, np.int64)
            self._until = time.monotonic() + _FORGET_S
        return (self._marks[marks % _PLACES] == marks).tolist()

    def note(self, marks: Marks) -> None:
        """These were looked at."""
        self._marks[marks % _PLACES] = marks
