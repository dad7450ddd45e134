"""Batches by length, by cost, padded, put together by the user, and functions behind them: what is refused, and how."""

from __future__ import annotations

import gc
import math
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from headrace.base.errors import BadSampleError, InputError, TryAgainError
from headrace.loader import Dataset, Loader, Skip

LENGTHS = [3, 9, 2, 40, 7, 5, 1, 8]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("batches")
    for number, length in enumerate(LENGTHS):
        (folder / f"{number}.bin").write_bytes(bytes([number]) * length)
    return Dataset.open(str(folder)).map(tokens, threads=2)


def tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "tokens": np.frombuffer(sample["bin"], np.uint8), "sizes": [1, 2]}


def length_of(sample: dict[str, Any]) -> int:
    return len(sample["tokens"])


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "tokens": batch["tokens"] * 2}


def keys(batches: Any) -> list[list[str]]:
    return [list(batch["__key__"]) for batch in batches]


# What comes


def test_padding_is_to_the_longest_of_the_batch_or_to_what_is_said(dataset: Dataset) -> None:
    first, second = dataset.batch(4, pad={"tokens": 255}).loader()
    assert first["tokens"].shape == (4, 40)
    assert second["tokens"].shape == (4, 8)
    assert second["tokens"][2].tolist() == [6, *[255] * 7]
    assert second["sizes"] == [[1, 2]] * 4, "what is not padded is as in any batch"
    assert [b["tokens"].shape for b in dataset.batch(4, pad={"tokens": 0}, pad_to=64).loader()] == [(4, 64)] * 2
    assert list(first) == ["__key__", "tokens", "sizes"], "names in their order"


def test_arrays_of_several_axes_and_lists_of_numbers_are_padded(dataset: Dataset) -> None:
    def made(sample: dict[str, Any]) -> dict[str, Any]:
        count = length_of(sample)
        return {"boxes": np.ones((count, 2 + count % 2), np.float32), "labels": list(range(count))}

    (batch,) = dataset.map(made).batch(8, pad={"boxes": math.nan, "labels": -100}).loader()
    assert batch["boxes"].shape == (8, 40, 3)
    assert batch["boxes"].dtype == np.float32
    assert np.isnan(batch["boxes"][2, 2:]).all()
    assert batch["labels"][6].tolist() == [0, *[-100] * 39]


def test_buckets_hold_what_is_alike_and_end_short(dataset: Dataset) -> None:
    loader = dataset.batch(bucket=length_of, sizes={4: 2, 10: 3, 50: 1}).loader()
    assert keys(loader) == [["0", "2"], ["3"], ["1", "4", "5"], ["6"], ["7"]]
    assert keys(dataset.batch(bucket=length_of, sizes={4: 2, 10: 3, 50: 1}, drop_last=True).loader()) == [
        ["0", "2"], ["3"], ["1", "4", "5"],
    ]  # fmt: skip


def test_a_window_bounds_what_waits(dataset: Dataset) -> None:
    loader = dataset.batch(bucket=length_of, sizes={4: 4, 10: 4, 50: 4}, window=4).loader()
    assert keys(loader) == [["0", "2"], ["1", "4", "5"], ["3"], ["6"], ["7"]]


def test_costs_fill_a_batch_in_order(dataset: Dataset) -> None:
    assert keys(dataset.batch(cost=length_of, limit=40).loader()) == [["0", "1", "2"], ["3"], ["4", "5", "6", "7"]]
    pairs = dataset.batch(2, cost=length_of, limit=40).loader()
    assert keys(pairs) == [["0", "1"], ["2"], ["3"], ["4", "5"], ["6", "7"]]


def test_who_puts_batches_together_gets_the_samples(dataset: Dataset) -> None:
    loader = dataset.batch(3, collate=lambda samples: sum(map(length_of, samples))).loader()
    assert list(loader) == [14, 52, 9]
    assert len(loader) == 3


