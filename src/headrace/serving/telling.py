"""What a server tells of itself on its node (`headrace.serving.live`): gathered from its processes now and then.

Requests pay nothing for it: what changed is seen by asking all processes, and is written only then.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.models import Registry
from headrace.serving.live import Live, LiveModel, LiveVersion, Note, mark_of
from headrace.serving.model import Model
from headrace.serving.options import Options

_log = logging.getLogger("headrace.serving")
_EVERY_S: Final = 2.0  # seconds between looks at what has changed
_COUNTS_S: Final = 10.0
"""Where only counts have changed, they are written no more often."""
_STATES: Final = ("AVAILABLE", "LOADING", "START", "UNLOADING", "END")
"""Of several processes' states the first of these is the server's."""


class Telling:
    """A thread that keeps one server's file true. `ask`: what `of_process` gives, of each process; it may wait."""

    def __init__(self, registry: Registry, options: Options, ask: Callable[[], Sequence[Any]]) -> None:
        self._options, self._ask = options, ask
        self._home = registry.home
        self._note = Note(registry.namespace.fetcher.settings.cache.dir)
        self._started = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._told: Live | None = None
        self._at = 0.0
        self._problem = ""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        """Of the file: what was gathered before the end is not written after it."""

    def start(self, url: str, grpc: str | None) -> None:
        """Begin; `url`, `grpc`: where it answers. It is told at once."""
        threading.Thread(target=self._serve, args=(url, grpc), name="serving-telling", daemon=True).start()

    def close(self) -> None:
        """Take the file away. Does not wait for processes that are being asked. Idempotent."""
        self._ended.set()
        with self._lock:
            self._note.close()

    def _serve(self, url: str, grpc: str | None) -> None:
        about = Live(
            url, grpc, os.getpid(), self._options.processes, 0, False, self._started, self._home.url(),
            mark_of(self._home), (),
        )  # fmt: skip
        while not self._ended.is_set():
            try:
                self._tell(together(about, self._options, self._ask()))
            except Exception:
                _log.exception("what is served cannot be told on this node")
            self._ended.wait(_EVERY_S)

    def _tell(self, live: Live) -> None:
        with self._lock:
            if self._ended.is_set() or live == self._told:
                return
            only_counts = self._told is not None and _uncounted(live) == _uncounted(self._told)
            if only_counts and time.monotonic() - self._at < _COUNTS_S:
                return
            try:
                self._note.write(live)
            except (OSError, HeadraceError) as error:  # it is tried again
                if str(error) != self._problem:
                    _log.warning("what is served cannot be told on this node: %s", error)
                self._problem = str(error)
                return
            self._told, self._at, self._problem = live, time.monotonic(), ""


def of_process(models: Iterable[Model], wanted: Mapping[str, Mapping[str, int]], *, ready: bool) -> dict[str, Any]:
    """What one process serves, as JSON takes it. `wanted`: by model, what its labels should mean."""
    return {"ready": ready, "models": {one.name: _model(one, wanted.get(one.name, {})) for one in models}}


def _model(model: Model, wanted: Mapping[str, int]) -> dict[str, Any]:
    table = model.table
    states = {one.version: one for one in model.told()}
    versions: list[dict[str, Any]] = []
    for number in sorted(states.keys() | table.versions.keys(), reverse=True):
        state, there = states.get(number), table.versions.get(number)
        told = "AVAILABLE" if there is not None else state.state if state is not None else "START"
        if told == "END" and number not in wanted.values():
            continue  # it is over, and nobody asks for it
        requests, failures = there.counts.sums() if there is not None else (0, 0)
        versions.append({
            "number": number, "state": told, "reason": state.reason if state is not None and there is None else "",
            "labels": _labels(table.labels, number), "wanted": _labels(wanted, number),
            "requests": requests, "failures": failures,
        })  # fmt: skip
    return {"versions": versions, "problem": model.problem, "unloaded": model.unloaded}


def _labels(meant: Mapping[str, int], number: int) -> list[str]:
    return [label for label, one in meant.items() if one == number]


def together(about: Live, options: Options, answers: Sequence[Any]) -> Live:
    """What the processes of a server tell, as one. `answers`: of those that gave one; what is no such answer is not."""
    told = [one for one in answers if isinstance(one, dict)]
    models: list[LiveModel] = []
    for route in options.routes:
        here = [one["models"][route.model] for one in told]
        versions: dict[int, LiveVersion] = {}
        for one in (version for model in here for version in model["versions"]):
            found = _version(one)
            versions[found.number] = _both(versions[found.number], found) if found.number in versions else found
        problem = next((one["problem"] for one in here if one["problem"]), "")
        unloaded = any(one["unloaded"] for one in here)
        ordered = tuple(versions[number] for number in sorted(versions, reverse=True))
        models.append(LiveModel(route.model, route.text, ordered, problem, unloaded))
    ready = len(told) == options.processes and all(one["ready"] for one in told)
    return replace(about, answering=len(told), ready=ready, models=tuple(models))


def _version(told: Mapping[str, Any]) -> LiveVersion:
    return LiveVersion(
        told["number"], told["state"], tuple(told["labels"]), tuple(told["wanted"]),
        1 if told["state"] == "AVAILABLE" else 0, told["requests"], told["failures"], told["reason"],
    )  # fmt: skip


def _both(one: LiveVersion, other: LiveVersion) -> LiveVersion:
    return LiveVersion(
        one.number, min(one.state, other.state, key=_STATES.index), _either(one.labels, other.labels),
        _either(one.wanted, other.wanted), one.processes + other.processes, one.requests + other.requests,
        one.failures + other.failures, one.reason or other.reason,
    )  # fmt: skip


def _either(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*some, *others)))


def _uncounted(live: Live) -> Live:
    return replace(live, models=tuple(
        replace(model, versions=tuple(replace(one, requests=0, failures=0) for one in model.versions))
        for model in live.models
    ))  # fmt: skip
