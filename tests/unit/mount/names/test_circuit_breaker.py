"""When a store that did not answer is asked again."""

from __future__ import annotations

from headrace.base.errors import DeadlineError
from headrace.mount.names.circuit_breaker import CircuitBreaker
from headrace.store import open_store

ERROR = DeadlineError("no answer")


def test_one_asks_again_after_a_pause_as_long_as_the_wait() -> None:
    now = [100.0]
    away, store, other = CircuitBreaker(lambda: now[0]), open_store("memory://away"), open_store("memory://here")
    assert away.seconds_left(store, ask=True) == 0
    assert away.failed(store, 60.0, ERROR) == 60
    assert (away.seconds_left(store), away.seconds_left(other)) == (60, 0)
    now[0] += 61
    assert away.seconds_left(store) == 0
    assert away.seconds_left(store, ask=True) == 0
    assert away.seconds_left(store, ask=True) > 0, "two find out at the same time"
    away.answered(store)
    assert away.seconds_left(store, ask=True) == away.seconds_left(store, ask=True) == 0


def test_a_short_wait_is_followed_by_a_longer_pause_and_refresh_ends_it() -> None:
    now = [100.0]
    away, store = CircuitBreaker(lambda: now[0]), open_store("memory://away")
    assert away.failed(store, 0.01, ERROR) == away.seconds_left(store) == 5
    away.forget()
    assert away.seconds_left(store) == 0
