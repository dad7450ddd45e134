"""The runs of a home: found, looked at, ordered to stop. All of it may be called from any thread."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice
from typing import Final

from headrace.base.errors import (
    AlreadyExistsError,
    CorruptError,
    HeadraceError,
    InputError,
    NotFoundError,
    UnsupportedError,
)
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.namespace.home import Home
from headrace.store.protocol import ObjectInfo, Store
from headrace.tracking import notes
from headrace.tracking.notes import NONE, AllNotes, Kept
from headrace.tracking.record import FINAL, RUNS, Lease, Order, RunRecord, Status
from headrace.tracking.summary import NAME as SUMMARY
from headrace.tracking.summary import Summary

LOST_S: Final = 60.0
"""A runner that has not renewed its lease for so long is lost."""
_CLOCK_S = 60.0
"""How long what was found of the store's clock holds."""
_JUMP_S = 5.0
"""A clock that is so far from where it was to be by now was set."""
_STRETCHES: Final = tuple(timedelta(hours=hours) for hours in (1, 6, 48, 24 * 14, 24 * 90))
_MOST_LISTED: Final = 1500
"""Ids listed since a moment: one and a half pages of a listing."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DATED: Final = re.compile(r"(\d{8}-\d{6})-(.+)-[0-9a-f]{4}")
"""An id that was made of a time and a name."""


@dataclass(frozen=True, slots=True)
class RunView:
    """How a run stands, as far as the bucket says. `seconds`: from start to end, or until now; `kept`: its notes, where
    they were asked for.
    """

    record: RunRecord
    status: Status
    lease: Lease | None
    state: str
    seconds: float
    kept: Kept = NONE

    @property
    def tags(self) -> dict[str, str]:
        """Those of the job, and what came later."""
        return self.kept.notes.tags_over(self.record)

    @property
    def note(self) -> str:
        """What people say of it."""
        return self.kept.notes.note

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in FINAL

    @property
    def files_left(self) -> int:
        """Files that are not in the bucket: now, or for good."""
        return self.lease.files if self.lease is not None else len(self.status.left)

    @property
    def bytes_left(self) -> int | None:
        """Of them, while its runner tells; None: it does not any more."""
        return self.lease.bytes if self.lease is not None else None

    @property
    def oldest_left(self) -> float | None:
        """Seconds since the first of their changes, likewise."""
        return self.lease.oldest if self.lease is not None else None

    @property
    def ended(self) -> Status:
        """The last transition; for a lost run one that nobody has written: at its last sign."""
        if self.status.state in FINAL:
            return self.status
        time = self.lease.time if self.lease is not None else self.status.time
        return Status(self.status.seq + 1, self.state, time, self.status.attempt, reason="its runner is gone")


class StoreClock:
    """How old objects of a home are: by the clock here; where that says too old, by the store's own, which wrote their
    times. That is asked for once a minute at most.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._ahead: float | None = None
        """Seconds that the clock here is ahead of the store's; None: not asked."""
        self._asked_at = self._asked_time = 0.0

    def age(self, mtime_us: int) -> float:
        """Seconds since then."""
        here, passed = time.time(), time.monotonic() - self._asked_at
        jumped = abs(here - self._asked_time - passed) > _JUMP_S
        if self._ahead is not None and passed < _CLOCK_S and not jumped:
            return here - self._ahead - mtime_us / 1e6
        age = here - mtime_us / 1e6
        if abs(age) <= LOST_S or self._home.read_only:
            return age
        key = self._home.key(RUNS, ".clock")
        try:
            self._home.store.put(key, b"what time is it\n")
            self._ahead = time.time() - self._home.store.head(key).mtime_us / 1e6
        except HeadraceError:  # not allowed to write there, for one
            self._ahead = 0.0
        self._asked_at, self._asked_time = time.monotonic(), time.time()
        return time.time() - self._ahead - mtime_us / 1e6


