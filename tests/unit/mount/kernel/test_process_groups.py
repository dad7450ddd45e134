"""Who waits at a mount, by process groups."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.base.metrics import Metrics
from headrace.mount.kernel import process_groups
from headrace.mount.kernel.process_groups import NOBODY, ProcessGroups
from tests.children import running


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, set by hand."""
    now = [1000.0]
    monkeypatch.setattr(process_groups.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def other() -> Iterator[int]:
    """A process in a group of its own."""
    with running([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, process_group=0) as process:
        yield process.pid


def told(shown: ProcessGroups) -> dict[Any, tuple[object, object]]:
    return {row["group"]: (row["opened"], row["waited_s"]) for row in shown.rows()}


def test_the_time_in_which_any_request_of_a_group_waits_counts_once(clock: list[float], other: int) -> None:
    metrics = Metrics()
    shown = ProcessGroups(metrics)
    first = shown.waits(os.getpid())
    clock[0] += 1
    second, third = shown.waits(os.getpid()), shown.waits(other)
    clock[0] += 2
    shown.over(first)
    shown.over(second)
    clock[0] += 4
    assert told(shown) == {os.getpgrp(): (0, 3.0), other: (0, 6.0)}, "also while it waits"
    shown.over(third)
    clock[0] += 8
    shown.opened("cached", other)
    assert told(shown) == {os.getpgrp(): (0, 3.0), other: (1, 6.0)}
    assert (metrics.get("mount.waited_s"), metrics.get("mount.open.cached")) == (7, 1)


def test_who_is_gone_is_nobody_and_does_not_end_the_count(clock: list[float]) -> None:
    shown = ProcessGroups(Metrics())
    for pid in (0, 1 << 30):
        assert shown.waits(pid) == NOBODY
    clock[0] += 1
    shown.over(NOBODY)
    shown.over(NOBODY)
    assert told(shown) == {NOBODY: (0, 1.0)}


def test_as_many_groups_are_kept_as_are_told_of_and_none_that_waits_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_groups, "group_of", lambda pid: pid)
    shown = ProcessGroups(Metrics())
    shown.waits(1)
    for pid in range(2, 5000):
        shown.opened("cached", pid)
    groups = set(told(shown))
    assert (len(groups), 1 in groups, 4999 in groups, 2 in groups) == (1024, True, True, False)
    shown.over(1)
