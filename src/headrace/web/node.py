"""This machine: how far its stores are, its cache, its mounts, its servers of models, what runs have claimed, what is
being sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from headrace.base.errors import NotFoundError
from headrace.base.settings import Settings
from headrace.cache.status import CacheStatus
from headrace.jobs.claims import claimed
from headrace.jobs.folder import every
from headrace.mount import LiveMount, all_live, orphans_of, unpublished_of
from headrace.namespace import Mount, Namespace
from headrace.sync import statuses
from headrace.web.asking import Answer, Asking
from headrace.web.lately import Lately
from headrace.web.servers import ServerHere

LOOK_S: Final = 10.0
"""No store is asked more often, however many look."""
_PATIENCE_S: Final = 3.0  # seconds that a store has to answer
_NOTHING: Final = "headrace-round-trip"
"""A key that nobody has: that it is not there is the shortest of answers."""


@dataclass(frozen=True, slots=True)
class Reached:
    """An attached store. `seconds`: of one round trip; None: it did not answer. `problem`: what it said."""

    path: str
    url: str
    read_only: bool
    seconds: float | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class MountHere:
    """One that serves a folder. `started`: RFC 3339; `pending`: files not published yet; `left`: by crashes."""

    mountpoint: str
    path: str
    pid: int
    started: str
    read_only: bool
    passthrough: bool
    pending: int
    pending_bytes: int
    left: int


@dataclass(frozen=True, slots=True)
class ClaimHere:
    """What a run has for itself: ``gpu-0``. `run`: its id, None where only the process is known."""

    name: str
    pid: int
    run: str | None


@dataclass(frozen=True, slots=True)
class Sending:
    """A folder that is being sent.

    `run`: of which run of this home it is, None: of none. `files`, `bytes`: not sent yet; `oldest`: seconds since the
    first of these changes; `updated`: RFC 3339.
    """

    name: str
    url: str
    state: str
    run: str | None
    files: int
    bytes: int
    oldest: float
    updated: str | None


@dataclass(frozen=True, slots=True)
class Look:
    """All of it. `problems`: parts that could not be told, by name."""

    stores: tuple[Reached, ...]
    cache: CacheStatus | None
    mounts: tuple[MountHere, ...]
    servers: tuple[ServerHere, ...]
    claims: tuple[ClaimHere, ...]
    sending: tuple[Sending, ...]
    problems: dict[str, str]


class Node:
    """Any thread: who comes while it is looked at waits for that look."""

    def __init__(
        self, settings: Settings, namespace: Namespace, servers: Callable[[], tuple[ServerHere, ...]]
    ) -> None:
        self._settings, self._namespace, self._servers = settings, namespace, servers
        self._asking = Asking(_PATIENCE_S)
        self._met: set[str] = set()
        self._looks: Lately[str, Look] = Lately(LOOK_S, most=1)

    def look(self) -> Look:
        """How it stands, at most ten seconds ago. Takes three seconds at most."""
        return self._looks.get("", self._look)

    def _look(self) -> Look:
        mounts = self._namespace.mounts()
        parts: dict[str, Callable[[], Any]] = {
            "cache": self._cache,
            "mounts": self._mounts,
            "servers": self._servers,
            "claims": self._claims,
            "sending": self._sending,
        }
        works = parts | {f"store {mount.path}": partial(self._reach, mount) for mount in mounts}
        told = self._asking.ask(works)
        stores = tuple(_reached(mount, told[f"store {mount.path}"]) for mount in mounts)
        problems = {name: problem for name in parts if (problem := told[name].problem) is not None}
        return Look(
            stores, told["cache"].value, told["mounts"].value or (), told["servers"].value or (),
            told["claims"].value or (), told["sending"].value or (), problems,
        )  # fmt: skip

    def _reach(self, mount: Mount) -> float:
        """Seconds of one round trip; the first time there is one before, which makes the connection."""
        store = self._namespace.resolve(mount.path).store
        seconds = 0.0
        for _ in range(1 if mount.path in self._met else 2):
            started = time.perf_counter()
            with suppress(NotFoundError):
                store.head(_NOTHING)
            seconds = time.perf_counter() - started
        self._met.add(mount.path)
        return seconds

    def _cache(self) -> CacheStatus | None:
        if not self._settings.cache.size:
            return None
        cache = self._namespace.fetcher.cache
        return cache.status() if cache is not None else None

    def _mounts(self) -> tuple[MountHere, ...]:
        return tuple(map(_mounted, all_live(self._settings)))

    def _claims(self) -> tuple[ClaimHere, ...]:
        runs = {one.pid: one.id for one in every(self._settings.run.state) if one.pid}
        found = claimed(os.path.join(self._settings.run.cache, "claims"))
        return tuple(ClaimHere(one.name, one.pid, runs.get(one.pid)) for one in found)

    def _sending(self) -> tuple[Sending, ...]:
        return (*self._of_runs(), *self._of_syncs())

    def _of_runs(self) -> Iterator[Sending]:
        home = f"{self._settings.home.rstrip('/')}/runs/" if self._settings.home else None
        for one in every(self._settings.run.state):
            told = list(statuses(os.path.join(one.path, "sync")))
            files, size = sum(each.files for each in told), sum(each.bytes for each in told)
            oldest = max((each.oldest for each in told), default=0.0)
            updated = max((each.updated or "" for each in told), default="") or None
            run = one.id if home is not None and one.url.startswith(home) else None
            state = "left by a runner that is gone" if one.pid is None else "under way"
            yield Sending(one.id, one.url, state, run, files, size, oldest, updated)

    def _of_syncs(self) -> Iterator[Sending]:
        for one in statuses(self._settings.sync.state):
            yield Sending(one.folder, one.url, one.state, None, one.files, one.bytes, one.oldest, one.updated)


def _reached(mount: Mount, answer: Answer) -> Reached:
    return Reached(mount.path, mount.url, mount.read_only, answer.value, answer.problem)


def _mounted(one: LiveMount) -> MountHere:
    pending, left = unpublished_of(one), orphans_of(one)
    started = f"{datetime.fromtimestamp(one.started, UTC):%Y-%m-%dT%H:%M:%SZ}"
    size = sum(int(each.get("bytes") or 0) for each in pending)
    return MountHere(
        one.mountpoint, one.path, one.pid, started, one.read_only, one.passthrough, len(pending), size, len(left)
    )