def test_what_stands_behind_batch_sees_batches_in_order(dataset: Dataset) -> None:
    def slow_at_first(batch: dict[str, Any]) -> list[str]:
        time.sleep(0.05 if "0" in batch["__key__"] else 0)
        return batch["__key__"]

    made = dataset.batch(2).map(slow_at_first, threads=4).loader()
    assert list(made) == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]
    even = dataset.batch(3).filter(lambda batch: "3" not in batch["__key__"]).map(len).loader()
    assert list(even) == [3, 3]
    assert even.epoch == 1


def test_it_all_works_in_a_process_of_its_own(dataset: Dataset) -> None:
    batched = dataset.batch(bucket=length_of, sizes={4: 2, 50: 3}, pad={"tokens": 0}).map(doubled)
    with batched.loader() as here, batched.loader(where="process") as there:
        for one, other in zip(here, there, strict=True):
            assert one["__key__"] == other["__key__"]
            assert (one["tokens"] == other["tokens"]).all()


def test_a_length_is_known_where_batches_are_even(dataset: Dataset) -> None:
    assert len(dataset.batch(3, pad={"tokens": 0}).loader()) == 3
    for odd in (dataset.batch(cost=length_of, limit=50), dataset.batch(bucket=length_of, sizes={4: 2, 50: 2})):
        with pytest.raises(TypeError, match="known before"):
            len(odd.loader())


def test_it_says_what_it_is(dataset: Dataset) -> None:
    said = repr(dataset.batch(4, bucket=length_of, sizes=[10, 50], pad={"tokens": 0}).map(doubled))
    assert said.endswith(".batch(bucket, sizes={10: 4, 50: 4}, pad={'tokens': 0}).map(doubled)")


# What is refused


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "how many samples"),
        ({"n": 0}, "batch(0)"),
        ({"n": 2, "bucket": length_of}, "go together"),
        ({"n": 2, "sizes": [3]}, "go together"),
        ({"cost": length_of}, "go together"),
        ({"cost": length_of, "limit": 0}, "limit=0"),
        ({"limit": 4}, "go together"),
        ({"bucket": length_of, "sizes": [4, 9]}, "how many samples"),
        ({"bucket": length_of, "sizes": {}}, "sizes={}"),
        ({"bucket": length_of, "sizes": {4: 0}}, "sizes={4: 0}"),
        ({"bucket": length_of, "sizes": {4: 8}, "window": 7}, "window=7"),
        ({"n": 2, "window": 7}, "window is of buckets"),
        ({"n": 2, "pad_to": 7}, "pad_to without pad"),
        ({"n": 2, "pad": {"a": 0}, "pad_to": {"b": 3}}, "'b'"),
        ({"n": 2, "pad": {"a": 0}, "pad_to": 0}, "pad_to=0"),
        ({"n": 2, "pad": {"a": 0}, "collate": list}, "pad and collate"),
    ],
)
def test_parts_that_do_not_fit_are_refused_at_once(dataset: Dataset, asked: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as told:
        dataset.batch(**asked)
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("asked", "stage", "reason"),
    [
        ({"cost": length_of, "limit": 39}, "batch(cost)", "costs 40, and 39 is the limit"),
        ({"bucket": length_of, "sizes": {10: 4}}, "batch(bucket)", "of length 40, and 10 is the most"),
        ({"n": 4, "pad": {"tokens": 0}, "pad_to": 39}, "batch(pad)", "length 40, and pad_to is 39"),
        ({"cost": lambda one: one["gone"] if length_of(one) == 40 else 1, "limit": 9}, "batch(cost)", "gone"),
        ({"cost": lambda one: -1 if length_of(one) == 40 else 1, "limit": 9}, "batch(cost)", "gave -1"),
        ({"cost": lambda one: math.nan if length_of(one) == 40 else 1, "limit": 9}, "batch(cost)", "gave nan"),
        ({"bucket": lambda one: "x" if length_of(one) == 40 else 1, "sizes": {9: 2}}, "batch(bucket)", "'x'"),
        ({"bucket": lambda one: None if length_of(one) == 40 else 1, "sizes": {9: 2}}, "batch(bucket)", "NoneType"),
    ],
)
def test_one_sample_that_fits_no_batch_is_a_bad_sample(
    dataset: Dataset, asked: dict[str, Any], stage: str, reason: str
) -> None:
    """Number 3 is it: named with its key, and left out where some may be."""
    with pytest.raises(BadSampleError) as told:
        list(dataset.batch(**asked).loader())
    assert told.value.path == "3"
    assert stage in str(told.value)
    assert reason in str(told.value)
    loader = dataset.map(dict, on_error=Skip(max_count=1)).batch(**asked).loader()
    assert sorted(key for batch in keys(loader) for key in batch) == ["0", "1", "2", "4", "5", "6", "7"]
    assert [(one.key, one.stage) for one in loader.ledger] == [("3", stage)]


