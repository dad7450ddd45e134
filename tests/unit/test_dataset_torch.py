"""PyTorch: zero-copy tensors, one batch ahead, and DataLoader workers that split the stream exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headrace  # noqa: E402
from headrace.dataset import Dataset  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    data = tmp_path / "data"
    data.mkdir()
    for row in range(100):
        (data / f"{row:04d}.x").write_bytes(np.full(64, row, "u1").tobytes())
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return f"file://{data}"


def decode(sample: Any) -> Any:
    return {"__key__": sample["__key__"], "x": np.frombuffer(sample["x"], "u1").astype("f4"), "y": sample["x"][0]}


def rows(batches: Any) -> list[int]:
    return [row for batch in batches for row in batch["y"].tolist()]


def test_arrays_become_tensors_without_a_copy(folder: str) -> None:
    array = np.zeros((4, 3), "f4")
    assert headrace.torch.convert({"a": array})["a"].data_ptr() == array.ctypes.data
    batch = next(iter(headrace.torch.tensors(Dataset.open(folder).map(decode).batch(8))))
    assert batch["x"].shape == (8, 64)
    assert batch["x"].dtype == torch.float32
    assert batch["__key__"] == [f"{row:04d}" for row in range(8)]


def test_a_batch_copied_ahead_is_not_in_the_state(folder: str) -> None:
    source = headrace.torch.tensors(Dataset.open(folder).map(decode).batch(10), device="cpu")
    epoch = iter(source)
    seen = rows([next(epoch), next(epoch)])
    state = source.state_dict()
    assert state["frontiers"] == [20]
    again = headrace.torch.tensors(Dataset.open(folder).map(decode).batch(7), device="cpu")
    again.load_state_dict(state)
    assert seen + rows(again) == list(range(100))
    assert again.epoch == 1
    source.close()


@pytest.mark.parametrize(("workers", "context"), [(0, None), (1, "fork"), (3, "fork"), (2, "spawn")])
def test_dataloader_workers_split_the_stream(folder: str, workers: int, context: str | None) -> None:
    ds = headrace.torch.IterableDataset(Dataset.open(folder).shuffle(1).map(decode, threads=1).batch(7))
    loader = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=workers, multiprocessing_context=context)
    first, second = rows(loader), rows(loader)
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second
    if context != "spawn":  # starting workers afresh is slow
        ds.set_epoch(0)
        assert rows(loader) == first


def test_workers_of_two_ranks_split_the_stream(folder: str) -> None:
    seen: list[int] = []
    for rank in range(2):
        ds = headrace.torch.IterableDataset(Dataset.open(folder).shuffle(1).shard(rank, 2).map(decode).batch(7))
        seen += rows(torch.utils.data.DataLoader(ds, batch_size=None, num_workers=2))
    assert sorted(seen) == list(range(100))


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader_resumes_exactly(folder: str, workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def make() -> Any:
        ds = headrace.torch.IterableDataset(Dataset.open(folder).shuffle(1).map(decode, threads=1).batch(7))
        return stateful.StatefulDataLoader(ds, batch_size=None, num_workers=workers)

    whole = rows(make())
    loader = make()
    epoch = iter(loader)
    head = rows([next(epoch) for _ in range(5)])
    state = loader.state_dict()
    del epoch
    again = make()
    again.load_state_dict(state)
    assert head + rows(again) == whole
