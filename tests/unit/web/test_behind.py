"""What is done behind pages: once for all who ask, told while it goes on, and again after it failed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.base.errors import NotFoundError, TryAgainError
from headrace.base.progress import Progress
from headrace.web.behind import Behind, Underway

LONG_S = 30.0


def test_it_is_done_once_for_all_who_ask() -> None:
    behind, begun, go = Behind(), list[int](), threading.Event()

    def work(_: Progress) -> str:
        begun.append(1)
        assert go.wait(LONG_S)
        return "made"

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(behind.ask, "a", "it is made", work, wait_s=LONG_S) for _ in range(8)]
        go.set()
        assert {one.result() for one in asked} == {"made"}
    assert behind.ask("a", "", work) == "made"
    assert len(begun) == 1


def test_how_far_it_is() -> None:
    behind, there, go = Behind(), threading.Event(), threading.Event()

    def work(progress: Progress) -> int:
        progress.total(5)
        progress.advance(5)
        progress.total(100)
        progress.advance(7)
        there.set()
        assert go.wait(LONG_S)
        return 1

    assert isinstance(behind.ask("a", "it is made", work, wait_s=0), Underway)
    assert there.wait(LONG_S)
    assert behind.ask("a", "", work, wait_s=0) == Underway("it is made", 7, 100)
    with pytest.raises(TryAgainError, match="it is made"):
        behind.get("a", "", work, wait_s=0)
    go.set()
    assert behind.get("a", "", work, wait_s=LONG_S) == 1


def test_what_failed_is_told_and_tried_again() -> None:
    behind, begun = Behind(), list[int]()

    def work(_: Progress) -> int:
        begun.append(1)
        if len(begun) == 1:
            raise NotFoundError("is not there")
        return 1

    with pytest.raises(NotFoundError):
        behind.ask("a", "", work, wait_s=LONG_S)
    assert behind.ask("a", "", work, wait_s=LONG_S) == 1


def test_old_results_go() -> None:
    behind, begun = Behind(), list[int]()

    def work(_: Progress) -> int:
        begun.append(1)
        return 1

    for number in range(200):
        behind.ask(str(number), "", work, wait_s=LONG_S)
    behind.ask("199", "", work, wait_s=LONG_S)
    assert len(begun) == 200
    behind.ask("0", "", work, wait_s=LONG_S)
    assert len(begun) == 201


def test_one_that_takes_memory_at_a_time() -> None:
    behind, first, second, go = Behind(), threading.Event(), threading.Event(), threading.Event()

    def one(_: Progress) -> int:
        first.set()
        assert go.wait(LONG_S)
        assert not second.is_set()
        return 1

    def other(_: Progress) -> int:
        second.set()
        return 2

    behind.ask("a", "", one, heavy=True, wait_s=0)
    assert first.wait(LONG_S)
    assert isinstance(behind.ask("b", "", other, heavy=True, wait_s=0.2), Underway)
    go.set()
    assert behind.ask("a", "", one, heavy=True, wait_s=LONG_S) == 1
    assert behind.ask("b", "", other, heavy=True, wait_s=LONG_S) == 2
