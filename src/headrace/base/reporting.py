"""Who has figures of this process to tell, for whoever writes them down: a registry, and nothing that runs.

A room offers a function that says its counters, which only grow, by name. Nothing is called until somebody reads: what
reads is set by the package's face (`headrace.__init__`), so that rooms of one rank need not know of each other.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

Telling = Callable[[Any], Mapping[str, float]]
"""Given its owner: counters by name. Called on the reader's thread, now and then."""


class Registry:
    """Owners and what tells their counters. Any thread. An owner that is gone is forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tellers: weakref.WeakKeyDictionary[Any, Telling] = weakref.WeakKeyDictionary()

    def add(self, owner: Any, telling: Telling) -> None:
        """Offer figures. Once more changes nothing. `telling` must not hold `owner`."""
        with self._lock:
            self._tellers[owner] = telling

    def told(self) -> list[tuple[Any, Mapping[str, float]]]:
        """What each owner tells now."""
        with self._lock:
            tellers = list(self._tellers.items())
        return [(owner, telling(owner)) for owner, telling in tellers]


class Standing(Protocol):
    """Who hands data to a loop."""

    def standing(self) -> tuple[int, int, int]:
        """Its number, its epoch, and how many samples of its share of that the loop has."""
        ...


_registry = Registry()
_begin: Callable[[], None] | None = None
_facts: dict[str, Mapping[str, Any]] = {}
_latest: weakref.ref[Standing] | None = None


def offer(owner: Any, telling: Telling) -> None:
    """`owner` has counters to tell; see `Registry.add`. Lets who writes them down begin. Any thread."""
    _registry.add(owner, telling)
    if _begin is not None:
        _begin()


def told() -> list[tuple[Any, Mapping[str, float]]]:
    """What is offered in this process, told now: owners and counters. Any thread."""
    return _registry.told()


def fact(name: str, told: Mapping[str, Any]) -> None:
    """Something to be written down once, ready for JSON, as ``<name>….json``. Any thread."""
    _facts[name] = told
    if _begin is not None:
        _begin()


def facts() -> dict[str, Mapping[str, Any]]:
    """What was told so far, by name. Any thread."""
    return dict(_facts)


def handed(by: Standing) -> None:
    """A loop has got the next batch of `by`. Called for every batch: it does nothing else. Any thread."""
    global _latest  # noqa: PLW0603  one a process
    _latest = weakref.ref(by)


def standing() -> tuple[int, int, int] | None:
    """Of who handed the latest batch of this process; None: nobody did. Any thread."""
    latest = _latest() if _latest is not None else None
    return None if latest is None else latest.standing()


def at_offer(begin: Callable[[], None]) -> None:
    """Call `begin` whenever something is offered: it must be quick, and idempotent. One a process; set at import."""
    global _begin  # noqa: PLW0603  one a process
    _begin = begin


def _in_child() -> None:
    """A fork's counters begin at nothing: what was before it is the parent's to tell."""
    global _registry, _latest
    _registry, _latest = Registry(), None
    _facts.clear()


os.register_at_fork(after_in_child=_in_child)
