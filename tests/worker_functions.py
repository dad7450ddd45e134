"""Functions of samples for worker processes: they import this, so it imports little."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np

DEADLY = (7, 23)
_KEPT: list[Any] = []


def decode(sample: Any) -> Any:
    return {"__key__": sample["__key__"], "x": np.frombuffer(sample["x"], "u1").astype("f4"), "by": os.getpid()}


def number(sample: Any) -> int:
    return int(sample["__key__"])


def decode_some(sample: Any) -> Any:
    """Raises for one, and gives what cannot be sent back for another."""
    if number(sample) == 7:
        raise ValueError("not today")
    return threading.Lock() if number(sample) == 9 else decode(sample)


def with_a_lock(sample: Any) -> Any:
    """In one."""
    return {**sample, "lock": threading.Lock()} if number(sample) == 11 else sample


def decode_or_die(sample: Any) -> Any:
    if number(sample) in DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    return decode(sample)


def keep_and_compare(sample: Any) -> Any:
    """Looks at what it was given before, of which the bytes may not have changed; gives more than a file holds."""
    _KEPT.append((number(sample), sample["x"]))
    return {"same": all(set(bytes(kept)) == {row} for row, kept in _KEPT), "x": np.full(300_000, number(sample), "f4")}


def hang(sample: Any) -> Any:
    """And say so, to who opens the pipe."""
    with open(os.environ["TESTS_HANG"], "w"):
        time.sleep(1000)


def take(sample: Any) -> Any:
    return sample


def in_two(sample: Any) -> Any:
    return [{**sample, "part": part} for part in range(2)]


def is_even(sample: Any) -> bool:
    return number(sample) % 2 == 0
