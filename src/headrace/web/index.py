"""Runs of a home as rows that are searched and sorted: one SQLite file in the node's cache, made anew at any time.

The bucket is the record; what is here is a hint that spares asking it again. The newest runs are looked at while the
first page waits, all others behind it. A run that is over never changes, so it is read once; that its id still stands
for it is looked at behind the pages that show it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any, Final

import msgspec

from headrace.base.account import carried
from headrace.base.errors import HeadraceError
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.tracking.runs import DATED, Runs, RunView

_log = logging.getLogger("headrace.web")
FIRST: Final = 50
"""Runs looked at before the first page is shown."""
_LOOK_S: Final = 2.0
"""How long what is known of runs under way, and that none is new, is trusted."""
_LISTED_S: Final = 60.0
"""How long it is trusted that no run is gone."""
SAME_S: Final = 20.0
"""How long it is trusted that an id that is shown stands for the run that it stood for."""
_JUDGED_S: Final = 3600.0  # seconds: of longer runs all that they logged is not read for a row
_END_S: Final = 1.0  # seconds for what works behind to end
_BATCH: Final = 64  # runs read side by side, before it is looked whether all is closed
_FORMAT: Final = 2
_PUT: Final = "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, created TEXT NOT NULL, state TEXT NOT NULL, over INTEGER NOT NULL, name TEXT NOT NULL,
    seconds REAL NOT NULL, words TEXT NOT NULL, row TEXT NOT NULL, noted TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_created ON runs (created DESC, id DESC);
CREATE INDEX IF NOT EXISTS open_ones ON runs (over) WHERE over = 0;
CREATE INDEX IF NOT EXISTS noted_ones ON runs (noted) WHERE noted != '';
"""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run as lists show it. `created`: RFC 3339; `seconds`: so far, or in all; `waited`: share of the time that its
    GPU waited for data, 0 to 1; None: not known.
    """

    id: str
    name: str
    state: str
    created: str
    seconds: float
    host: str
    user: str
    command: tuple[str, ...]
    over: bool = False
    attempt: int = 0
    exit_code: int | None = None
    reason: str = ""
    tags: dict[str, str] = field(default_factory=dict[str, str])
    data: tuple[str, ...] = ()
    """Which data it read: snapshots, or what was asked for."""
    verdict: str | None = None
    gain: float | None = None
    waited: float | None = None
    loss: float | None = None
    note: str = ""
    noted: str = ""
    """Version of its notes, to be given back by who changes them."""

    @staticmethod
    def of(view: RunView) -> RunRow:
        """From what the bucket says of it."""
        record, status = view.record, view.status
        data = tuple(str(one.get("snapshot") or one.get("source")) for one in record.inputs.values())
        return RunRow(
            record.id, record.name, view.state, record.created, round(view.seconds, 3), record.host, record.user,
            record.command, view.over and status.state == view.state, status.attempt, status.exit_code,
            status.reason, view.tags, data, note=view.note, noted=view.kept.version,
        )  # fmt: skip


SORTS: Final = {
    "created": "created DESC, id DESC",
    "name": "name, created DESC",
    "state": "state, created DESC",
    "duration": "seconds DESC",
    "waited": "json_extract(row, '$.waited') IS NULL, json_extract(row, '$.waited') DESC, created DESC",
    "loss": "json_extract(row, '$.loss') IS NULL, json_extract(row, '$.loss'), created DESC",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A stretch of the runs that are wanted. `total`: of all that are wanted; `known`: of all in the index; `complete`:
    whether the index holds all that the bucket has.
    """

    rows: tuple[RunRow, ...]
    total: int
    known: int
    complete: bool
    problem: str | None = None
    """What the store said when it was last asked, if it failed."""
    age_s: float = 0.0
    """Since it was last asked with success."""


