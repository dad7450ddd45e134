"""The pipeline in a child process, over real files: same samples, same state, same errors; nothing stays behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from headrace.base.errors import BadSampleError, InputError, InternalError
from headrace.loader import Dataset, Skip
from tests.children import running
from tests.standins import ended_by_closing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    data = tmp_path / "data"
    data.mkdir()
    for row in range(120):
        (data / f"{row:04d}.x").write_bytes(np.full(1000, row, "u1").tobytes())
        (data / f"{row:04d}.y").write_bytes(bytes([row]))
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    monkeypatch.chdir(tmp_path)
    return f"file://{data}"


def decode(sample: Any) -> Any:
    return {"__key__": sample["__key__"], "x": np.frombuffer(sample["x"], "u1"), "y": sample["y"][0]}


def decode_most(sample: Any) -> Any:
    if sample["y"][0] == 77:
        raise ValueError("not today")
    return decode(sample)


def children() -> list[psutil.Process]:
    mark = "headrace.loader.child_process"
    return [child for child in psutil.Process().children() if mark in " ".join(child.cmdline())]


def test_same_batches_state_and_epochs_as_in_threads(folder: str) -> None:
    ds = Dataset.open(folder).shuffle(3).map(decode, threads=2).batch(16)
    here, there = ds.loader(), ds.loader(where="process")
    for _ in range(2):
        for ours, theirs in zip(here, there, strict=True):
            assert ours["__key__"] == theirs["__key__"]
            assert np.array_equal(ours["x"], theirs["x"])
            assert ours["y"].tolist() == theirs["y"].tolist()
            assert theirs["x"].flags.writeable
            assert here.state_dict() == there.state_dict()
            assert "/dev/shm" not in Path("/proc/self/maps").read_text()
    assert there.stats().samples == 120
    assert there.stats().decode_threads == 2
    assert not children()


def test_raw_bytes_come_as_views_and_batches_stay_valid(folder: str) -> None:
    loader = Dataset.open(folder).batch(10).loader(where="process")
    kept = list(loader)
    for batch in kept:
        for key, x, y in zip(batch["__key__"], batch["x"], batch["y"], strict=True):
            assert int(key) == y[0] == x[0] == x[-1]
            assert isinstance(x, memoryview)


def test_resume_from_the_process_in_threads(folder: str) -> None:
    ds = Dataset.open(folder).shuffle(3).map(decode).batch(16)
    loader = ds.loader(where="process")
    epoch = iter(loader)
    seen = [*next(epoch)["__key__"], *next(epoch)["__key__"]]
    state = loader.state_dict()
    loader.close()
    again = ds.loader()
    again.load_state_dict(state)
    seen += [key for batch in again for key in batch["__key__"]]
    assert sorted(seen) == [f"{row:04d}" for row in range(120)]
    assert not children()


def test_the_users_exception_crosses_with_key_and_cause(folder: str) -> None:
    loader = Dataset.open(folder).map(decode_most).batch(16).loader(where="process")
    with pytest.raises(BadSampleError, match=r"0077.*decode_most.*not today") as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, ValueError)
    assert not children()


def test_skips_cross_too(folder: str) -> None:
    loader = Dataset.open(folder).map(decode_most, on_error=Skip(max_count=1)).batch(16).loader(where="process")
    assert sum(len(batch["y"]) for batch in loader) == 119
    assert [entry.key for entry in loader.ledger] == ["0077"]
    assert loader.stats().skipped == 1


def test_functions_that_cannot_be_sent_are_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(InputError, match="top of a module"):
        iter(Dataset.open(folder).map(lambda s: s).loader(where="process"))


@pytest.mark.parametrize("how", ["close", "drop"])
def test_it_stops_with_the_iterator(folder: str, how: str) -> None:
    loader = Dataset.open(folder).repeat().batch(4).loader(where="process")
    epoch = iter(loader)
    next(epoch)
    assert children()
    began = time.monotonic()
    if how == "close":
        loader.close()
        with pytest.raises(InputError, match="the loader was closed before this epoch ended"):
            next(epoch)
    else:
        del epoch
    assert time.monotonic() - began < 2
    assert not children()


def test_closed_or_begun_anew_is_no_end_of_the_data(folder: str) -> None:
    loader = Dataset.open(folder).repeat().batch(4).loader(where="process")
    assert ended_by_closing(loader) == "the loader was closed before this epoch ended"
    with pytest.raises(InputError, match="another iteration of this loader began"):
        list(zip(loader, loader, strict=True))
    loader.close()
    assert not children()


def test_a_killed_child_is_an_error_not_a_hang(folder: str) -> None:
    epoch = iter(Dataset.open(folder).repeat().batch(4).loader(where="process"))
    next(epoch)
    children()[0].kill()
    with pytest.raises(InternalError, match="killed by SIGKILL"):
        for _ in epoch:
            pass


_SCRIPT = """
import os, signal, sys
from headrace.loader import Dataset
if __name__ == "__main__":
    epoch = iter(Dataset.open(sys.argv[1]).repeat().batch(4).loader(where="process"))
    next(epoch)
    print("running", flush=True)
    for _ in epoch:
        pass
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_child_dies_with_its_parent(folder: str, how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    with running(
        [sys.executable, str(script), folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "running\n"
        (child,) = psutil.Process(parent.pid).children()
        began = time.monotonic()
        parent.send_signal(how)
        parent.wait(5)
        psutil.wait_procs([child], timeout=2)
        assert time.monotonic() - began < 2.5
        assert not child.is_running()
