"""Any stretch of a stream's lines, by their numbers, without what lies before it: of millions, the wanted few are read.

A segment tells how many lines came before it, so the one that holds a line is found by looking at a few. Of runs that
an older version recorded, all segments up to the wanted one are read, once.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.base.errors import NotFoundError
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.store.protocol import Store
from headrace.tracking.logs import Line, Segment, read_segment, segments

_KEPT: Final = 64  # segments
_KEPT_TEXT: Final = 4 << 20
"""Segments in memory, and characters of all of them together. Two are kept however long they are: the last, which tells
how many lines there are, and that of the lines that are wanted."""
_LISTED_EVERY: Final = 12
"""Refreshes: a later segment may come before an earlier one, and one may be left out for good."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A line and its number in its stream, from 0."""

    number: int
    line: Line


class LogPages:
    """One stream of one run. Any thread; calls take turns.

    Args:
        store: where it is.
        prefix: ``<home>/runs/<id>/logs/``.
        stream: which.
    """

    def __init__(self, store: Store, prefix: str, stream: str) -> None:
        self._store, self._prefix, self._stream = store, prefix, stream
        self._lock = threading.Lock()
        self._there: list[int] = []
        self._first: dict[int, int] = {}
        """Of segments that were looked at: how many lines came before."""
        self._kept: OrderedDict[int, Segment] = OrderedDict()
        self._looks = 0

    def refresh(self) -> None:
        """Look for segments that came since: one GET while nothing is new, a listing at first and now and then."""
        with self._lock:
            self._look()

    def count(self) -> int:
        """Lines there are, the one under way included. Raises any store error, CorruptError, UnsupportedError."""
        with self._lock:
            self._look_once()
            return self._count()

    def lines(self, start: int, stop: int) -> list[Numbered]:
        """Those with numbers in [start, stop) that are there. Raises as `count`."""
        with self._lock:
            self._look_once()
            return list(self._between(max(0, start), stop)) if self._there and stop > start else []

    def search(self, text: str, *, start: int = 0, most: int = 100) -> Iterator[Numbered]:
        """Lines from number `start` on that hold `text`, upper case or lower. Reads all of them. Raises as `count`."""
        wanted = text.lower()
        with self._lock:
            self._look_once()
            found = 0
            for numbered in self._between(start, 1 << 62):
                if wanted in numbered.line.text.lower():
                    yield numbered
                    found += 1
                    if found >= most:
                        return

    def _look_once(self) -> None:
        if not self._looks:
            self._look()

    def _look(self) -> None:
        listed = self._looks % _LISTED_EVERY == 0
        self._looks += 1
        if listed:
            known = set(self._there)
            self._there = segments(self._store, self._prefix, self._stream)
            if any(seq not in known for seq in self._there[: len(known)]):
                self._first.clear()  # of an older run: counted without it
            return
        with suppress(NotFoundError):
            while True:
                following = self._there[-1] + 1 if self._there else 0
                self._segment(following)
                self._there.append(following)

    def _count(self) -> int:
        if not self._there:
            return 0
        last = self._there[-1]
        return self._before(len(self._there) - 1) + self._segment(last).count

    def _before(self, index: int) -> int:
        """Lines that come before the segment at this place of those there are."""
        seq = self._there[index]
        if seq not in self._first:
            told = self._segment(seq).first
            if told is None:
                self._count_all(index)
            else:
                self._first[seq] = told
        return self._first[seq]

    def _count_all(self, index: int) -> None:
        """Of an older run: one after the other, some ahead."""
        total = 0
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-logs") as pool:
            for seq, segment in zip(self._there, pool.map(self._read, self._there[: index + 1]), strict=False):
                self._first[seq] = total
                total += segment.marks[-1]

    def _between(self, start: int, stop: int) -> Iterator[Numbered]:
        """Each line once: one that is not ended is told by the segment that has most of it."""
        index = max(0, bisect_right(range(len(self._there)), start, key=self._before) - 1)
        while index < len(self._there):
            before = self._before(index)
            last = index + 1 == len(self._there)
            for number, line in self._segment(self._there[index]).lines(max(0, start - before)):
                if before + number >= stop:
                    return
                if line.over or last:
                    yield Numbered(before + number, line)
            if before + self._segment(self._there[index]).marks[-1] >= stop:
                return
            index += 1

    def _segment(self, seq: int) -> Segment:
        if seq not in self._kept:
            self._kept[seq] = self._read(seq)
            while len(self._kept) > _KEPT or (len(self._kept) > 2 and self._size() > _KEPT_TEXT):
                self._kept.popitem(last=False)
        self._kept.move_to_end(seq)
        return self._kept[seq]

    def _size(self) -> int:
        return sum(one.size for one in self._kept.values())

    def _read(self, seq: int) -> Segment:
        return read_segment(self._store, self._prefix, self._stream, seq)
