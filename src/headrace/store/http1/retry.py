"""Trying again: exponential steps with full jitter, inside one deadline.

Source of the jitter: AWS Architecture Blog, "Exponential Backoff And Jitter". A store that asks for fewer requests
is given five times the pause.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.base.errors import DeadlineError, SlowDownError, TryAgainError
from headrace.store.http1.failures import lasting

T = TypeVar("T")

_FIRST_S = 0.05  # seconds of the first pause, at most
_LONGEST_S = 10.0  # seconds of any pause, at most


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a blocking call may take (`timeout_s`, all attempts together) and how often it is tried again."""

    timeout_s: float = 60.0
    retries: int = 8


def pause_s(attempt: int, error: TryAgainError | None = None) -> float:
    """How long to wait after failed attempt number `attempt` (from 0). `error`: for a caller that asks for fewer things
    at once by nothing but this pause.
    """
    scale = 5 if isinstance(error, SlowDownError) else 1
    return random.uniform(0, min(_LONGEST_S, _FIRST_S * scale * 2**attempt))


def persist(
    patience: Patience,
    call: Callable[[float], T],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Call until it succeeds.

    Args:
        patience: the bounds.
        call: gets its deadline, on `clock`.
        sleep: waits that many seconds.
        clock: monotonic seconds.

    Raises:
        TryAgainError: the last failure, once retries or time are spent; any other error at once.
    """
    deadline = clock() + patience.timeout_s
    attempt = 0
    while True:
        try:
            return call(deadline)
        except TryAgainError as error:
            wait = pause_s(attempt, error)
            late = clock() + wait >= deadline
            if attempt >= patience.retries or late or lasting(error):
                if late and not isinstance(error, (DeadlineError, SlowDownError)):
                    error.hint = error.hint or f"{attempt + 1} attempts in {patience.timeout_s:g} s"
                raise
            attempt += 1
        sleep(wait)
