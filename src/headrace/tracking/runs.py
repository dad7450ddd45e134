"""The runs of a home: found, looked at, ordered to stop. All of it may be called from any thread."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace.base.errors import AlreadyExistsError, HeadraceError, InputError, NotFoundError
from headrace.namespace.home import Home
from headrace.store.protocol import ObjectInfo, Store
from headrace.tracking.record import FINAL, Lease, Order, RunRecord, Status

RUNS: Final = "runs"
LOST_S: Final = 60.0
"""A runner that has not renewed its lease for so long is lost."""
_AT_ONCE = 8
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class RunView:
    """How a run stands, as far as the bucket says. `seconds`: from start to end, or until now."""

    record: RunRecord
    status: Status
    lease: Lease | None
    state: str
    seconds: float

    @property
    def over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state in FINAL

    @property
    def ended(self) -> Status:
        """The last transition; for a lost run one that nobody has written: at its last sign."""
        if self.status.state in FINAL:
            return self.status
        time = self.lease.time if self.lease is not None else self.status.time
        return Status(self.status.seq + 1, self.state, time, self.status.attempt, reason="its runner is gone")


class Run:
    """One run of a home, for who reads it and for the runner that writes it."""

    def __init__(self, home: Home, name: str) -> None:
        if not _ID.fullmatch(name):
            raise InputError(f"{name!r} is no run's id", hint="letters, digits, . _ and - are allowed")
        self.id = name
        self._home = home

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

    def lease(self) -> tuple[Lease, ObjectInfo] | None:
        """The lease, and when it was written by the store's clock."""
        with suppress(NotFoundError):
            blob = self.store.get(self.prefix + "lease.json")
            return Lease.from_json(blob.data, f"{self.url}/lease.json"), blob.info
        return None

    def statuses(self) -> list[Status]:
        """All transitions, in order."""
        keys = sorted(info.key for page in self.store.list(self.prefix + "status/") for info in page)
        return [Status.from_json(self.store.get(key).data, f"{self.url}/{key}") for key in keys]

    def look(self) -> RunView:
        """How it stands now. Raises NotFoundError, any store error."""
        record = self.record()
        names = sorted(info.key for page in self.store.list(self.prefix + "status/") for info in page)
        started = Status(0, "starting", record.created)
        status = Status.from_json(self.store.get(names[-1]).data, names[-1]) if names else started
        if status.state in FINAL:
            return RunView(record, status, None, status.state, _between(record.created, status.time))
        found = self.lease()
        lease, info = found if found is not None else (None, None)
        age = _age(self._home, info.mtime_us if info is not None else _micros(record.created))
        end = lease.time if lease is not None else status.time
        if age > LOST_S:
            return RunView(record, status, lease, "lost", _between(record.created, end))
        return RunView(record, status, lease, status.state, _between(record.created, end) + max(0.0, age))

    def delete(self) -> int:
        """Delete everything of it; returns the number of objects. ``run.json`` goes last."""
        self._home.check_writable()
        count = 0
        for page in self.store.list(self.prefix):
            keys = [info.key for info in page if info.key != self.prefix + "run.json"]
            self.store.delete(keys)
            count += len(keys)
        self.store.delete([self.prefix + "run.json"])
        return count + 1

    def _get(self, name: str) -> memoryview:
        return self.store.get(self.prefix + name).data


class Runs:
    """All runs of one home."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def ids(self) -> list[str]:
        """The newest first."""
        folders = self.home.store.list_folder(self.home.key(RUNS, "")).folders
        return sorted((folder.rstrip("/").rpartition("/")[2] for folder in folders), reverse=True)

    def find(self, text: str) -> Run:
        """The run with this id, or whose id begins or ends so, or the newest of this name; ``latest``: the newest.

        Raises:
            NotFoundError: none. InputError: the beginning or end of several.
        """
        if _ID.fullmatch(text) and Run(self.home, text).exists():
            return Run(self.home, text)
        ids = self.ids()
        named = [one for one in ids if re.fullmatch(rf"\d{{8}}-\d{{6}}-{re.escape(text)}-[0-9a-f]{{4}}", one)]
        if text == "latest" and ids:
            named = ids
        for one in named:
            if Run(self.home, one).exists():  # some stores list a folder for a while after all in it is deleted
                return Run(self.home, one)
        alike = [one for one in ids if (one.startswith(text) or one.endswith(text)) and Run(self.home, one).exists()]
        if len(alike) > 1:
            raise InputError(f"is said of {len(alike)} runs: {', '.join(alike[:5])} …", path=text, hint="say more")
        if not alike:
            raise NotFoundError("there is no such run", path=text, hint="headrace runs lists them")
        return Run(self.home, alike[0])

    def views(self, limit: int | None = None) -> Iterator[RunView]:
        """How they stand, the newest first. One that cannot be read is left out."""
        ids: Sequence[str] = self.ids()[:limit]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headrace-runs") as pool:
            yield from (view for view in pool.map(self._view, ids) if view is not None)

    def _view(self, name: str) -> RunView | None:
        with suppress(NotFoundError, InputError):
            return Run(self.home, name).look()
        return None


def _age(home: Home, mtime_us: int) -> float:
    """Seconds since then. By the clock here; where that says too long, by the store's own, which wrote the time."""
    age = time.time() - mtime_us / 1e6
    if abs(age) <= LOST_S or home.read_only:
        return age
    key = home.key(RUNS, ".clock")
    try:
        home.store.put(key, b"what time is it\n")
        return (home.store.head(key).mtime_us - mtime_us) / 1e6
    except HeadraceError:  # not allowed to write there, for one
        return age


def _between(start: str, end: str) -> float:
    return max(0.0, (_micros(end) - _micros(start)) / 1e6)


def _micros(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1e6)
