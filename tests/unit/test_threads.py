"""The kit of worker threads, and the byte budget."""

from __future__ import annotations

import os
import threading

import pytest

from headrace.base.budget import ByteBudget
from headrace.base.threads import Crew, ForEach, by_cores


@pytest.mark.parametrize(
    ("cores", "each", "expected"),
    [(1, 1 / 4, 2), (2, 1 / 4, 2), (11, 1 / 4, 2), (16, 1 / 4, 4), (192, 1 / 4, 8), (2, 1, 2), (3, 1, 3), (192, 1, 8)],
)
def test_threads_by_cores_stay_within_their_bounds(
    monkeypatch: pytest.MonkeyPatch, cores: int, each: float, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert by_cores(each, 2, 8) == expected


def test_the_most_that_is_set_wins_over_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert by_cores(4, 32, 16) == 16  # fewer connections than threads that would wait in them


def test_a_crew_does_everything_before_it_ends() -> None:
    crew, done, lock = Crew("test", 3), list[int](), threading.Lock()

    def task(number: int) -> None:
        with lock:
            done.append(number)
        if number == 7:
            raise ValueError(number)  # costs the others nothing

    for number in range(50):
        crew.add(lambda number=number: task(number))
    crew.close(30.0)
    assert sorted(done) == list(range(50))
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-test"]


def test_a_crew_that_drops_ends_after_what_it_is_at() -> None:
    crew, begun, go_on, done = Crew("test", 1), threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        begun.set()
        go_on.wait(30)
        done.append(1)

    crew.add(first)
    crew.add(lambda: done.append(2))
    assert begun.wait(30)
    crew.close(0.0, drop=True)
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "headrace-test":
            thread.join(30)
    assert done == [1]


def test_a_forked_child_has_threads_of_its_own() -> None:
    crew, done = Crew("test", 1), threading.Event()
    crew.add(done.set)
    assert done.wait(30)
    child = os.fork()
    if child == 0:
        there = threading.Event()
        crew.add(there.set)
        os._exit(0 if there.wait(30) else 1)
    assert os.waitpid(child, 0)[1] == 0
    crew.close()


def test_each_number_is_taken_once() -> None:
    done = list[int]()
    ForEach(4).run(done.append, range(100), "test")
    assert sorted(done) == list(range(100))


def test_the_first_error_ends_all_and_is_raised() -> None:
    each, done = ForEach(4), list[int]()

    def work(number: int) -> None:
        if number == 3:
            raise ValueError("three")
        if number > 3:
            assert each.stop.wait(30)  # as work does that looks whether to end
        done.append(number)

    with pytest.raises(ValueError, match="three"):
        each.run(work, range(100), "test")
    assert len(done) < 10
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("headrace-test-")]


def test_demand_may_use_what_speculation_may_not() -> None:
    budget = ByteBudget(100)
    assert budget.take(60, demand=False)
    assert not budget.take(20, demand=False)
    assert budget.take(20)
    assert not budget.take(30)
    budget.give(80)
    assert budget.take(1000), "alone, however much it is"
    assert budget.used == 1000


@pytest.mark.parametrize("size", [60, 1000])
def test_who_holds_waits_until_there_is_room(size: int) -> None:
    budget, inside, most = ByteBudget(100), list[int](), list[int]()

    def work() -> None:
        for _ in range(50):
            with budget.hold(size):
                inside.append(1)
                most.append(budget.used)
                assert len(inside) == 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 200
    assert max(most) == min(size, 100)
    assert budget.used == 0
