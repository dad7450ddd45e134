"""From many threads back to one order: which finished group comes next."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from headrace.loader.pipeline.slots import Group

_Job = TypeVar("_Job")


class Gate:
    """One thread waits until something holds; others change things and knock. A knock that nobody waits for costs one
    attribute read, so it may be called for every group.

    Why nothing is missed: the waiter announces itself, *then* looks once more; the knocker changes things, *then*
    looks whether anyone waits.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self.waiting = False
        """Whether somebody is."""
        self.open = False
        """Set for good by `release`: nobody waits any more."""

    def wait(self, ready: Callable[[], bool], look_s: float | None = None) -> bool:
        """Wait until ``ready()``; False when released instead. `look_s`: seconds after which to look all the same."""
        while not self.open:
            if ready():
                return True
            with self._condition:
                self.waiting = True
                try:
                    if not ready() and not self.open:
                        self._condition.wait(look_s)
                finally:
                    self.waiting = False
        return False

    def knock(self) -> None:
        """Something changed: look again."""
        if self.waiting:
            with self._condition:
                self._condition.notify_all()

    def release(self) -> None:
        """Let the waiter go, now and ever after."""
        self.open = True
        with self._condition:
            self._condition.notify_all()


class InTurn(Generic[_Job]):
    """What waits for any of several threads: the one with the lowest number is next, of equals the one that came first.

    Bytes come as the store gives them. Were they decoded in that order, the group that everybody waits for could lie
    behind all others that are here, a whole window of them.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, _Job]] = []
        self._serial = itertools.count()
        self._tokens: SimpleQueue[None] = SimpleQueue()  # one for each that waits

    def put(self, number: int, job: _Job) -> None:
        """Any thread."""
        # Needs no lock: integers alone are compared, in C, so no other thread runs in between.
        heapq.heappush(self._heap, (number, next(self._serial), job))
        self._tokens.put(None)

    def get(self) -> _Job:
        """Wait for one. Any thread."""
        self._tokens.get()
        return heapq.heappop(self._heap)[2]

    def qsize(self) -> int:
        """How many wait."""
        return len(self._heap)

    def clear(self) -> list[_Job]:
        """Take all that wait. Who waits for one is not woken."""
        taken: list[_Job] = []
        with suppress(Empty):
            while True:
                self._tokens.get_nowait()
                taken.append(heapq.heappop(self._heap)[2])
        return taken


class Collector(Protocol):
    """The way back into order. `add` on the feeder, `finished` on any thread, `ready` and `take` on the batcher's."""

    def add(self, group: Group) -> None: ...
    def finished(self, group: Group) -> bool:
        """A group is done; whether the batcher may want it now."""
        ...

    def ready(self) -> bool: ...
    def take(self) -> Group: ...
    def pending(self) -> Iterable[Group]: ...
    def head(self) -> Group | None:
        """The group everyone waits for, None when there is none."""
        ...

    def clear(self) -> None:
        """Nobody waits for any of them."""
        ...

    def __len__(self) -> int: ...


class InOrder:
    """Groups exactly in the order they were fed."""

    def __init__(self) -> None:
        self._groups: deque[Group] = deque()

    def add(self, group: Group) -> None:
        self._groups.append(group)

    def finished(self, group: Group) -> bool:
        group.done = True
        return self.head() is group

    def ready(self) -> bool:
        first = self.head()
        return first is not None and first.done

    def take(self) -> Group:
        return self._groups.popleft()

    def head(self) -> Group | None:
        try:
            return self._groups[0]
        except IndexError:
            return None

    def pending(self) -> Iterable[Group]:
        return list(self._groups)

    def clear(self) -> None:
        self._groups.clear()

    def __len__(self) -> int:
        return len(self._groups)


class WithinWindow:
    """Groups as they finish, but none `window` or more places ahead of the oldest unfinished one."""

    def __init__(self, window: int, wake: int = 1) -> None:
        self._window, self._wake = window, wake
        self._under_way: dict[int, Group] = {}
        self._finished: deque[Group] = deque()
        self._early: list[tuple[int, Group]] = []
        self._taken: set[int] = set()
        self._oldest = 0

    def add(self, group: Group) -> None:
        self._under_way[group.number] = group

    def finished(self, group: Group) -> bool:
        group.done = True
        self._finished.append(group)
        # A knock for `wake` groups at a time is enough: what is left over comes with the oldest, which always knocks.
        return len(self._finished) >= self._wake or group.number == self._oldest

    def ready(self) -> bool:
        while self._finished:
            group = self._finished.popleft()
            heapq.heappush(self._early, (group.number, group))
        return bool(self._early) and self._early[0][0] < self._oldest + self._window

    def take(self) -> Group:
        number, group = heapq.heappop(self._early)
        del self._under_way[number]
        self._taken.add(number)
        while self._oldest in self._taken:
            self._taken.remove(self._oldest)
            self._oldest += 1
        return group

    def head(self) -> Group | None:
        return self._under_way.get(self._oldest)

    def pending(self) -> Iterable[Group]:
        return list(self._under_way.values())

    def clear(self) -> None:
        self._under_way.clear()
        self._finished.clear()
        self._early.clear()

    def __len__(self) -> int:
        return len(self._under_way)
