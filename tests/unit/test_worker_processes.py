"""Functions in worker processes, over real files: same samples, order and state as on threads; what goes wrong is told
with the sample's key; nothing stays behind.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from headrace.base.errors import BadSampleError, InputError
from headrace.loader import Dataset, Loader, Skip
from tests.children import running
from tests.worker_functions import (
    DEADLY,
    decode,
    decode_or_die,
    decode_some,
    hang,
    in_two,
    is_even,
    keep_and_compare,
    number,
    take,
    with_a_lock,
)

COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("samples")
    for row in range(COUNT):
        (made / f"{row:03d}.x").write_bytes(bytes([row]) * 3000)
    return str(made)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    gc.collect()  # an error that was caught keeps the frames that it passed, and what they know
    assert not workers()


def workers() -> list[psutil.Process]:
    mark, found = "headrace.loader.pipeline.worker_program", list[psutil.Process]()
    for child in psutil.Process().children():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if mark in " ".join(child.cmdline()):
                found.append(child)
    return found


def test_samples_order_and_state_are_those_of_threads_over_epochs(folder: str) -> None:
    start = Dataset.open(folder).shuffle(3)
    here = start.map(decode, threads=2).filter(is_even).flat_map(in_two).map(take).batch(7).loader()
    there = start.map(decode, processes=2).filter(is_even).flat_map(in_two, processes=2).map(take).batch(7).loader()
    seen: set[int] = set()
    for _ in range(2):
        for ours, theirs in zip(here, there, strict=True):
            assert (ours["__key__"], ours["part"].tolist()) == (theirs["__key__"], theirs["part"].tolist())
            assert np.array_equal(ours["x"], theirs["x"])
            assert here.state_dict() == there.state_dict()
            seen |= set(theirs["by"].tolist())
    assert len(seen) == 2
    assert seen == {one.pid for one in workers()}, "they last over the epochs"
    stats = there.stats()
    assert (stats.processes, stats.filtered) == ("2 worker processes", COUNT // 2)
    assert "map(decode)" in stats.decode.stages
    next(iter(there))
    state = there.state_dict()
    there.close()
    assert not workers()
    here.load_state_dict(state)
    assert sum(len(batch["by"]) for batch in here) == COUNT - 7


def test_errors_arrive_with_key_traceback_and_cause_or_are_left_out(folder: str) -> None:
    ds = Dataset.open(folder)
    with pytest.raises(BadSampleError, match=r"007: map\(decode_some\) failed: ValueError: not today") as caught:
        list(ds.map(decode_some, processes=1).loader())
    assert isinstance(caught.value.__cause__, ValueError)
    assert 'raise ValueError("not today")' in caught.value.__cause__.__notes__[0]
    assert not workers(), "an error ends them"
    loader = ds.map(with_a_lock).map(decode_some, processes=1, on_error=Skip(max_count=3)).loader()
    assert len(list(loader)) == COUNT - 3
    said = {entry.key: entry.reason for entry in loader.ledger}
    assert sorted(said) == ["007", "009", "011"]
    assert "cannot be sent from a worker process" in said["009"]
    assert "cannot be sent to a worker process" in said["011"]


def test_a_worker_that_dies_is_named_with_its_sample_and_replaced(folder: str) -> None:
    ds = Dataset.open(folder)
    loader = ds.map(decode_or_die, processes=1, on_error=Skip(max_count=2)).loader()
    keys = [sample["__key__"] for sample in loader]
    assert keys == [f"{row:03d}" for row in range(COUNT) if row not in DEADLY]
    assert [one.key for one in loader.ledger] == ["007", "023"]
    assert loader.ledger[0].stage == "map(decode_or_die)"
    assert "its worker process ended (killed by SIGKILL)" in loader.ledger[0].reason
    loader.close()
    loader = ds.map(decode, processes=1).loader()
    assert len(list(loader)) == COUNT
    workers()[0].kill()  # no sample is to blame
    assert len(list(loader)) == COUNT


def test_large_values_and_kept_ones(folder: str) -> None:
    loader = Dataset.open(folder).map(keep_and_compare, processes=1).batch(4).loader()
    rows: list[float] = []
    for batch in loader:
        assert batch["same"].all()
        assert batch["x"].flags.writeable
        rows += batch["x"].mean(axis=1).tolist()
    assert rows == list(range(COUNT))
    assert "/dev/shm" not in Path("/proc/self/maps").read_text()


def test_what_cannot_be_sent_is_refused_or_goes_by_value(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, ds = threading.Lock(), Dataset.open(folder).take(3)
    assert [one["n"] for one in ds.map(lambda s: {"n": number(s)}, processes=1).loader()] == [0, 1, 2]
    with pytest.raises(InputError, match="open files, locks"):
        iter(ds.map(lambda _: lock, processes=1).loader())
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(InputError, match=r"processes= needs functions defined at the top of a module.*cloudpickle"):
        iter(ds.map(lambda s: s, processes=1).loader())
    for wrong in (0, -1, "many"):
        with pytest.raises(InputError, match='at least 1, or "auto"'):
            ds.map(take, processes=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="put it before batch"):
        ds.batch(2).map(take, processes=1)


def test_without_a_gil_threads_do_it_and_say_so(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    loader = Dataset.open(folder).map(decode, processes=2).loader()
    assert {one["by"] for one in loader} == {os.getpid()}
    assert loader.stats().processes.startswith("2 threads: this interpreter has no GIL")


def test_ranks_of_one_machine_share_its_cores(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    asks = Dataset.open(folder).map(decode, processes="auto")
    assert asks.loader().stats().processes == "8 worker processes"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert asks.loader().stats().processes == "2 worker processes"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))
    assert asks.loader().stats().processes == "3 worker processes", "each rank has cores of its own"


@pytest.mark.parametrize("how", ["close", "drop"])
def test_they_end_with_the_loader_whatever_they_do(
    folder: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTS_HANG", str(tmp_path / "pipe"))
    os.mkfifo(tmp_path / "pipe")
    loader: Loader | None = Dataset.open(folder).map(hang, processes=1).loader()
    assert loader is not None
    epoch = iter(loader)
    (tmp_path / "pipe").open().close()
    assert workers()
    if how == "close":
        loader.close()
    del epoch, loader
    assert not workers()


_SCRIPT = """
import sys, threading, time
from headrace.loader import Dataset
def hang(sample):
    print("running", flush=True)
    time.sleep(1000)
