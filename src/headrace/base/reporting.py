"""Who has figures of this process to tell, for whoever writes them down: a registry, and nothing that runs.

A room offers a function that says its counters, which only grow, by name. Nothing is called until somebody reads: what
reads is set by the package's face (`headrace.__init__`), so that rooms of one rank need not know of each other.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

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


_registry = Registry()
_begin: Callable[[], None] | None = None


def offer(owner: Any, telling: Telling) -> None:
    """`owner` has counters to tell; see `Registry.add`. Lets who writes them down begin. Any thread."""
    _registry.add(owner, telling)
    if _begin is not None:
        _begin()


def told() -> list[tuple[Any, Mapping[str, float]]]:
    """What is offered in this process, told now: owners and counters. Any thread."""
    return _registry.told()


def at_offer(begin: Callable[[], None]) -> None:
    """Call `begin` whenever something is offered: it must be quick, and idempotent. One a process; set at import."""
    global _begin  # noqa: PLW0603  one a process
    _begin = begin


def _in_child() -> None:
    """A fork's counters begin at nothing: what was before it is the parent's to tell."""
    global _registry  # noqa: PLW0603  one a process
    _registry = Registry()


os.register_at_fork(after_in_child=_in_child)
