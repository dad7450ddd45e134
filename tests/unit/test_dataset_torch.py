"""PyTorch: zero-copy tensors, one batch ahead, and DataLoader workers that split the stream exactly."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import headrace  # noqa: E402
from headrace.base.errors import InputError  # noqa: E402
from headrace.loader import Dataset  # noqa: E402


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


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_second_iterator_ends_the_first_with_an_error(folder: str, device: str | None) -> None:
    source = headrace.torch.tensors(Dataset.open(folder).map(decode).batch(10), device=device)
    first = iter(source)
    next(first)
    second = iter(source)
    seen = rows([next(second)])
    with pytest.raises(InputError, match="another iteration of this loader began"):
        next(first)
    assert (source.epoch, source.state_dict()["frontiers"]) == (1, [10])
    assert seen + rows(second) == list(range(100))


def test_an_iterator_begun_at_the_last_batch_has_its_state(folder: str) -> None:
    source = headrace.torch.tensors(Dataset.open(folder).map(decode).batch(10), device="cpu")
    first = iter(source)
    assert rows(next(first) for _ in range(10)) == list(range(100))
    second = iter(source)
    next(second)
    assert list(first) == []
    assert source.state_dict()["frontiers"] == [10]
    source.close()


def test_a_second_iterator_in_one_process_ends_the_first_with_an_error(folder: str) -> None:
    """Also inside a DataLoader without workers; with workers each iterator has its own."""
    ds = headrace.torch.IterableDataset(Dataset.open(folder).map(decode).batch(10))
    loader = torch.utils.data.DataLoader(ds, batch_size=None)
    with pytest.raises(InputError, match="another iteration of this loader began before this epoch ended"):
        list(zip(loader, loader, strict=True))


@pytest.mark.parametrize(("workers", "context"), [(0, None), (1, "fork"), (3, "fork")])
def test_dataloader_workers_split_the_stream(folder: str, workers: int, context: str | None) -> None:
    ds = headrace.torch.IterableDataset(Dataset.open(folder).shuffle(1).map(decode, threads=1).batch(7))
    loader = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=workers, multiprocessing_context=context)
    first, second = rows(loader), rows(loader)
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second
    ds.set_epoch(0)
    assert rows(loader) == first


def test_workers_of_two_ranks_split_the_stream(folder: str) -> None:
    seen: list[int] = []
    for rank in range(2):
        ds = headrace.torch.IterableDataset(Dataset.open(folder).shuffle(1).shard(rank, 2).map(decode).batch(7))
        seen += rows(torch.utils.data.DataLoader(ds, batch_size=None, num_workers=2))
    assert sorted(seen) == list(range(100))


def test_a_stateful_dataloader_of_two_ranks_goes_on_with_other_ranks_and_workers(folder: str) -> None:
    """By the list of both ranks' states; one rank's says where its two workers are, who are not equally far."""
    ds = Dataset.open(folder).shuffle(1).map(decode, threads=1).batch(7)
    seen: list[int] = []
    states = []
    for rank in range(2):
        loader = stateful(ds.shard(rank, 2), 2, "fork")
        epoch = iter(loader)
        seen += rows([next(epoch) for _ in range(3)])
        states.append(loader.state_dict())
        del epoch
    for rank in range(3):
        again = headrace.torch.IterableDataset(ds.shard(rank, 3))
        again.load_state_dict(states)
        seen += rows(torch.utils.data.DataLoader(again, batch_size=None))
        again.load_state_dict(states[0])
        with pytest.raises(InputError, match="list of all ranks"):
            list(again)
    assert sorted(seen) == list(range(100))


def test_what_is_no_place_of_every_worker_is_refused(folder: str) -> None:
    held = headrace.torch.IterableDataset(Dataset.open(folder).batch(7))
    worker = {"dataset_state": held.state_dict()}
    whole = {"_snapshot": {"_worker_snapshots": {"worker_0": worker}}, "_steps_since_snapshot": 0}
    held.load_state_dict(whole)
    for odd, says in (
        ({**whole, "_steps_since_snapshot": 3}, "3 batches older"),
        ({**whole, "_snapshot": {}}, "no worker"),
        ({"dataset_state": None}, "no place"),
    ):
        with pytest.raises(InputError, match=says):
            held.load_state_dict(odd)


_RESUMED = [
    *((workers, "fork", kept, taken, 3) for workers, kept in ((2, False), (2, True), (3, True)) for taken in (5, 0)),
    (0, None, False, 5, 3),
    (0, None, False, 0, 3),
    (2, "spawn", True, 5, 3),  # workers that are not kept import all of torch in each epoch
]


@pytest.mark.parametrize(("workers", "context", "kept", "taken", "later"), _RESUMED)
def test_every_epoch_after_a_resume_has_each_sample_once(
    folder: str, workers: int, context: str | None, kept: bool, taken: int, later: int
) -> None:
    """`taken`: batches before the state is saved; 0: all of the epoch's. Workers `kept` are persistent. `later`: how
    many epochs follow.
    """
    ds = Dataset.open(folder).shuffle(1).map(decode, threads=1).batch(7)
    orders = _orders(ds, workers, 1 + later)
    loader = stateful(ds, workers, "fork" if workers else None)
    epoch = iter(loader)
    head = rows([next(epoch) for _ in range(taken)] if taken else epoch)
    state = loader.state_dict()
    del epoch, loader
    again = stateful(ds, workers, context, kept)
    again.load_state_dict(state)
    if taken:
        assert head + rows(again) == orders[0]
    assert [rows(again) for _ in range(later)] == orders[1:]


@pytest.mark.parametrize("workers", [2, 3])
def test_a_worker_that_has_ended_does_not_begin_the_next_epoch_when_resumed(folder: str, workers: int) -> None:
    """The last states of an epoch, where some workers are through and others are not."""
    ds = Dataset.open(folder).shuffle(1).map(decode, threads=1).batch(7)
    first, second = _orders(ds, workers, 2)
    states, counts = [], []
    loader, seen = stateful(ds, workers), 0
    for batch in loader:
        seen += len(batch["y"])
        states.append(loader.state_dict())
        counts.append(seen)
    for count, state in list(zip(counts, states, strict=True))[-3:]:
        again = stateful(ds, workers)
        again.load_state_dict(state)
        assert rows(again) == first[count:]
        assert rows(again) == second


def test_workers_stripe_anew_what_the_main_process_has_begun(folder: str) -> None:
    """A forked worker inherits the loader that the main process made for itself."""
    ds = headrace.torch.IterableDataset(Dataset.open(folder).shuffle(1).map(decode, threads=1).batch(7))
    ds.load_state_dict(ds.state_dict())
    assert sorted(rows(torch.utils.data.DataLoader(ds, batch_size=None, num_workers=2))) == list(range(100))


def stateful(ds: Dataset, workers: int, context: str | None = None, kept: bool = False) -> Any:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    return module.StatefulDataLoader(
        headrace.torch.IterableDataset(ds),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=context,
        persistent_workers=kept,
    )


def _orders(ds: Dataset, workers: int, epochs: int) -> list[list[int]]:
    """The rows of so many epochs as that many workers deal them out: batch by batch, in turn."""
    loader = ds.loader()
    found = []
    for _ in range(epochs):
        order = rows(loader)
        assert sorted(order) == list(range(100))
        stripes = [order[worker :: max(1, workers)] for worker in range(max(1, workers))]
        batches = [[stripe[start : start + 7] for start in range(0, len(stripe), 7)] for stripe in stripes]
        found.append([row for turn in zip_longest(*batches, fillvalue=[]) for batch in turn for row in batch])
    return found


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch", [None, 7, 1000])
@pytest.mark.parametrize("rank", [None, 1])
def test_its_length_is_what_a_data_loader_gives(
    folder: str, workers: int, drop_last: bool, batch: int | None, rank: int | None
) -> None:
    dataset = Dataset.open(folder, by="object").take(61)
    dataset = dataset if rank is None else dataset.shard(rank, 2)
    dataset = dataset if batch is None else dataset.batch(batch, drop_last=drop_last)
    loader = torch.utils.data.DataLoader(
        headrace.torch.IterableDataset(dataset, workers=workers), batch_size=None, num_workers=workers
    )
    assert len(loader) == sum(1 for _ in loader)


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch", [None, 7, 40])
def test_the_length_of_a_data_loader_counts_its_own_workers_and_batches(
    folder: str, workers: int, drop_last: bool, batch: int | None
) -> None:
    """Nobody told the dataset of them. Trainers end an epoch by this length: one too low loses samples in silence."""
    dataset = Dataset.open(folder, by="object").map(decode)
    held = headrace.torch.IterableDataset(dataset.batch(7) if batch is None else dataset)
    drop = {} if batch is None else {"drop_last": drop_last}
    for kind in (torch.utils.data.DataLoader, pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader):
        loader = kind(held, batch_size=batch, num_workers=workers, **drop)
        assert len(loader) == sum(1 for _ in loader)
    assert len(held) == (15 if batch is None else 100)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_of_windows_is_what_comes(folder: str, workers: int, drop_last: bool) -> None:
    """Windows are dealt in blocks, not one by one."""
    windows = Dataset.open(folder, by="object").windows(8).shuffle(1).batch(7, drop_last=drop_last)
    held = headrace.torch.IterableDataset(windows, workers=workers)
    loader = torch.utils.data.DataLoader(held, batch_size=None, num_workers=workers)
    assert len(loader) == sum(1 for _ in loader)


def test_what_has_no_length_says_so(folder: str) -> None:
    dataset = Dataset.open(folder, by="object")
    for odd in (dataset.filter(bool), dataset.repeat(), dataset.map(len, on_error=headrace.Skip(max_count=1))):
        with pytest.raises(TypeError):
            len(headrace.torch.IterableDataset(odd.batch(4)))


def test_an_iterator_from_which_nothing_is_taken_uses_no_epoch_up(folder: str) -> None:
    """With workers it does: a worker is ahead of what is taken."""
    dataset = Dataset.open(folder, by="object").shuffle(3).batch(7)

    def made() -> Any:
        shown = headrace.torch.IterableDataset(dataset)
        return torch.utils.data.DataLoader(shown, batch_size=None)

    def keys(loader: Any) -> list[str]:
        return [key for batch in loader for key in batch["__key__"]]

    loader = made()
    epochs = [keys(loader) for _ in range(2)]
    again = made()
    iter(again)
    iter(again)
    assert [keys(again) for _ in range(2)] == epochs
    plain = dataset.loader()
    iter(plain)
    iter(plain)
    assert [keys(plain) for _ in range(2)] == epochs
    left = iter(plain)
    next(left)
    state = plain.state_dict()
    assert keys(plain) != epochs[0], "a loop that is left early ends its epoch"
    plain.load_state_dict(state)
    iter(plain)
    third = keys(plain)
    assert len(third) == len(epochs[0]) - 7, "the rest of the epoch whose state was loaded"


@pytest.mark.parametrize("kind", ["loader", "process", "tensors", "device", "data loader"])
def test_an_iterator_from_which_nothing_was_taken_goes_along_to_another_epoch(folder: str, kind: str) -> None:
    """Lightning makes its iterator first, and then says which epoch it is."""
    dataset = Dataset.open(folder, by="object").shuffle(3).map(decode).batch(7)
    orders = _orders(dataset, 0, 4)
    held: Any = headrace.torch.IterableDataset(dataset)
    if kind in ("loader", "process"):
        held = dataset.loader(where="process" if kind == "process" else "thread")
    if kind in ("tensors", "device"):
        held = headrace.torch.tensors(dataset, device="cpu" if kind == "device" else None)
    source = torch.utils.data.DataLoader(held, batch_size=None) if kind == "data loader" else held
    epoch = iter(source)
    held.set_epoch(2)
    held.set_epoch(1)
    assert rows(epoch) == orders[1]
    assert rows(source) == orders[2]
    epoch = iter(source)
    next(epoch)
    held.set_epoch(2)
    assert rows(source) == orders[2]


def test_an_iterator_from_which_nothing_was_taken_leaves_a_later_one_alone(folder: str) -> None:
    data = headrace.torch.IterableDataset(Dataset.open(folder, by="object").map(decode).batch(7))
    loader = torch.utils.data.DataLoader(data, batch_size=None)
    first, second = iter(loader), iter(loader)
    head = rows([next(second)])
    with pytest.raises(InputError, match="another iteration of this loader began"):
        next(first)
    assert head + rows(second) == list(range(100))


@pytest.mark.parametrize("kind", ["i2", "u2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "b1", "u1"])
@pytest.mark.parametrize("order", "<>=")
def test_arrays_of_either_byte_order_become_tensors(kind: str, order: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(f"{order}{kind}")
    tensor = headrace.torch.convert(array)
    assert isinstance(tensor, torch.Tensor)
    assert np.array_equal(tensor.numpy(), array)


@pytest.mark.parametrize("kind", ["g", "G", "U3", "S3", "M8[s]", "O"])
def test_arrays_of_kinds_that_torch_lacks_stay_arrays(kind: str) -> None:
    assert isinstance(headrace.torch.convert(np.zeros(3).astype(kind)), np.ndarray)


def test_batches_by_length_have_no_length_and_come_with_workers(folder: str) -> None:
    dataset = Dataset.open(folder).map(decode)
    held = headrace.torch.IterableDataset(
        dataset.batch(bucket=lambda sample: sample["y"] % 3, sizes={0: 4, 1: 5, 2: 6})
    )
    with pytest.raises(TypeError, match="known before"):
        len(held)
    with pytest.raises(TypeError, match="filtered"):
        len(headrace.torch.IterableDataset(dataset.batch(4).filter(bool)))
    loader = torch.utils.data.DataLoader(held, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert sorted(rows(loader)) == list(range(100))