def train():
    for _ in Dataset.open(sys.argv[1]).map(hang, processes=1).loader():
        pass
if __name__ == "__main__":
    if sys.argv[2] == "thread":
        threading.Thread(target=train).start()
    else:
        train()
"""


@pytest.mark.parametrize(("how", "where"), [(signal.SIGKILL, "thread"), (signal.SIGINT, "main")])
def test_they_end_with_their_parent(folder: str, how: signal.Signals, where: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    command = [sys.executable, str(script), folder, where]
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"running\n"
        (worker,) = psutil.Process(parent.pid).children()
        assert "/dev/shm" not in Path(f"/proc/{worker.pid}/maps").read_text()
        parent.send_signal(how)
        parent.wait(10)
        assert psutil.wait_procs([worker], timeout=5)[1] == []


def test_a_fork_starts_its_own(folder: str) -> None:
    loader = Dataset.open(folder).take(4).map(decode, processes=1).loader()
    ours, (reader, writer) = list[psutil.Process](), os.pipe()
    for _ in loader:
        ours = ours or workers()
    if not (child := os.fork()):
        theirs = {sample["by"] for sample in loader}
        loader.close()
        os.write(writer, b"other" if theirs.isdisjoint(one.pid for one in ours) else b"the same")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 9) == b"other"
    for end in (reader, writer):
        os.close(end)
    assert len(list(loader)) == 4
    assert workers() == ours