def test_a_batch_that_cannot_be_put_together_names_its_samples(dataset: Dataset) -> None:
    with pytest.raises(BadSampleError, match=r"0, 1, 2 and 1 more.*collate failed: ZeroDivisionError"):
        list(dataset.batch(4, collate=lambda _: 1 // 0).loader())
    with pytest.raises(InputError, match="has no 'gone' to pad"):
        list(dataset.batch(4, pad={"gone": 0}).loader())
    with pytest.raises(InputError, match="cannot be padded to one"):
        list(dataset.map(lambda one: {"x": np.ones((1,) * (1 + length_of(one) % 2))}).batch(4, pad={"x": 0}).loader())
    with pytest.raises(InputError, match="-1 is no value of uint8"):
        list(dataset.batch(4, pad={"tokens": -1}).loader())


def test_what_fails_behind_batch_is_named_and_ends_the_epoch_in_its_turn(dataset: Dataset) -> None:
    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        if "4" in batch["__key__"]:
            raise ValueError("four")
        return batch

    loader = iter(dataset.batch(2).map(fails).loader())
    assert keys([next(loader), next(loader)]) == [["0", "1"], ["2", "3"]]
    with pytest.raises(BadSampleError, match=r"4, 5.*map\(.*fails\) of a batch failed: ValueError: four"):
        next(loader)

    def away(_: Any) -> Any:
        raise TryAgainError("away")

    with pytest.raises(TryAgainError, match="away"):
        list(dataset.batch(2).map(away).loader())


def test_what_is_about_single_samples_stands_before_batch(dataset: Dataset) -> None:
    for wrong in (
        lambda one: one.map(doubled, on_error=Skip(max_count=1)),
        lambda one: one.filter(len, on_error=Skip(max_count=1)),
        lambda one: one.shuffle(1),
        lambda one: one.take(3),
        lambda one: one.batch(2),
        lambda one: one[0],
        lambda one: one.map(doubled)[0:2],
    ):
        with pytest.raises(InputError, match="before batch"):
            wrong(dataset.batch(2))


def test_who_waits_for_a_slow_function_is_told_when_the_loader_is_closed(dataset: Dataset) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hangs(batch: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        go_on.wait(30)
        return batch

    loader, said = dataset.batch(2).map(hangs).loader(), []

    def takes() -> None:
        try:
            next(iter(loader))
        except InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=takes)
    thread.start()
    assert begun.wait(10)
    loader.close()
    thread.join(10)
    go_on.set()
    assert not thread.is_alive()
    assert "closed" in said[0]


def test_a_loader_that_is_closed_while_its_epoch_begins_ends_it(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batches are under way before `iter` returns: somebody may close the loader in between."""
    offers = Loader._offer

    def closes(loader: Loader, running: Any) -> None:
        offers(loader, running)
        loader.close()

    loader = dataset.batch(2).loader()
    with monkeypatch.context() as patch:
        patch.setattr(Loader, "_offer", closes)
        epoch = iter(loader)
    with pytest.raises(InputError, match="closed"):
        next(epoch)
    fresh = iter(loader)
    with monkeypatch.context() as patch:
        patch.setattr(Loader, "_offer", closes)
        loader.set_epoch(3)
    with pytest.raises(InputError, match="closed"):
        next(fresh)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-loader-feeder")]
    assert sum(len(batch["__key__"]) for batch in loader) == 8


@pytest.mark.parametrize("size", [None, 3])
def test_what_was_read_ahead_is_let_go_when_the_loader_is_closed(dataset: Dataset, size: int | None) -> None:
    """And not when the garbage collector comes by: it may be a whole window of bytes."""
    made: list[weakref.ref[Any]] = []
    every = threading.Event()

    def pictured(sample: dict[str, Any]) -> dict[str, Any]:
        array = np.zeros(1000)
        made.append(weakref.ref(array))
        if len(made) == len(LENGTHS):
            every.set()
        return {**sample, "picture": array}

    pictures = dataset.map(pictured)
    loader = (pictures if size is None else pictures.batch(size)).loader()
    gc.collect()
    gc.disable()
    try:
        next(iter(loader))
        assert every.wait(10)
        loader.close()
        assert not [number for number, one in enumerate(made) if one() is not None]
    finally:
        gc.enable()


# One sample, several samples


def halves(sample: dict[str, Any]) -> list[dict[str, Any]]:
    """None of what is of length 1."""
    values = sample["tokens"]
    cut = len(values) // 2
    return (
        [{"__key__": f"{sample['__key__']}/{at}", "tokens": one} for at, one in enumerate((values[:cut], values[cut:]))]
        if cut
        else []
    )


def test_a_sample_becomes_several_or_none(dataset: Dataset) -> None:
    single = [sample["__key__"] for sample in dataset.flat_map(halves).loader()]
    assert single == [f"{number}/{part}" for number in (0, 1, 2, 3, 4, 5, 7) for part in (0, 1)]
    twice = (
        dataset.flat_map(halves).filter(lambda one: len(one["tokens"]) > 3).flat_map(halves).batch(4, pad={"tokens": 0})
    )
    assert [one for batch in keys(twice.loader()) for one in batch] == [
        f"{part}/{half}" for part in ("1/0", "1/1", "3/0", "3/1", "4/1", "7/0", "7/1") for half in (0, 1)
    ]
    assert keys(dataset.flat_map(halves).batch(3).loader())[0] == ["0/0", "0/1", "1/0"]


def test_a_state_stands_among_those_that_became_of_one(dataset: Dataset) -> None:
    loader = dataset.flat_map(halves).batch(3).loader()
    next(iter(loader))
    state = loader.state_dict()
    assert state["version"] == 2
    resumed = dataset.flat_map(halves).batch(3).loader()
    resumed.load_state_dict(state)
    assert keys(resumed)[0] == ["1/1", "2/0", "2/1"]
    plain = dataset.batch(3).loader()
    next(iter(plain))
    assert plain.state_dict()["version"] == 1, "one that an older headrace reads"


def test_flat_map_works_in_a_process_of_its_own(dataset: Dataset) -> None:
    with dataset.flat_map(halves).batch(3).loader(where="process") as there:
        assert keys(there) == keys(dataset.flat_map(halves).batch(3).loader())


def test_flat_map_that_fails_is_a_bad_sample(dataset: Dataset) -> None:
    def fails(sample: dict[str, Any]) -> Any:
        return None if sample["__key__"] == "3" else [sample]

    with pytest.raises(BadSampleError, match=r"3: flat_map\(.*fails\) failed: TypeError"):
        list(dataset.flat_map(fails).loader())
    loader = dataset.flat_map(fails, on_error=Skip(max_count=1)).batch(4).loader()
    assert sorted(key for batch in keys(loader) for key in batch) == ["0", "1", "2", "4", "5", "6", "7"]


def test_places_do_not_stand_behind_flat_map(dataset: Dataset) -> None:
    flat = dataset.flat_map(halves)
    for wrong in (lambda: flat.take(3), lambda: flat[0], lambda: flat[1:3], lambda: flat.show()):
        with pytest.raises(InputError, match="before the flat_map"):
            wrong()
    with pytest.raises(TypeError, match="flat_map"):
        len(flat.batch(3).loader())


def test_one_ranks_state_says_nothing_of_others_whose_samples_are_unlike(dataset: Dataset) -> None:
    """Batches alike in cost have unlike numbers of samples: ranks do not stand at the same place."""
    ranks = [dataset.shard(rank, 2).batch(cost=length_of, limit=40).loader() for rank in (0, 1)]
    seen = [key for loader in ranks for key in next(iter(loader))["__key__"]]
    alone = dataset.shard(0, 1).batch(cost=length_of, limit=40).loader()
    with pytest.raises(InputError, match="all ranks' states"):
        alone.load_state_dict(ranks[0].state_dict())
    alone.load_state_dict([loader.state_dict() for loader in ranks])
    assert sorted(seen + [key for batch in keys(alone) for key in batch]) == [str(number) for number in range(8)]


# Batches taken apart


def numbered(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "at": np.arange(len(batch["__key__"])), "of": [len(batch["__key__"])] * len(batch["__key__"])}


def test_batches_become_samples_again(dataset: Dataset) -> None:
    apart = dataset.batch(3).map(numbered).unbatch()
    found = list(apart)
    assert [one["__key__"] for one in found] == [str(number) for number in range(8)]
    assert [(int(one["at"]), one["of"]) for one in found] == [(at % 3, 3 if at < 6 else 2) for at in range(8)]
    assert found[4]["tokens"].tolist() == next(iter(dataset.batch(8)))["tokens"][4].tolist()
    assert (len(apart.loader()), len(dataset.batch(3, drop_last=True).unbatch().loader())) == (8, 6)
    assert [one["__key__"] for one in dataset.batch(3).map(numbered).unbatch().loader(where="process")] == [
        one["__key__"] for one in found
    ]
    assert repr(apart).endswith(".batch(3).map(numbered).unbatch()")


def test_a_state_stands_inside_a_batch_that_is_taken_apart(dataset: Dataset) -> None:
    apart = dataset.shard(0, 2).batch(3).map(numbered).unbatch()
    loader = apart.loader()
    epoch = iter(loader)
    next(epoch)
    state = loader.state_dict()
    assert state["version"] == 2
    resumed = apart.loader()
    resumed.load_state_dict(state)
    rest = iter(resumed)
    first = [next(rest), next(rest)]
    assert resumed.state_dict()["version"] == 1
    found = [(one["__key__"], int(one["at"]), one["of"]) for one in (*first, *rest)]
    assert found == [("2", 1, 3), ("4", 2, 3), ("6", 0, 1)]
    with pytest.raises(InputError, match="all ranks' states"):  # the other rank may be at another sample
        dataset.shard(1, 2).batch(3).unbatch().loader().load_state_dict(state)
    next(epoch)
    next(epoch)
    assert loader.state_dict()["version"] == 1
    dataset.shard(1, 2).batch(3).unbatch().loader().load_state_dict(loader.state_dict())


def test_a_batch_that_was_filtered_out_makes_ranks_uneven_also_where_it_is_taken_apart(dataset: Dataset) -> None:
    loader = dataset.shard(0, 2).batch(1).filter(lambda batch: batch["__key__"] != ["0"]).unbatch().loader()
    assert next(iter(loader))["__key__"] == "2"
    assert loader.state_dict()["even"] is False


def test_a_batch_of_other_size_is_not_taken_apart(dataset: Dataset) -> None:
    for wrong, said in (
        (lambda batch: {**batch, "tokens": batch["tokens"][1:]}, "'tokens' holds 2 values"),
        (lambda batch: {**batch, "mean": 3.0}, "'mean' is float"),
        (lambda batch: batch["__key__"][1:], "it holds 2"),
        (lambda batch: 3, "it is int"),
    ):
        with pytest.raises(BadSampleError, match=f"batch of 3 samples has no 3 to give: {said}"):
            list(dataset.batch(3).map(wrong).unbatch())
    for refused in (
        dataset.unbatch, dataset.batch(2).unbatch().unbatch, lambda: dataset.batch(2).unbatch().map(dict),
        lambda: dataset.batch(2).unbatch().batch(2),
    ):  # fmt: skip
        with pytest.raises(InputError, match="cannot come here"):
            refused()
