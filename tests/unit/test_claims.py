"""Runs of a node that wait for CPUs and GPUs: in processes that are killed, that contend, and as jobs ask for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.base.errors import InputError, TryAgainError
from headrace.jobs.claims import Blocked, Claims, Other, Want
from headrace.jobs.resources import Allotment, Machine
from headrace.jobs.spec_parts import ResourceSpec

HERE = Machine((4, 5), ("0", "1"))
GPUS = ("gpu-0", "gpu-1")

ASK = """
import sys
from headrace.jobs.claims import Claims, Want
claims = Claims(sys.argv[1], sys.argv[2])
claims.all([Want(int(sys.argv[3]), ("gpu-0", "gpu-1"))])
print("asked", flush=True)
sys.stdin.read()
"""

CONTEND = """
import os, sys, time
from headrace.jobs.claims import Blocked, Claims, Want
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
print("ready", flush=True)
sys.stdin.readline()
for turn in range(12):
    claims = Claims(sys.argv[1], "x")
    count = 1 + turn % 2
    while isinstance(taken := claims.all([Want(count, ("gpu-0", "gpu-1", "gpu-2"))]), Blocked):
        time.sleep(0.002)
    os.write(log, f"take {os.getpid()} {' '.join(taken[0])}\\n".encode())
    time.sleep(0.001)
    os.write(log, f"give {os.getpid()} {' '.join(taken[0])}\\n".encode())
    claims.close()
"""


@contextmanager
def asking(folder: Path, run: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process that has asked for so many GPUs, and has them, or waits."""
    with subprocess.Popen(
        [sys.executable, "-c", ASK, str(folder), run, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        yield process
        process.kill()


def test_who_is_killed_has_nothing_and_waits_for_nothing(tmp_path: Path) -> None:
    small, wanted = Claims(str(tmp_path), "small"), [Want(1, GPUS)]
    with asking(tmp_path, "holder", 1) as holder, asking(tmp_path, "big", 2) as big:
        found = small.all(wanted)
        has, first = Other("holder", holder.pid, ("gpu-0",)), Other("big", big.pid)
        assert found == Blocked((0,), (has, first)), "gpu-1 is free, but kept for who came first"
        big.kill()
        big.wait()
        assert small.all(wanted) == [("gpu-1",)]
        last = Claims(str(tmp_path), "last")
        mine = Other("small", os.getpid(), ("gpu-1",))
        assert last.all(wanted) == Blocked((0,), (has, mine))
        holder.kill()
        holder.wait()
        assert last.all(wanted) == [("gpu-0",)]
    small.close()
    last.close()
    assert os.listdir(tmp_path / "waiting") == ["lock"], "what the dead have left is removed"


def test_processes_that_contend_never_have_the_same_and_all_get_theirs(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", CONTEND, str(tmp_path / "claims"), str(log)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.communicate(timeout=60) and process.returncode for process in processes] == [0] * 4
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    had: dict[str, str] = {}
    lines = log.read_text().splitlines()
    assert len(lines) == 4 * 12 * 2
    for line in lines:
        what, who, *things = line.split()
        for thing in things:
            assert had.pop(thing, who) == who
            if what == "take":
                had[thing] = who
    assert not had


def test_what_a_job_waits_for_is_its_own_and_told(tmp_path: Path) -> None:
    claims = str(tmp_path)
    first = Allotment(ResourceSpec(cpus=1, gpus=(1,)), HERE, claims, "first")
    job = Allotment(ResourceSpec(cpus=2, gpus=(1,), wait=True), HERE, claims, "job")
    said: list[str] = []

    def waits(why: str) -> None:
        said.append(why)
        first.close()

    assert job.wait(waits, lambda: False)
    assert (job.cpus, job.gpus, job.notes) == ((4, 5), ("1",), ())
    asked = "asks for 2 of 2 CPUs (1 free for it) and 1 of 1 GPUs (0 free for it)"
    assert said == [f"{asked}; first (pid {os.getpid()}) has cpu-4, gpu-1"]
    job.close()
    at_once = Allotment(ResourceSpec(gpus=2, wait=True), HERE, claims, "at-once")
    assert at_once.gpus == ("0", "1")
    assert at_once.wait(pytest.fail, lambda: True), "it has all: there is nothing to wait for"
    at_once.close()
    with pytest.raises(InputError, match="asks for 3 GPUs; here are 2"):
        Allotment(ResourceSpec(gpus=3, wait=True), HERE, claims)


def test_who_does_not_wait_takes_nothing_that_others_wait_for(tmp_path: Path) -> None:
    claims = str(tmp_path)
    holder = Allotment(ResourceSpec(gpus=1), HERE, claims, "holder")
    big = Allotment(ResourceSpec(gpus=2, wait=True), HERE, claims, "big")
    with pytest.raises(TryAgainError, match="asks for 1 of 2 GPUs, and other runs have 2 or wait for them") as caught:
        Allotment(ResourceSpec(gpus=1), HERE, claims)
    assert "--wait" in str(caught.value.hint)
    assert Allotment(ResourceSpec(gpus=(1,)), HERE, claims).notes == ("1 of its 1 GPUs are other runs' too",)
    assert Allotment(ResourceSpec(cpus=2), HERE, claims).cpus == (4, 5), "nobody waits for CPUs"
    assert not big.wait(lambda _why: None, lambda: True), "it is stopped, and leaves the queue"
    assert Allotment(ResourceSpec(gpus=1), HERE, claims).gpus == ("1",)
    holder.close()