class Run:
    """One run of a home, for who reads it and for the runner that writes it. `clock`: one for all who look."""

    def __init__(self, home: Home, name: str, clock: StoreClock | None = None) -> None:
        if not _ID.fullmatch(name):
            raise InputError(f"{name!r} is no run's id", hint="letters, digits, . _ and - are allowed")
        self.id = name
        self._home = home
        self._clock = clock or StoreClock(home)

    @property
    def store(self) -> Store:
        """Where it is recorded."""
        return self._home.store

    @property
    def prefix(self) -> str:
        """The key of everything of it begins so; ends in ``/``."""
        return self._home.key(RUNS, self.id, "")

    @property
    def url(self) -> str:
        """Where it is recorded, for people."""
        return self._home.url(RUNS, self.id)

    # what the runner writes

    def create(self, record: RunRecord) -> None:
        """Raises AlreadyExistsError: there is a run of this id, whoever's. Any store error."""
        self._home.check_writable()
        try:
            self._home.create(record.as_json(), RUNS, self.id, "run.json")
        except AlreadyExistsError:
            hint = "take another --id, or none"
            raise AlreadyExistsError("there is a run of this id", path=self.url, hint=hint) from None

    def put_status(self, status: Status) -> None:
        """Idempotent. Raises AlreadyExistsError: another runner wrote another one in its place. Any store error."""
        data = status.as_json()
        try:
            self._home.create(data, RUNS, self.id, "status", status.name)
        except AlreadyExistsError:
            if bytes(self._get(f"status/{status.name}")) != data:
                raise

    def put_lease(self, lease: Lease) -> None:
        """Raises any store error."""
        self.store.put(self.prefix + "lease.json", lease.as_json())

    def stop_order(self) -> Order | None:
        """What was ordered, if anything. Raises any store error."""
        with suppress(NotFoundError):
            return Order.from_json(self._get("orders/stop.json"), f"{self.url}/orders/stop.json")
        return None

    # what everyone may do

    def order_stop(self, order: Order) -> None:
        """Ask the runner to stop; it looks every few seconds. Raises any store error."""
        self._home.check_writable()
        self.store.put(self.prefix + "orders/stop.json", order.as_json())

    def exists(self) -> bool:
        """Whether there is such a run. Raises any store error."""
        with suppress(NotFoundError):
            self.store.head(self.prefix + "run.json")
            return True
        return False

    def record(self) -> RunRecord:
        """Raises NotFoundError: there is no such run."""
        try:
            return RunRecord.from_json(self._get("run.json"), f"{self.url}/run.json")
        except NotFoundError:
            hint = "headrace runs lists them"
            raise NotFoundError("there is no such run", path=self.id, hint=hint) from None

    def resumed_from(self) -> Run | None:
        """The run that this one was to go on with, by its record. Raises NotFoundError, any store error."""
        parent = self.record().parent or {}
        return Run(self._home, str(parent.get("run")), self._clock) if parent.get("as") == "resume" else None

    def lease(self) -> tuple[Lease, ObjectInfo] | None:
        """The lease, and when it was written by the store's clock."""
        with suppress(NotFoundError):
            blob = self.store.get(self.prefix + "lease.json")
            return Lease.from_json(blob.data, f"{self.url}/lease.json"), blob.info
        return None

    def summary(self) -> Summary | None:
        """What was told last of all it logged; None: an older version recorded it, or it logged nothing yet."""
        with suppress(NotFoundError):
            return Summary.from_json(self._get(SUMMARY), f"{self.url}/{SUMMARY}")
        return None

    def statuses(self) -> list[Status]:
        """All transitions, in order."""
        keys = sorted(info.key for page in self.store.list(self.prefix + "status/") for info in page)
        return [Status.from_json(self.store.get(key).data, f"{self.url}/{key}") for key in keys]

    def look(self, record: RunRecord | None = None) -> RunView:
        """How it stands now: one GET of the lease; another of `record` where that is not known yet. Its transitions are
        listed only where the lease is old, or an older version wrote it.

        Raises NotFoundError, any store error.
        """
        found = self.lease()
        if record is None or found is None:
            record = self.record()
        if found is None:
            return self._listed(record, None, _micros(record.created))
        lease, info = found
        status = lease.status
        if status is not None and status.state in FINAL:
            return RunView(record, status, None, status.state, _between(record.created, status.time))
        age = self._clock.age(info.mtime_us)
        if status is None or age > LOST_S:
            return self._listed(record, lease, info.mtime_us)
        return RunView(record, status, lease, status.state, _between(record.created, lease.time) + max(0.0, age))

    def _listed(self, record: RunRecord, lease: Lease | None, alive_us: int) -> RunView:
        """By its transitions; `alive_us`: when it gave its last sign."""
        names = sorted(info.key for page in self.store.list(self.prefix + "status/") for info in page)
        started = Status(0, "starting", record.created)
        status = Status.from_json(self.store.get(names[-1]).data, names[-1]) if names else started
        if status.state in FINAL:
            return RunView(record, status, None, status.state, _between(record.created, status.time))
        age = self._clock.age(alive_us)
        end = lease.time if lease is not None else status.time
        if age > LOST_S:
            return RunView(record, status, lease, "lost", _between(record.created, end))
        return RunView(record, status, lease, status.state, _between(record.created, end) + max(0.0, age))

    def notes(self, record: RunRecord | None = None) -> Kept:
        """What people said of it: one GET. Raises NotFoundError, CorruptError, any store error."""
        return notes.read(self._home, record or self.record())

    def annotate(
        self, tags: Mapping[str, str | None] | None = None, note: str | None = None, *, over: str | None = None
    ) -> Kept:
        """Give it tags (None: take one away) and a note (None: leave it). `over`: the version that was seen
        (`Kept.version`); None: what is there now.

        Raises ChangedError: somebody else was there in between. InputError, NotFoundError, any store error.
        """
        return notes.change(self._home, self.record(), tags or {}, note, over)

    def check_over(self) -> None:
        """Raises InputError: it is not. NotFoundError: there is no such run."""
        if not self.look().over:
            raise InputError("is not over", path=self.id, hint="headrace stop it first, or headrace runs rm --force")

    def delete(self) -> int:
        """Delete everything of it; returns the number of objects. ``run.json`` goes last."""
        self._home.check_writable()
        count = notes.forget(self._home, self.id)
        for page in self.store.list(self.prefix):
            keys = [info.key for info in page if info.key != self.prefix + "run.json"]
            self.store.delete(keys)
            count += len(keys)
        self.store.delete([self.prefix + "run.json"])
        return count + 1

    def _get(self, name: str) -> memoryview:
        return self.store.get(self.prefix + name).data