class RunIndex:
    """Any thread. `folder`: where its file lies; None: in memory, for as long as this is used."""

    def __init__(
        self, runs: Runs, folder: str | None, judge: Callable[[str, bool], Mapping[str, Any]], same_s: float = SAME_S
    ) -> None:
        """`judge`: what `learn` is told of a run that is over, of which nothing is known yet; True: all that it logged
        may be read for it. `same_s`: as `SAME_S`.
        """
        self._runs, self._judge, self._same_s = runs, judge, same_s
        name = hashlib.sha256(runs.home.url().encode()).hexdigest()[:16]
        self._path = os.path.join(folder, f"runs-{name}-{_FORMAT}.sqlite") if folder is not None else ":memory:"
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._database = self._open()
        self._asked_at = self._looked_at = self._listed_at = float("-inf")
        self._problem: str | None = None
        self._complete = False
        self._behind: threading.Thread | None = None
        self._confirming: threading.Thread | None = None
        self._confirmed: dict[str, float] = {}
        """When the record of a run was last read; the ids that are shown."""
        self._closed = threading.Event()

    def find(
        self, text: str = "", *, states: Sequence[str] = (), tags: Iterable[str] = (), sort: str = "created",
        start: int = 0, count: int = FIRST,
    ) -> Found:  # fmt: skip
        """Runs that hold every word of `text` (in id, name, command, host, user, tags, data), are in one of `states`
        and have all `tags` (``name`` or ``name=value``).
        """
        self._look()
        wanted, values = _where(text, states, tags)
        with self._reading() as database:
            known = database.execute("SELECT count(*) FROM runs").fetchone()[0]
            total = database.execute(f"SELECT count(*) FROM runs WHERE {wanted}", values).fetchone()[0]  # noqa: S608
            query = f"SELECT row FROM runs WHERE {wanted} ORDER BY {SORTS[sort]} LIMIT ? OFFSET ?"  # noqa: S608
            rows = tuple(_row(text) for (text,) in database.execute(query, (*values, count, start)))
        self._confirm(rows)
        age = time.monotonic() - self._looked_at
        return Found(rows, total, known, self._complete, self._problem, age if age != float("inf") else 0.0)

    def one(self, name: str) -> RunRow | None:
        """What is known of one run, without asking the bucket."""
        with self._reading() as database:
            found = database.execute("SELECT row FROM runs WHERE id = ?", (name,)).fetchone()
        return _row(found[0]) if found is not None else None

    def learn(self, name: str, created: str, **known: str | float | None) -> None:
        """Columns of a run that take reading all it logged: `verdict`, `gain`, `waited`, `loss`. `created`: of the run
        that is meant: its id may be another one's by now.
        """
        row = self.one(name)
        if row is not None and row.created != created:
            self._confirmed.pop(name, None)  # the next who finds it has it looked at again
        elif row is not None and any(getattr(row, column) != value for column, value in known.items()):
            with self._reading() as database:
                database.execute(_PUT, _stored(replace(row, **known)))  # pyright: ignore[reportArgumentType]

    def renew(self, name: str) -> None:
        """It was changed from here. Raises any store error."""
        self._runs.reread(name)
        self._take([name])

    def forget(self, name: str) -> None:
        """It was deleted."""
        self._confirmed.pop(name, None)
        with self._reading() as database:
            database.execute("DELETE FROM runs WHERE id = ?", (name,))

    def close(self) -> None:
        """End what works behind; a listing that is under way is left to end with the process. Idempotent."""
        self._closed.set()
        for thread in (self._behind, self._confirming):
            if thread is not None:
                thread.join(_END_S)
                if thread.is_alive():
                    return
        with self._lock:
            self._database.close()

    def _look(self) -> None:
        """What is new, and what became of those under way; who comes meanwhile waits, and need not look again."""
        with self._looking:
            now = time.monotonic()
            if now - self._asked_at < _LOOK_S:
                return
            try:
                self._look_again(now)
                self._problem, self._looked_at = None, time.monotonic()
            except HeadraceError as error:
                self._problem = str(error)
            finally:  # also after a failure: not every viewer waits for a store that is away
                self._asked_at = time.monotonic()

    def _look_again(self, now: float) -> None:
        newest = self._newest()
        ids = self._runs.newest(FIRST) if newest is None else self._runs.ids_after(newest)
        self._take([*ids, *self._under_way(), *self._noted()])
        if now - self._listed_at >= _LISTED_S and (self._behind is None or not self._behind.is_alive()):
            self._listed_at = now
            self._behind = threading.Thread(target=carried(self._complete_it), name="headrace-web-index", daemon=True)
            self._behind.start()

    def _confirm(self, rows: Sequence[RunRow]) -> None:
        """See behind the page whether ids that it shows stand for the same runs as before, by a GET each."""
        now = time.monotonic()
        due = [row for row in rows if now - self._confirmed.get(row.id, float("-inf")) >= self._same_s]
        with self._looking:
            if not due or self._closed.is_set() or (self._confirming is not None and self._confirming.is_alive()):
                return
            self._confirmed |= dict.fromkeys((row.id for row in due), now)
            self._confirming = threading.Thread(
                target=carried(self._confirm_all), args=(due,), name="headrace-web-index-same", daemon=True
            )
            self._confirming.start()

    def _confirm_all(self, rows: Sequence[RunRow]) -> None:
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-web") as pool:
            list(pool.map(self._confirm_one, rows))

    def _confirm_one(self, row: RunRow) -> None:
        if self._closed.is_set():
            return
        try:
            record = self._runs.reread(row.id)
            if record is None:
                self.forget(row.id)
            elif record.created != row.created:
                self._take([row.id])
        except HeadraceError as error:  # it is looked at again; that the store is away, `find` tells
            _log.info("%s: not looked at again: %s", row.id, error)

    def _given(self) -> list[RunRow]:
        """Some whose ids people gave, who may give them again: those that were not looked at again for longest. Nobody
        need have found the old one for the new one to be found.
        """
        with self._reading() as database:
            found = [one for (one,) in database.execute("SELECT id FROM runs") if DATED.fullmatch(one) is None]
        now, never = time.monotonic(), float("-inf")
        oldest = nsmallest(FIRST, found, key=lambda one: self._confirmed.get(one, never))
        self._confirmed |= dict.fromkeys(oldest, now)
        return [row for row in map(self.one, oldest) if row is not None]

    def _complete_it(self) -> None:
        """All ids, and each run that is not known yet; those that are gone go."""
        try:
            ids = self._runs.ids()
            with self._reading() as database:
                known = {one for (one,) in database.execute("SELECT id FROM runs")}
            for gone in known.difference(ids):
                self.forget(gone)
            missing = [one for one in ids if one not in known]
            for at in range(0, len(missing), _BATCH):
                if self._closed.is_set():
                    return
                self._take(missing[at : at + _BATCH])
            self._complete = True
            self._confirm_all(self._given())
            self._judge_all()
        except HeadraceError as error:
            self._problem = str(error)

    def _judge_all(self) -> None:
        """The columns of runs that are over, the newest first: by their summaries. Of those that have none all that
        they logged is read, if they are seen first and did not take long.
        """
        with self._reading() as database:
            found = database.execute(
                "SELECT id, created, seconds FROM runs WHERE over AND json_extract(row, '$.verdict') IS NULL "
                "ORDER BY created DESC"
            ).fetchall()
        wanted = [(*one, at < FIRST and seconds < _JUDGED_S) for at, (*one, seconds) in enumerate(found)]
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-web") as pool:
            for at in range(0, len(wanted), _BATCH):
                if self._closed.is_set():
                    return
                list(pool.map(self._judge_one, wanted[at : at + _BATCH]))

    def _judge_one(self, wanted: tuple[str, str, bool]) -> None:
        name, created, thoroughly = wanted
        try:
            self.learn(name, created, **self._judge(name, thoroughly))
        except HeadraceError as error:
            _log.info("%s: not judged: %s", name, error)

    def _take(self, ids: Sequence[str]) -> None:
        """How they stand. Those that are gone by now go."""
        wanted = list(dict.fromkeys(ids))
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-web") as pool:
            views = list(pool.map(self._runs.view, wanted))
        for name in (one for one, view in zip(wanted, views, strict=True) if view is None):
            self.forget(name)
        rows = [RunRow.of(view) for view in views if view is not None]
        with self._reading() as database:
            for row in rows:
                found = database.execute("SELECT row FROM runs WHERE id = ?", (row.id,)).fetchone()
                database.execute(_PUT, _stored(row if found is None else _with_learnt(row, _row(found[0]))))

    def _newest(self) -> str | None:
        with self._reading() as database:
            found = database.execute("SELECT id FROM runs WHERE id GLOB '[0-9]*-[0-9]*-*-*' ORDER BY id DESC LIMIT 1")
            row = found.fetchone()
        return row[0] if row is not None else None

    def _under_way(self) -> list[str]:
        with self._reading() as database:
            return [one for (one,) in database.execute("SELECT id FROM runs WHERE over = 0 ORDER BY created DESC")]

    def _noted(self) -> list[str]:
        """Those whose notes are not what is known here."""
        listed = self._runs.notes.listed()
        with self._reading() as database:
            known: dict[str, str] = dict(database.execute("SELECT id, noted FROM runs WHERE noted != ''"))
            others = msgspec.json.encode([name for name in listed if name not in known])
            query = "SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(?))"
            fresh = [one for (one,) in database.execute(query, (others.decode(),))]
        return [*fresh, *(name for name, noted in known.items() if noted != listed.get(name, ""))]

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with self._lock, self._database as database:
            yield database

    def _open(self) -> sqlite3.Connection:
        """The file; where it is damaged, or cannot be written, one in memory, which the bucket fills again."""
        try:
            if self._path != ":memory:":
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            return self._prepared()
        except (sqlite3.Error, OSError) as error:
            _log.warning("the index of runs is made anew: %s", error)
            for left in ("", "-wal", "-shm"):
                with suppress(OSError):
                    os.unlink(self._path + left)
            self._path = ":memory:"
            return self._prepared()

    def _prepared(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=10, check_same_thread=False)
        try:
            database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;" + _TABLE)
        except BaseException:
            database.close()
            raise
        return database


