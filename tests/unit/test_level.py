"""How many requests are kept in flight, against simulated stores: each answer after so long, so many a second."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from headrace.base.level import Level
from headrace.fetch.level import FIRST

TICK = 0.02
DISTANCES = [0.001, 0.02, 0.2, 0.6]


class Simulated:
    """A store that answers after `late()` seconds, `most` requests a second at best, and a reader that never rests."""

    def __init__(self, level: Level, late: Callable[[], float], most: float = float("inf")) -> None:
        self.level, self.late, self.gap = level, late, 1 / most
        self.now = self.free_at = 0.0
        self.under_way: list[float] = []
        self.answered = 0

    def run(self, seconds: float, *, waiting: bool = True) -> int:
        """So long; returns how many answers came."""
        until, before = self.now + seconds, self.answered
        while self.now < until:
            self.now += TICK
            while self.under_way and self.under_way[0] <= self.now:
                begun = heapq.heappop(self.under_way)
                self.level.work += 110_000
                self.level.answers += 1
                self.answered += 1
                if waiting:
                    self._ask(begun)
            while waiting and len(self.under_way) < self.level.limit:
                self._ask(self.now)
            self.level.tick(self.now, active=len(self.under_way), waiting=waiting)
        return self.answered - before

    def stand_still(self, seconds: float) -> None:
        """The whole machine, store and reader: what is under way comes so much later."""
        self.now, self.free_at = self.now + seconds, self.free_at + seconds
        self.under_way = [due + seconds for due in self.under_way]

    def _ask(self, now: float) -> None:
        if len(self.under_way) < self.level.limit:
            self.free_at = max(self.free_at, now) + self.gap
            heapq.heappush(self.under_way, max(now + self.late(), self.free_at))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("spread", [0.05, 0.9])
def test_all_places_are_used_however_far_the_store_is(distance: float, spread: float) -> None:
    chance = random.Random(1)
    level = Level(64, FIRST)
    store = Simulated(level, lambda: distance * (1 + spread * (2 * chance.random() - 1)))
    store.run(0.8 + 5 * distance)
    assert level.limit == 64


@pytest.mark.parametrize("distance", DISTANCES)
def test_no_more_are_sent_than_bring_something(distance: float) -> None:
    """What a place brings is known: sixteen of them are all that this store can do."""
    chance = random.Random(2)
    level = Level(256, FIRST)
    store = Simulated(level, lambda: distance * chance.uniform(0.95, 1.05), most=16 / distance)
    limits = []
    for _ in range(60):
        store.run(0.5)
        limits.append(level.limit)
    assert sorted(limits)[len(limits) // 2] <= 48, limits


def test_a_trial_that_brought_nothing_is_undone() -> None:
    level = Level(64, FIRST)
    store = Simulated(level, lambda: 0.01, most=800)
    tried = set()
    for _ in range(100):
        store.run(0.1)
        tried.add(level.limit)
    assert {16, 32} <= tried, "it looks now and then whether more would help"


@pytest.mark.parametrize("moment", [0.2, 0.28, 0.4, 0.48])
def test_a_standstill_while_doubling_does_not_keep_the_level_low(moment: float) -> None:
    """The trial that it falls into looks like one that brought nothing."""
    level = Level(64, FIRST)
    store = Simulated(level, lambda: 0.02)
    store.run(moment)
    tried = level.limit
    assert tried > 16
    store.stand_still(0.25)
    store.run(0.2)
    assert level.limit == tried // 2, "the trial is undone"
    store.run(1)
    assert level.limit == 64, "as without the standstill"


def test_trials_that_bring_nothing_become_rare_until_one_brings_something() -> None:
    level = Level(64, FIRST)
    store = Simulated(level, lambda: 0.01, most=800)
    begun, limit = [], level.limit
    while store.now < 20:
        store.run(TICK)
        if level.limit > limit:
            begun.append(store.now)
        limit = level.limit
    waits = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert waits[0] < 1, waits
    assert waits[:4] == sorted(waits[:4]), waits
    assert all(3 <= wait < 4 for wait in waits[4:]), waits

    store.gap = 0  # from now on the store can do more
    while level.limit <= 24:
        store.run(TICK)
    store.run(0.1)  # into the next trial
    store.stand_still(0.25)
    store.run(0.2)
    assert level.limit == 24, "the trial is undone"
    store.run(1)
    assert level.limit == 64


def test_slow_down_halves_once_and_waits() -> None:
    level = Level(64, FIRST)
    store = Simulated(level, lambda: 0.01)
    store.run(3)
    assert level.limit == 64
    level.slow_down(store.now)
    level.slow_down(store.now + 0.1)
    assert level.limit == 32
    store.run(0.9)
    assert level.limit == 32
    store.run(3)
    assert level.limit > 32


def test_a_pause_is_no_reason_to_send_more() -> None:
    """After it the same rate looks like growth, if the pause counts as time in which little came."""
    level = Level(256, FIRST)
    store = Simulated(level, lambda: 0.01, most=1600)
    store.run(5)
    limits = []
    for _ in range(20):
        store.run(2, waiting=False)
        store.run(0.4)
        limits.append(level.limit)
    assert sorted(limits)[len(limits) // 2] <= 48, limits


def test_a_reader_that_asks_for_little_changes_nothing() -> None:
    level = Level(64, FIRST)
    store = Simulated(level, lambda: 0.01)
    for _ in range(50):
        store.under_way = [store.now + 0.01]
        store.run(0.2, waiting=False)
    assert level.limit == 16