class Runs:
    """All runs of one home. What it has read of records that never change it keeps."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.clock = StoreClock(home)
        self.notes = AllNotes(home)
        self._records: dict[str, RunRecord] = {}

    def run(self, name: str) -> Run:
        """The run of this id, if there is one. Raises InputError: it can be none."""
        return Run(self.home, name, self.clock)

    def record(self, name: str) -> RunRecord:
        """That of a run, read once. Raises NotFoundError."""
        if name not in self._records:
            self._records[name] = self.run(name).record()
        return self._records[name]

    def reread(self, name: str) -> RunRecord | None:
        """The record as it is by now, which is kept instead: a run may be deleted, and its id given again. None: there
        is no such run any more. One GET. Raises any other store error.
        """
        try:
            self._records[name] = self.run(name).record()
        except NotFoundError:
            return self._records.pop(name, None) and None
        return self._records[name]

    def ids(self) -> list[str]:
        """The newest first; see `by_time`."""
        folders = self.home.store.list_folder(self.home.key(RUNS, "")).folders
        return self.by_time(folder.rstrip("/").rpartition("/")[2] for folder in folders)

    def ids_after(self, newest: str) -> list[str]:
        """Those made of a time that come after `newest`, the newest first: one request, and one more for each."""
        found: list[str] = []
        prefix, last = self.home.key(RUNS, ""), newest
        while True:
            pages = self.home.store.list(prefix, start_after=f"{prefix}{last}/~")  # no name in a run is after this
            keys = [info.key[len(prefix) :] for page in islice(pages, 1) for info in page]
            names = sorted({one for one in (key.partition("/")[0] for key in keys) if one > last})
            dated = [one for one in names if DATED.fullmatch(one)]
            found += dated
            if not names or dated != names:
                return found[::-1]
            last = names[-1]

    def newest(self, count: int) -> list[str]:
        """At least so many of those made of a time, the newest first, without a listing of all, if it can be; else all.

        Stretches back from now, each some times as long as the one before, are listed from their beginning on until one
        holds enough.
        """
        now = datetime.now(UTC)
        for back in _STRETCHES:
            since = f"{now - back:%Y%m%d-%H%M%S}"
            ids = self._ids_since(since, most=_MOST_LISTED)
            if ids is None:
                break
            if len(ids) >= count:
                return ids
        return self.ids()

    def _ids_since(self, since: str, most: int) -> list[str] | None:
        """Those made of a time that come after it, the newest first; None: there are more than `most`."""
        found: list[str] = []
        prefix = self.home.key(RUNS, "")
        for page in self.home.store.list_pages(prefix, start_after=f"{prefix}{since}"):
            found += [one for one in (folder[len(prefix) : -1] for folder in page.folders) if DATED.fullmatch(one)]
            if len(found) > most:
                return None
        return found[::-1]

    def by_time(self, ids: Iterable[str]) -> list[str]:
        """Sorted by creation, the newest first: by the time in the id, which tells seconds. Of an id that was given
        (`--id`), and of the others of its second, the record tells, and is read for it once. Left out is what has none.
        """
        every = list(ids)
        given = [one for one in every if DATED.fullmatch(one) is None]
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-runs") as pool:
            created = dict(zip(given, pool.map(self._created, given), strict=True))
            seconds = {time_[:15] for time_ in created.values()}
            beside = [one for one in every if one not in created and one[:15] in seconds]
            told = zip(beside, pool.map(self._created, beside), strict=True)
            created |= {one: time_ for one, time_ in told if time_}
        timed = [(created.get(one, one[:15]), one) for one in every]
        return [one for time_, one in sorted(timed, reverse=True) if time_]

    def find(self, text: str) -> Run:
        """The run with this id, or whose id begins or ends so, or the newest of this name; ``latest``: the newest.

        Raises:
            NotFoundError: none. InputError: the beginning or end of several.
        """
        if _ID.fullmatch(text) and self.run(text).exists():
            return self.run(text)
        ids = self.ids()
        for one in self._to_the_moment(one for one in ids if text == "latest" or self.name(one) == text):
            # some stores list a folder for a while after all in it is deleted
            if self.run(one).exists():
                return self.run(one)
        alike = [one for one in ids if (one.startswith(text) or one.endswith(text)) and self.run(one).exists()]
        if len(alike) > 1:
            raise InputError(f"is said of {len(alike)} runs: {', '.join(alike[:5])} …", path=text, hint="say more")
        if not alike:
            raise NotFoundError("there is no such run", path=text, hint="headrace runs lists them")
        return self.run(alike[0])

    def unfinished(self, name: str) -> Run | None:
        """The newest run of this name, where it has not finished well; None: it has, or there is none.

        Raises any store error.
        """
        for one in self._to_the_moment(one for one in self.ids() if self.name(one) == name):
            if (view := self.view(one)) is not None:
                return None if view.state == "finished" else self.run(one)
        return None

    def name(self, one: str) -> str:
        """Of a run, by its id; where that was given, by its record. Raises NotFoundError."""
        match = DATED.fullmatch(one)
        return match[2] if match is not None else self.record(one).name

    def view(self, name: str) -> RunView | None:
        """How a run stands now, with its notes as they were listed last; None: it cannot be read."""
        with suppress(NotFoundError, InputError):
            view = self.run(name).look(self._records.get(name))
            self._records[name] = view.record
            return replace(view, kept=self.notes.of(view.record))
        self._records.pop(name, None)
        return None

    def views(self, limit: int | None = None) -> Iterator[RunView]:
        """How they stand, the newest first. One that cannot be read is left out."""
        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-runs") as pool:
            yield from (view for view in pool.map(self.view, self.ids()[:limit]) if view is not None)

    def _to_the_moment(self, ids: Iterable[str]) -> Iterator[str]:
        """The same, the newest first. Ids tell seconds: of those of one second, their records tell who came last."""
        for _, same in groupby(ids, key=lambda one: one[:15] if DATED.fullmatch(one) else one):
            group = list(same)
            yield from sorted(group, key=self._created, reverse=True) if len(group) > 1 else group

    def _created(self, name: str) -> str:
        """As times in ids are written, and finer; empty: it has no record."""
        with suppress(NotFoundError, InputError, CorruptError, UnsupportedError):
            return f"{datetime.fromisoformat(self.record(name).created).astimezone(UTC):%Y%m%d-%H%M%S.%f}"
        return ""


def _between(start: str, end: str) -> float:
    return max(0.0, (_micros(end) - _micros(start)) / 1e6)


def _micros(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1e6)
