"""What decode threads say of themselves, where it is known what they do, whatever the machine does beside."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.loader.pipeline.decode_effort import Effort

Sample = dict[str, Any]


def sleep(sample: Sample) -> Sample:
    time.sleep(0.01)
    return sample


def compute(sample: Sample) -> Sample:
    hashlib.pbkdf2_hmac("sha256", b"headrace", b"effort", 20_000)  # without the interpreter's lock
    return sample


def hold_the_lock(sample: Sample) -> Sample:
    until = time.thread_time() + 0.01
    while time.thread_time() < until:
        sum(range(2000))
    return sample


def keep(_sample: Sample) -> bool:
    return True


def worked(folder: Path, function: Callable[[Sample], Sample], threads: int, samples: int = 120, **how: Any) -> Effort:
    for number in range(samples):
        (folder / f"{number:03}.bin").write_bytes(b"headrace")
    ds = hr.Dataset.open(str(folder)).map(function, threads=threads).filter(keep)
    with ds.batch(8).loader(**how) as loader:
        for _ in loader:
            pass
        return loader.stats().decode


def shares(effort: Effort) -> tuple[float, float]:
    """Computing, or ready to; standing still."""
    ran = (effort.spent.cpu_s + effort.spent.queued_s) / effort.spent.wall_s
    return ran, 1 - ran


@pytest.mark.parametrize("where", ["thread", "process"])
def test_threads_that_sleep(tmp_path: Path, where: str) -> None:
    effort = worked(tmp_path, sleep, 2, 480, where=where)
    assert effort.asked > 20, "one moment in which the machine stands still is few of them"
    ran, still = shares(effort)
    assert still > ran
    assert effort.late < 0.5 * effort.asked
    assert {*effort.stages} == {"map(sleep)", "filter(keep)"}
    assert effort.stages["map(sleep)"].wall_s > 0.9 * sum(one.wall_s for one in effort.stages.values())
    assert effort.spent.wall_s == pytest.approx(sum(one.wall_s for one in effort.stages.values()), rel=0.1)


def test_threads_that_compute(tmp_path: Path) -> None:
    ran, still = shares(worked(tmp_path, compute, 2))
    assert ran > 2 * still


def test_threads_that_hold_the_interpreters_lock(tmp_path: Path) -> None:
    effort = worked(tmp_path, hold_the_lock, 4)
    _, still = shares(effort)
    assert still > 0.3
    assert effort.late > 0.5 * effort.asked


def test_what_a_stage_raises_is_what_it_raised(tmp_path: Path) -> None:
    def fail(sample: Sample) -> Sample:
        raise ValueError(sample["__key__"])

    with pytest.raises(hr.errors.BadSampleError, match="ValueError"):
        worked(tmp_path, fail, 1)


def test_what_the_loop_waits_for_is_decoded_next(tmp_path: Path) -> None:
    """Also where many are here, and came in another order: one object may bring the samples of ten epochs at once."""
    for number in range(40):
        (tmp_path / f"{number:03}.bin").write_bytes(b"headrace")
    turns: list[int] = []
    lock, numbers = threading.Lock(), itertools.count()

    def decode(sample: Sample) -> Sample:
        with lock:
            turns.append(next(numbers))
        time.sleep(0.001)
        return {"turn": turns[-1], **sample}

    ds = hr.Dataset.open(str(tmp_path)).shuffle(seed=1).repeat(10).map(decode, threads=1)
    with ds.batch(4).loader() as loader:
        seen = [int(turn) for batch in loader for turn in batch["turn"]]
    assert len(seen) == 400
    assert max(abs(turn - place) for place, turn in enumerate(seen)) <= 64, "decoded far out of turn"
