"""What the aliases of the served models mean: asked of the store again and again, by one conditional GET each time.

On a node one process does it for all. What was heard last is kept in the node's cache, so that a server that starts
while the store is away serves what it served before.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.models import Pointer, Registry
from headrace.serving.options import Options, Route

_log = logging.getLogger("headrace.serving")
_SPREAD: Final = 0.1
"""Part of the interval by which it varies, so that machines that were started together do not ask together."""
_PATIENCE_S: Final = 2.0
"""How long a start waits for the store before it serves what was served last."""
Heard = Callable[[str, "Mapping[str, int]", str], None]


@dataclass(slots=True)
class _Followed:
    route: Route
    pointer: Pointer | None = None
    labels: Mapping[str, int] | None = None
    problem: str = ""


class Following:
    """A thread that tells `heard` of each model what its ways mean, when that changes, and why it does not know."""

    def __init__(self, registry: Registry, options: Options, heard: Heard) -> None:
        self._registry, self._interval, self._heard = registry, options.interval, heard
        self._followed = [_Followed(route) for route in options.routes]
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="serving-following", daemon=True)
        self.requests = 0

    def start(self) -> None:
        """Begin; the first look is at once."""
        self._thread.start()
        meanwhile = threading.Timer(_PATIENCE_S, self._meanwhile)
        meanwhile.daemon = True
        meanwhile.start()

    def close(self) -> None:
        """Ask no more. Does not wait for a request that is under way."""
        self._ended.set()

    def _serve(self) -> None:
        while not self._ended.is_set():
            for one in self._followed:
                self._look(one)
            self._ended.wait(self._interval * random.uniform(1 - _SPREAD, 1 + _SPREAD))

    def _look(self, one: _Followed) -> None:
        try:
            labels, problem = self._labels(one)
        except HeadraceError as error:
            labels, problem = one.labels, f"the model's aliases cannot be read: {error}"
            if labels is None:
                labels = self._remembered(one.route)
        except Exception as error:
            _log.exception("following %s failed", one.route.model)
            labels, problem = one.labels, f"the model's aliases cannot be read: {error}"
        self._tell(one, labels, problem)

    def _meanwhile(self) -> None:
        """The store has not answered yet, which it may not do for long: what it said the last time."""
        for one in self._followed:
            if one.labels is None and (labels := self._remembered(one.route)) is not None:
                self._tell(one, labels, "the model's aliases are not known yet: those of the last time are taken")

    def _tell(self, one: _Followed, labels: Mapping[str, int] | None, problem: str) -> None:
        with self._lock:
            if self._ended.is_set() or (labels, problem) == (one.labels, one.problem):
                return
            if problem and problem != one.problem:
                _log.warning("%s: %s", one.route.model, problem)
            if not problem and labels != one.labels:
                self._remember(one.route, labels or {})
            one.labels, one.problem = labels, problem
            self._heard(one.route.model, labels or {}, problem)

    def _labels(self, one: _Followed) -> tuple[Mapping[str, int] | None, str]:
        """What each way means; and what is wrong with one."""
        fixed = {way.label: way.number for way in one.route.ways if way.number is not None}
        if not one.route.ways:
            if one.labels:
                return one.labels, ""  # the latest at the start, and no other
            self.requests += 1
            return {"latest": self._registry.resolve(one.route.model).number}, ""
        if len(fixed) == len(one.route.ways):
            return fixed, ""
        self.requests += 1
        if one.pointer is None:
            one.pointer = self._registry.pointer(one.route.model)
        else:
            one.pointer = self._registry.newer(one.pointer) or one.pointer
        found = fixed | {way.label: one.pointer.aliases[way.label] for way in one.route.ways
                         if way.number is None and way.label in one.pointer.aliases}  # fmt: skip
        missing = [way.label for way in one.route.ways if way.label not in found]
        problem = f"no version has the alias {', '.join(missing)}" if missing else ""
        kept = {label: one.labels[label] for label in missing if one.labels and label in one.labels}
        return found | kept, problem

    # What was heard last, on this node

    def _place(self, route: Route) -> str:
        home = self._registry.home
        told = f"{home.store.identity}\n{home.url('models')}\n{route.model}"
        name = hashlib.blake2b(told.encode(), digest_size=12).hexdigest()
        return os.path.join(self._registry.namespace.fetcher.settings.cache.dir, "serving", f"{name}.json")

    def _remember(self, route: Route, labels: Mapping[str, int]) -> None:
        place = self._place(route)
        try:
            known = _read(place)
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            beside = f"{place}.{os.getpid()}"
            with open(beside, "w") as file:
                json.dump({**known, **labels}, file)
            os.replace(beside, place)
        except OSError as error:
            _log.warning("what %s means could not be kept on this node: %s", route.model, error)

    def _remembered(self, route: Route) -> Mapping[str, int] | None:
        known = _read(self._place(route))
        ways = [way.label for way in route.ways] or ["latest"]
        fixed = {way.label: way.number for way in route.ways if way.number is not None}
        return {label: known[label] for label in ways if label in known} | fixed or None


def _read(place: str) -> dict[str, int]:
    try:
        with open(place) as file:
            told: Any = json.load(file)
        return {str(label): int(number) for label, number in told.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