def _stored(row: RunRow) -> tuple[Any, ...]:
    words = [row.id, row.name, row.host, row.user, *row.command, *row.data]
    words += [*(f"{name}={value}" for name, value in row.tags.items()), row.note]
    text = msgspec.json.encode(row).decode()
    return row.id, row.created, row.state, row.over, row.name, row.seconds, "\n".join(words).lower(), text, row.noted


def _row(text: str) -> RunRow:
    return msgspec.json.decode(text, type=RunRow)


def _with_learnt(row: RunRow, known: RunRow) -> RunRow:
    if row.created != known.created:  # the id was given again
        return row
    return replace(row, verdict=known.verdict, gain=known.gain, waited=known.waited, loss=known.loss)


def _where(text: str, states: Sequence[str], tags: Iterable[str]) -> tuple[str, list[str]]:
    parts, values = ["1"], list[str]()
    for word in text.lower().split():
        parts.append("instr(words, ?)")
        values.append(word)
    if states:
        parts.append(f"state IN ({', '.join('?' for _ in states)})")
        values += states
    for tag in tags:
        name, equals, value = tag.partition("=")
        if equals:
            parts.append("EXISTS (SELECT 1 FROM json_each(row, '$.tags') WHERE key = ? AND value = ?)")
            values += [name, value]
        else:
            parts.append("EXISTS (SELECT 1 FROM json_each(row, '$.tags') WHERE key = ?)")
            values.append(name)
    return " AND ".join(parts), values
