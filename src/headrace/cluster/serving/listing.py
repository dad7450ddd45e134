"""Where clients find a service: one small object in the home, written by who keeps the service, polled by who asks.

    <home>/services/<name>.json
    {"format_version": 1, "name", "models", "scale", "wanted", "keeper", "time", "replicas": [
        {"name", "state", "url", "grpc", "node", "pid", "requests", "under_way", "why"}, …]}

It is written when a replica's state is another, and every minute: one whose `time` is three minutes old has nobody who
keeps it. Replicas in the state ``ready`` are to be asked. No token is in it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from headrace.base.errors import ChangedError, CorruptError, HeadraceError, NotFoundError
from headrace.cluster.serving.told import ReplicaTold, ServiceTold
from headrace.namespace.home import Home
from headrace.store.protocol import Blob
from headrace.tracking.record import now

SERVICES: Final = "services"
"""Below the home."""
FORMAT_VERSION: Final = 1
_AGAIN_S: Final = 60.0  # seconds between writes of what has not changed: it tells that the keeper is at work
_RETRY_S: Final = 2.0  # seconds before a write that failed is tried again
_TRIES: Final = 5
"""To say that the service has ended; then it is forgotten after `_STALE_S`."""
_STALE_S: Final = 180.0
"""Seconds: three writes that did not come."""


def read_listing(home: Home, name: str) -> ServiceTold:
    """What the home says of a service. Raises NotFoundError: nothing. CorruptError."""
    try:
        return _read(home.store.get(home.key(SERVICES, f"{name}.json")), home.url(SERVICES, f"{name}.json"))
    except NotFoundError as error:
        hint = "headrace serve --list tells which there are"
        raise NotFoundError("there is no service of this name", path=name, hint=hint) from error


def all_listings(home: Home | None = None) -> list[ServiceTold]:
    """Of all services whose keeper lives, by name; `home` None: that of the settings. Raises any store error."""
    home = home or Home.of()
    keys = [info.key for page in home.store.list(home.key(SERVICES, "")) for info in page]
    names = [key.rpartition("/")[2].removesuffix(".json") for key in keys if key.endswith(".json")]
    return [told for told in (read_listing(home, name) for name in sorted(names)) if is_kept(told)]


def is_kept(told: ServiceTold) -> bool:
    """Whether who wrote it has been heard of lately."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(told.time)).total_seconds() < _STALE_S
    except ValueError:
        return False


def ready_urls(home: Home, name: str) -> list[str]:
    """Those replicas that are to be asked now. One request. Raises as `read_listing`."""
    return [one.url for one in read_listing(home, name).ready if one.url is not None]


def newer(home: Home, name: str, version: str | None) -> tuple[ServiceTold, str] | None:
    """What the home says, and its version, where that is not `version`: one conditional GET. None: it still is.

    Raises as `read_listing`.
    """
    key, url = home.key(SERVICES, f"{name}.json"), home.url(SERVICES, f"{name}.json")
    blob = home.store.get(key) if version is None else home.store.get_if_changed(key, version)
    return None if blob is None else (_read(blob, url), blob.info.version)


class Listing:
    """The object of one service, kept up to date by a thread of its own: the store may be away. Any thread.

    Args:
        home: where it is.
        name: of the service.
        keeper: whose it is.
    """

    def __init__(self, home: Home, name: str, keeper: str) -> None:
        self._home, self._name, self._keeper = home, name, keeper
        self._changed = threading.Condition()
        self._wanted: ServiceTold | None = None
        self._urgent = self._closing = False
        self._written: ServiceTold | None = None
        self._version: str | None = None
        self._problem = ""
        self._thread = threading.Thread(target=self._serve, name="headrace-listing", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Why it cannot be written; empty: it can."""
        return self._problem

    def tell(self, told: ServiceTold) -> None:
        """How the service is now; written at once if other replicas are to be asked."""
        with self._changed:
            self._wanted = told
            if self._written is None or _states(self._written) != _states(told):
                self._urgent = True
                self._changed.notify_all()

    def without(self, replica: str) -> bool:
        """Whether clients are no longer told to ask it."""
        with self._changed:
            return self._written is not None and all(one.name != replica for one in self._written.ready)

    def close(self) -> None:
        """The service has ended: it is listed no more. May wait for the store."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _serve(self) -> None:
        pause = _AGAIN_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._urgent or self._closing, pause)
                told, self._urgent = self._wanted, False
            if self._closing:
                break
            if told is not None:
                pause = _AGAIN_S if self._works(partial(self._write, told)) else _RETRY_S
        for _ in range(_TRIES):
            if self._works(self._delete):
                break
            time.sleep(_RETRY_S)

    def _works(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except HeadraceError as error:
            self._problem = str(error)
        except Exception as error:
            self._problem = f"{type(error).__name__}: {error}"
        else:
            self._problem = ""
        return not self._problem

    def _write(self, told: ServiceTold) -> None:
        name = f"{self._name}.json"
        told = replace(told, keeper=self._keeper, time=now())
        body = json.dumps({"format_version": FORMAT_VERSION, **asdict(told)}).encode()
        try:
            self._version = self._home.replace(body, self._version, SERVICES, name).version
        except ChangedError:  # of a keeper before us; or what we wrote came without its answer
            self._version, found = self._look()
            if found is not None and found.keeper != self._keeper and is_kept(found):
                raise
            self._version = self._home.replace(body, self._version, SERVICES, name).version
        with self._changed:
            self._written = told

    def _look(self) -> tuple[str | None, ServiceTold | None]:
        try:
            blob = self._home.store.get(self._home.key(SERVICES, f"{self._name}.json"))
            return blob.info.version, _read(blob, self._home.url(SERVICES, f"{self._name}.json"))
        except NotFoundError:
            return None, None

    def _delete(self) -> None:
        _, found = self._look()
        if found is not None and found.keeper == self._keeper:
            self._home.store.delete([self._home.key(SERVICES, f"{self._name}.json")])


def _states(told: ServiceTold) -> list[tuple[str, str, str]]:
    return [(one.name, one.state, one.why) for one in told.replicas]


def _read(blob: Blob, url: str) -> ServiceTold:
    try:
        body: dict[str, Any] = json.loads(bytes(blob.data))
        if body["format_version"] > FORMAT_VERSION:
            raise CorruptError("was written by a newer headrace", path=url, hint="update headrace here")
        names = ("name", "scale", "wanted", "keeper", "time")
        replicas = tuple(_replica(one) for one in body["replicas"])
        return ServiceTold(models=tuple(body["models"]), replicas=replicas, **{name: body[name] for name in names})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"is no list of a service: {error}", path=url) from error


def _replica(body: dict[str, Any]) -> ReplicaTold:
    return ReplicaTold(**{name: body[name] for name in ReplicaTold.__slots__})


def changes(home: Home, name: str, pause: threading.Event, interval: float) -> Iterator[ServiceTold]:
    """What the home says, now and whenever it is something else, until `pause` is set. One conditional GET an interval.

    A service that is away for now is waited for. Raises DeniedError, CorruptError.
    """
    version: str | None = None
    while not pause.is_set():
        try:
            found = newer(home, name, version)
        except NotFoundError:
            found, version = None, None
        if found is not None:
            told, version = found
            yield told
        pause.wait(interval)
