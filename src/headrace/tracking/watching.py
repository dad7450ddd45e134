"""Which runs are meant, and how they stand, looked at again and again at the price of what can have changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Final

from headrace.base.errors import InputError, NotFoundError
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.tracking.record import RunRecord
from headrace.tracking.runs import DATED, Runs, RunView

_MINUTE_S: Final = 60.0
"""How often all ids are listed, and lost runs looked at: they may come back, or be told to be lost."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs: all that is given must hold. `name`, and the values of `tags`, are patterns as a shell's; `states`:
    any of them; `since`: created then or later, seconds since the epoch.
    """

    name: str | None = None
    states: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    since: float | None = None

    def by_name(self, name: str) -> bool:
        """Whether it may be one, as far as its name tells, which never changes."""
        return self.name is None or fnmatchcase(name, self.name)

    def by_tags(self, tags: Mapping[str, str]) -> bool:
        """Whether it has all that are wanted."""
        return all(name in tags and fnmatchcase(tags[name], pattern) for name, pattern in self.tags.items())

    def takes(self, view: RunView) -> bool:
        """Whether it is one now."""
        if self.since is not None and _created(view.record) < self.since:
            return False
        return (
            (not self.states or view.state in self.states)
            and self.by_name(view.record.name)
            and self.by_tags(view.tags)
        )


class Watch:
    """Runs of a home, the newest first. One thread.

    The first look reads two objects of each run. Each later one lists what is new, which is one request, and reads the
    lease of each run that is under way; a run that is over is never read again. Once a minute all ids are listed, and
    four times which runs have notes, which are read when they have changed.

    Args:
        runs: of which home.
        limit: so many of those that are wanted; None: all.
        wanted: which.
    """

    def __init__(self, runs: Runs, limit: int | None = None, wanted: Wanted | None = None) -> None:
        self._runs, self._limit, self._wanted = runs, limit, wanted or Wanted()
        self._ids: list[str] = []
        self._over: dict[str, RunView | None] = {}
        """Never looked at again; None: not wanted, or not to be read."""
        self._lost: dict[str, tuple[float, RunView]] = {}
        self._listed_at = float("-inf")

    def look(self) -> list[RunView]:
        """How they stand now. Raises any store error."""
        self._find()
        found: list[RunView] = []
        ids = iter(self._ids)
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-runs") as pool:
            while some := list(islice(ids, self._more(found))):
                views = [view for view in pool.map(self._view, some) if view is not None]
                found += [view for view in views if self._wanted.takes(view)]
                if self._past(views) or (self._limit is not None and len(found) >= self._limit):
                    break
        return found[: self._limit]

    def _more(self, found: Sequence[RunView]) -> int:
        """How many to look at next: no more than can be shown, where nothing is left out."""
        if self._limit is None or self._wanted != Wanted():
            return 2 * REQUESTS_AT_ONCE
        return max(1, self._limit - len(found))

    def _past(self, views: Sequence[RunView]) -> bool:
        """Whether all that follow are older than what is wanted."""
        since = self._wanted.since
        return since is not None and any(_created(one.record) < since for one in views)

    def _find(self) -> None:
        now = time.monotonic()
        newest = next((one for one in self._ids if DATED.fullmatch(one)), None)
        if newest is None or now - self._listed_at >= _MINUTE_S:
            self._ids = self._runs.ids()
            self._listed_at = now
        else:
            new = [one for one in self._runs.ids_after(newest) if one not in self._ids]
            if new:
                self._ids = self._runs.by_time([*new, *self._ids])

    def _view(self, one: str) -> RunView | None:
        """How one stands, with the notes that it has now."""
        view = self._known(one)
        return replace(view, kept=self._runs.notes.of(view.record)) if view is not None else None

    def _known(self, one: str) -> RunView | None:
        if one in self._over:
            return self._over[one]
        now = time.monotonic()
        looked_at, lost = self._lost.get(one, (float("-inf"), None))
        if now - looked_at < _MINUTE_S:
            return lost
        if not self._may_be(one):
            self._over[one] = None
            return None
        if not self._is_tagged(one):
            return None
        view = self._runs.view(one)
        if view is None:  # it may be there in a moment: its id is listed before its record can be read
            return None
        if view.over and view.status.state == view.state:
            self._over[one] = view
        elif view.over:
            self._lost[one] = (now, view)
        else:
            self._lost.pop(one, None)
        return view

    def _may_be(self, one: str) -> bool:
        with suppress(NotFoundError, InputError):
            return self._wanted.name is None or self._wanted.by_name(self._runs.name(one))
        return True

    def _is_tagged(self, one: str) -> bool:
        """Looked at before it is asked how a run stands, which takes a request."""
        with suppress(NotFoundError, InputError):
            if self._wanted.tags:
                record = self._runs.record(one)
                return self._wanted.by_tags(self._runs.notes.of(record).notes.tags_over(record))
        return True


def _created(record: RunRecord) -> float:
    return datetime.fromisoformat(record.created).timestamp()


__all__ = ["Wanted", "Watch"]
