"""Files of ``.headrace/`` shown under a node id for each content."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headrace.base.metrics import Metrics
from headrace.mount import mount_stats
from headrace.mount.mount_stats import MountStats, StatsVersions

NODE = mount_stats.IDS[b"stats.json"]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> tuple[StatsVersions, Any]:
    """With a clock that is set by hand, in seconds."""
    times = [1000.0]
    monkeypatch.setattr(mount_stats.time, "time_ns", lambda: int(times[0] * 1e9))
    numbers = itertools.count()
    told = MountStats(Metrics(), {}, {"number": lambda: next(numbers)}, {})
    return StatsVersions(told), lambda now: times.__setitem__(0, now)


def test_a_version_stays_what_it_was_and_goes_when_it_is_forgotten(versions: tuple[StatsVersions, Any]) -> None:
    shown, at = versions
    first, old = shown.looked_up(NODE)
    assert shown.looked_up(NODE) == (first, old), "within a second: the same"
    at(1002.0)
    second, new = shown.looked_up(NODE)
    assert (second != first, new.content != old.content) == (True, True)
    assert (shown.get(first), shown.get(second)) == (old, new), "whoever has the old one open reads on in it"
    assert shown.forget(first, 1)
    assert shown.get(first) == old, "known once more"
    assert shown.forget(first, 1)
    assert (shown.get(first), shown.get(second)) == (None, new)
    assert not shown.forget(first, 1)


def test_what_is_forgotten_is_made_anew(versions: tuple[StatsVersions, Any]) -> None:
    shown, _ = versions
    first, old = shown.looked_up(NODE)
    assert shown.forget(first, 1)
    second, new = shown.looked_up(NODE)
    assert (second != first, new.content != old.content) == (True, True)
    assert shown.get(4096) is None
    assert not shown.forget(4096, 1)


def test_a_clock_that_is_set_back_keeps_nothing(versions: tuple[StatsVersions, Any]) -> None:
    shown, at = versions
    first, old = shown.looked_up(NODE)
    at(400.0)
    second, new = shown.looked_up(NODE)
    assert (second != first, new.content != old.content) == (True, True)
