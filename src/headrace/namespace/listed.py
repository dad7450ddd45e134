"""What a listing found, as people look at it: a line or a row for each name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from headrace.base import cards
from headrace.base.units import format_bytes
from headrace.base.words import plain
from headrace.namespace.entry import Entry

MOST: Final = 200
"""Entries that are shown; of more it is said how many."""


class Listing(list[Entry]):
    """The entries of a folder: a list, and nothing more, but that it shows itself as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self:
            return "[]"
        lines = [f"{size:>10}  {time:16}  {plain(name)}" for name, size, time in self._rows()]
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        title = f"{len(self):,} entr{'y' if len(self) == 1 else 'ies'}"
        return cards.table(title, ("name", "size", "changed (UTC)"), self._rows(), note="".join(self._rest()))

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Name, size, time; a folder's name ends in a slash."""
        for entry in islice(self, MOST):
            if entry.is_file:
                yield entry.name, format_bytes(entry.size), _moment(entry.mtime_us)
            else:
                yield entry.name.rstrip("/") + "/", "", ""

    def _rest(self) -> list[str]:
        return [f"and {len(self) - MOST:,} more"] if len(self) > MOST else []


def _moment(mtime_us: int) -> str:
    return f"{datetime.fromtimestamp(mtime_us // 1_000_000, UTC):%Y-%m-%d %H:%M}" if mtime_us else ""
