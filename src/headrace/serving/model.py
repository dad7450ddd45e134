"""What one model is to requests: its loaded versions, which label means which, and who gets the next request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.base.errors import InputError, NotFoundError, TryAgainError
from headrace.serving.batching import Lane
from headrace.serving.calls import Call
from headrace.serving.counts import Counts
from headrace.serving.options import Route
from headrace.serving.protocols.tensorflow_rest import VersionStatus
from headrace.serving.tensors import Signature

_KEPT: Final = 10
"""States of versions that have gone."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version that is loaded. `close` lets its runtime and its files go."""

    model: str
    number: int
    lane: Lane
    counts: Counts
    signatures: Mapping[str, Signature]
    default: str
    platform: str
    close: Callable[[], None]
    improve: Callable[[], bool] | None = None
    """Makes a quicker runtime behind the present one, where there is one; False: there was nothing to do."""

    def check(self, call: Call) -> None:
        """Raises InputError: this version takes other inputs; the one that does not fit is named."""
        signature = self.signatures.get(call.signature)
        if signature is None:
            raise InputError(f"signature_name: the model has no {call.signature!r}", hint=", ".join(self.signatures))
        signature.check(call.inputs)


@dataclass(frozen=True, slots=True)
class Table:
    """What is served now; replaced whole."""

    versions: Mapping[int, Version] = field(default_factory=dict[int, Version])
    labels: Mapping[str, int] = field(default_factory=dict[str, int])

    def labelled(self, label: str) -> Version | None:
        """The version of an alias or of a number that is routed to."""
        number = self.labels.get(label)
        return None if number is None else self.versions.get(number)


class Model:
    """A model that is served, or will be. Any thread reads; its swapper alone writes."""

    def __init__(self, route: Route) -> None:
        self.name = route.model
        self.route = route
        self.table = Table()
        self.states: dict[int, VersionStatus] = {}
        self.problem = ""
        self.swaps = 0
        self.refused = 0
        self.unloaded = False
        self._credit = [0.0] * len(route.ways)
        self._lock = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether a request that names no version gets an answer."""
        ways, table = self.route.ways, self.table
        if not ways:
            return bool(table.versions)
        return any(way.weight and table.labelled(way.label) for way in ways)

    def say(self, number: int, state: str, reason: str = "") -> None:
        """What has become of a version."""
        with self._lock:
            self.states.pop(number, None)
            self.states[number] = VersionStatus(number, state, reason)
            over = [one for one, was in self.states.items() if was.state == "END"][:-_KEPT]
            for one in over:
                del self.states[one]

    def told(self) -> list[VersionStatus]:
        """The states of all versions that were heard of lately."""
        with self._lock:
            return list(self.states.values())

    def pick(self, number: int | None = None, label: str | None = None) -> Version:
        """The version that a request goes to: the one it names, or one by the route's shares.

        Raises NotFoundError: it names one that is not served. TryAgainError: none is loaded yet.
        """
        table = self.table
        if number is not None or label is not None:
            found = table.versions.get(number) if number is not None else table.labelled(label or "")
            if found is not None:
                return found
            self._absent(number, label)
        ways = self.route.ways
        if len(ways) < 2:
            for found in table.versions.values():
                return found
            raise self._not_yet()
        return self._shared(table)

    def shadow(self) -> Version | None:
        """The version that is asked too, and whose answers nobody gets."""
        for way in self.route.ways:
            if way.shadow:
                return self.table.labelled(way.label)
        return None

    def _shared(self, table: Table) -> Version:
        """By shares, exactly: each way earns its share of every request, and who has most pays for this one."""
        ways = self.route.ways
        there = [
            (index, found) for index, way in enumerate(ways) if way.weight and (found := table.labelled(way.label))
        ]
        if not there:
            raise self._not_yet()
        whole = sum(ways[index].weight for index, _ in there)
        with self._lock:
            for index, _ in there:
                self._credit[index] += ways[index].weight / whole
            best, found = max(there, key=lambda one: self._credit[one[0]])
            self._credit[best] -= 1
        return found

    def _absent(self, number: int | None, label: str | None) -> None:
        if not self.ready and not self.unloaded:
            raise self._not_yet()
        what = f"version {number}" if number is not None else f"alias {label!r}"
        known = ", ".join(str(one) for one in self.table.versions) or "none"
        raise NotFoundError(f"the model {self.name!r} is not served with the {what}", hint=f"versions here: {known}")

    def _not_yet(self) -> NotFoundError | TryAgainError:
        if self.unloaded:
            return NotFoundError(f"the model {self.name!r} was unloaded", hint="load it again")
        failed = [one for one in self.told() if one.reason]
        why = f": {failed[-1].reason}" if failed else f": {self.problem}" if self.problem else ""
        return TryAgainError(f"the model {self.name!r} is not loaded yet{why}", hint="ask again")
