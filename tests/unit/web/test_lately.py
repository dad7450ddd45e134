"""What many ask for is asked once; what does not answer is waited for no longer than so long."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.base.errors import NotFoundError
from headrace.web.asking import Asking
from headrace.web.lately import Lately


def test_who_comes_meanwhile_gets_the_same_answer() -> None:
    asked: list[int] = []
    go = threading.Event()

    def ask() -> int:
        asked.append(1)
        go.wait(10)
        return len(asked)

    known: Lately[str, int] = Lately(60, most=5)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(known.get, "a", ask) for _ in range(8)]
        go.set()
        assert {one.result() for one in answers} == {1}
    assert known.get("b", ask) == 2


def test_an_answer_is_trusted_for_a_while_and_forgotten_when_told() -> None:
    counts = iter(range(10))
    known: Lately[str, int] = Lately(60, most=5)
    assert [known.get("a", lambda: next(counts)) for _ in range(3)] == [0, 0, 0]
    known.clear()
    assert known.get("a", lambda: next(counts)) == 1
    brief: Lately[str, int] = Lately(0, most=5)
    assert [brief.get("a", lambda: next(counts)) for _ in range(2)] == [2, 3]


def test_only_the_last_are_kept() -> None:
    counts = iter(range(10))
    known: Lately[int, int] = Lately(60, most=2)
    assert [known.get(key, lambda: next(counts)) for key in (1, 2, 1, 3, 1, 2)] == [0, 1, 0, 2, 0, 3]


def test_a_failure_is_told_again_for_a_moment_but_a_defect_is_not() -> None:
    asked: list[int] = []

    def fail() -> int:
        asked.append(1)
        raise NotFoundError("gone")

    known: Lately[str, int] = Lately(60, most=5)
    for _ in range(3):
        with pytest.raises(NotFoundError):
            known.get("a", fail)
    assert len(asked) == 1
    with pytest.raises(ZeroDivisionError):
        known.get("b", lambda: 1 // 0)
    assert known.get("b", lambda: 7) == 7


def test_things_are_asked_side_by_side_and_none_twice_at_once() -> None:
    together, go, asked = threading.Barrier(2), threading.Event(), list[str]()

    def slow() -> str:
        asked.append("slow")
        go.wait(30)
        return "late"

    def fail() -> str:
        raise NotFoundError("gone")

    asking = Asking(0.5)
    works = {"one": lambda: together.wait(10), "two": lambda: together.wait(10), "slow": slow, "bad": fail}
    started = time.monotonic()
    found = asking.ask(works)
    assert {found["one"].value, found["two"].value} == {0, 1}, "each waits for the other"
    assert (found["slow"].problem, found["bad"].problem) == ("no answer within 500 ms", "gone")
    asking.ask({"slow": slow})
    assert asked == ["slow"]
    go.set()
    assert asking.ask({"slow": slow})["slow"].value == "late"
    assert time.monotonic() - started < 20
