"""The loader through its public door: every sample once, state, stages, batches, errors, stopping, figures."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace.base.errors import BadSampleError, ChangedError, InputError, NotFoundError
from headrace.loader import Dataset, Skip
from tests.standins import MemoryIndex, StandInFetcher, ended_by_closing, rows_of


@pytest.fixture
def fetcher() -> Iterator[StandInFetcher]:
    fetcher = StandInFetcher(jitter_s=0.001)
    yield fetcher
    fetcher.close()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    deadline = time.monotonic() + 2
    while (left := headrace_threads()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def headrace_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-loader")]


def dataset(count: int = 500, **options: Any) -> Dataset:
    return Dataset.of(MemoryIndex(count, **options))


def everything(loader: Any) -> list[int]:
    return [row for batch in loader for row in rows_of(batch)]


@pytest.mark.parametrize("order", ["exact", "window"])
@pytest.mark.parametrize("batch", [None, 1, 7, 64, 1000])
@pytest.mark.parametrize("decode", [False, True])
def test_every_sample_once_an_epoch_and_another_order_each(
    fetcher: StandInFetcher, order: str, batch: int | None, decode: bool
) -> None:
    ds = dataset().shuffle(7)
    ds = ds.map(lambda s: {**s, "n": int.from_bytes(bytes(s["bin"][:8]), "little")}, threads=3) if decode else ds
    ds = ds if batch is None else ds.batch(batch)
    loader = ds.loader(order=order, window=16, fetcher=fetcher)
    first, second = everything(loader), everything(loader)
    assert sorted(first) == sorted(second) == list(range(500))
    assert first != second
    if order == "exact":
        assert first == everything(ds.loader(fetcher=fetcher))
        assert len(loader) == (500 if batch is None else -(-500 // batch))


def test_the_bytes_belong_to_the_key(fetcher: StandInFetcher) -> None:
    for batch in dataset(300, parts=("image", "label")).shuffle(1).batch(16).loader(fetcher=fetcher):
        for place, row in enumerate(batch["row"].tolist()):
            assert int.from_bytes(bytes(batch["image"][place][:8]), "little") == row
            assert int.from_bytes(bytes(batch["label"][place][:8]), "little") == row
            assert batch["__key__"][place].endswith(f"{row:08d}")


def test_window_order_stays_within_its_window(fetcher: StandInFetcher) -> None:
    got = everything(dataset().loader(order="window", window=8, fetcher=fetcher))
    assert sorted(got) == list(range(500))
    assert got != list(range(500))
    done: set[int] = set()
    for row in got:
        oldest = next(one for one in range(501) if one not in done)
        assert row < oldest + 8
        done.add(row)


@pytest.mark.parametrize("order", ["exact", "window"])
@pytest.mark.parametrize(("ranks_before", "ranks_after"), [(1, 1), (2, 2), (2, 3), (3, 1)])
def test_resume_sees_exactly_the_samples_left(
    fetcher: StandInFetcher, order: str, ranks_before: int, ranks_after: int
) -> None:
    ds = dataset(431).shuffle(3).filter(lambda s: s["row"] % 5 != 0, threads=2)
    seen: list[int] = []
    states = []
    for rank in range(ranks_before):
        loader = ds.shard(rank, ranks_before).batch(9).loader(order=order, window=20, fetcher=fetcher)
        for number, batch in enumerate(loader):
            seen += rows_of(batch)
            if number == 4 + rank:
                break
        states.append(json.loads(json.dumps(loader.state_dict())))
        loader.close()
    for rank in range(ranks_after):
        loader = ds.shard(rank, ranks_after).batch(4).loader(order=order, window=20, fetcher=fetcher)
        loader.load_state_dict(states)
        seen += everything(loader)
        assert loader.epoch == 1
    assert sorted(seen) == [row for row in range(431) if row % 5]


def test_state_is_what_was_received_not_what_was_prefetched(fetcher: StandInFetcher) -> None:
    loader = dataset(100).batch(10).loader(fetcher=fetcher)
    epoch = iter(loader)
    next(epoch), next(epoch)
    while fetcher.reads.keys() != {f"0000/{row:08d}.bin" for row in range(100)}:
        time.sleep(0.001)
    assert loader.state_dict()["frontiers"] == [20]
    loader.close()


def test_state_of_single_samples_counts_each(fetcher: StandInFetcher) -> None:
    loader = dataset(100).loader(fetcher=fetcher)
    epoch = iter(loader)
    for _ in range(13):
        next(epoch)
    state = loader.state_dict()
    assert state["frontiers"] == [13]
    again = dataset(100).loader(fetcher=fetcher)
    again.load_state_dict(state)
    assert everything(again) == list(range(13, 100))
    loader.close()


def test_epochs_states_and_set_epoch(fetcher: StandInFetcher) -> None:
    ds = dataset(60).shuffle(1).batch(10)
    loader = ds.loader(fetcher=fetcher)
    orders = [everything(loader) for _ in range(3)]
    assert loader.epoch == 3
    loader.set_epoch(1)
    assert everything(loader) == orders[1]
    epoch = iter(loader)
    assert rows_of(next(epoch)) == orders[2][:10]
    resumed = ds.loader(fetcher=fetcher)
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(2)
    assert everything(resumed) == orders[2][10:]
    loader.close()


def test_a_broken_off_loop_ends_its_epoch(fetcher: StandInFetcher) -> None:
    loader = dataset(60).shuffle(1).batch(10).loader(fetcher=fetcher)
    for _ in loader:
        break
    assert loader.epoch == 0
    assert sorted(everything(loader)) == list(range(60))
    assert loader.epoch == 2


@pytest.mark.parametrize("batch", [None, 10])
def test_a_second_iterator_ends_the_first_with_an_error(fetcher: StandInFetcher, batch: int | None) -> None:
    ds = dataset(300).shuffle(1)
    loader = (ds if batch is None else ds.batch(batch)).loader(fetcher=fetcher)
    seen: list[int] = []
    second: list[int] = []
    looks: list[Any] = []

    def loop() -> None:
        for one in loader:
            seen.extend(rows_of(one))
            if len(seen) == 40:
                looks.append(iter(loader))
                second.extend(rows_of(next(looks[0])))

    with pytest.raises(InputError, match=r"another iteration of this loader began.*dataset\.loader\(\)"):
        loop()
    assert len(seen) == 40
    assert (loader.epoch, loader.state_dict()["frontiers"]) == (1, [len(second)]), "the state is the second one's"
    assert sorted(second + everything(looks[0])) == list(range(300))
    with pytest.raises(InputError, match="another iteration"):
        list(zip(loader, loader, strict=True))


_ENDINGS: dict[str, Callable[[Any, Any], Any]] = {
    "the loader was closed": lambda loader, epoch: loader.close(),
    "the loader was sent to epoch 7": lambda loader, epoch: loader.set_epoch(7),
    "a state was loaded": lambda loader, epoch: loader.load_state_dict(loader.state_dict()),
    "its iterator was closed": lambda loader, epoch: epoch.close(),
}


@pytest.mark.parametrize("why", _ENDINGS)
def test_what_ends_an_epoch_early_is_told_at_its_next_step(fetcher: StandInFetcher, why: str) -> None:
    loader = dataset(60).batch(10).loader(fetcher=fetcher)
    epoch = iter(loader)
    next(epoch)
    _ENDINGS[why](loader, epoch)
    for _ in range(2):
        with pytest.raises(InputError, match=f"{why} before this epoch ended"):
            next(epoch)
    again = iter(loader)
    assert len(everything(again)) == (50 if "state" in why else 60)
    loader.close()
    iter(loader)
    for _ in range(2):
        with pytest.raises(StopIteration):  # it has delivered everything, whatever came later
            next(again)


def test_an_epoch_that_failed_does_not_look_exhausted_later(fetcher: StandInFetcher) -> None:
    fetcher.missing = ("0000/00000030",)
    epoch = iter(dataset(60).batch(10).loader(fetcher=fetcher))
    with pytest.raises(NotFoundError):
        everything(epoch)
    with pytest.raises(InputError, match="NotFoundError was raised before this epoch ended"):
        next(epoch)


def test_a_refused_state_leaves_the_epoch_alone(fetcher: StandInFetcher) -> None:
    loader = dataset(60).batch(10).loader(fetcher=fetcher)
    epoch = iter(loader)
    first = rows_of(next(epoch))
    with pytest.raises(ChangedError):
        loader.load_state_dict(dataset(61).batch(10).loader(fetcher=fetcher).state_dict())
    assert first + everything(epoch) == list(range(60))


def test_closing_wakes_who_waits_on_another_thread() -> None:
    fetcher = StandInFetcher()
    fetcher.gate.clear()
    loader = dataset(60).batch(10).loader(fetcher=fetcher)
    assert ended_by_closing(loader) == "the loader was closed before this epoch ended"
    fetcher.close()


def test_ranks_make_equally_many_batches_with_drop_last(fetcher: StandInFetcher) -> None:
    loaders = [dataset(101).shard(r, 4).batch(5, drop_last=True).loader(fetcher=fetcher) for r in range(4)]
    assert [sum(1 for _ in loader) for loader in loaders] == [5] * 4 == [len(loader) for loader in loaders]


def test_shard_takes_torchruns_variables(monkeypatch: pytest.MonkeyPatch, fetcher: StandInFetcher) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert everything(dataset(10).shard().loader(fetcher=fetcher)) == [1, 3, 5, 7, 9]
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(InputError):
        dataset(10).shard()


def test_one_of_several_ranks_is_never_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's own launcher sets WORLD_SIZE and no RANK: every rank read the stripe of rank 0."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="nothing says which of them this process is"):
        dataset(10).shard()
    with pytest.raises(InputError, match="nothing says which"):
        dataset(10).shard(world_size=3)
    assert dataset(10).shard(1).striping == dataset(10).shard(1, 2).striping
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert dataset(10).shard().striping == dataset(10).striping


def test_repeat_and_take_and_mix(fetcher: StandInFetcher) -> None:
    twice = everything(dataset(50).shuffle(1).repeat(2).batch(8).loader(fetcher=fetcher))
    assert Counter(twice) == dict.fromkeys(range(50), 2)
    assert twice[:50] != twice[50:]
    assert len(everything(dataset(50).shuffle(1).take(20).loader(fetcher=fetcher))) == 20
    endless = dataset(10).repeat().take(35).loader(fetcher=fetcher)
    assert everything(endless) == [*range(10), *range(10), *range(10), *range(5)]
    small = dataset(100).map(lambda s: {**s, "from": "small"})
    large = dataset(900).map(lambda s: {**s, "from": "large"})
    mixed = Dataset.mix([small, large]).batch(50).loader(fetcher=fetcher)
    assert Counter(name for batch in mixed for name in batch["from"]) == {"small": 100, "large": 900}
    weighted = Dataset.mix([small.repeat(), large.shuffle(2)], [1, 3]).loader(fetcher=fetcher)
    assert Counter(sample["from"] for sample in weighted) == {"small": 300, "large": 900}
    with pytest.raises(TypeError):
        len(dataset(10).repeat().loader(fetcher=fetcher))


def test_a_mix_resumes_at_its_position(fetcher: StandInFetcher) -> None:
    ds = Dataset.mix([dataset(100).shuffle(1), dataset(300).shuffle(2)], [1, 2]).batch(10)
    whole = [batch["__key__"] for batch in ds.loader(fetcher=fetcher)]
    loader = ds.loader(fetcher=fetcher)
    epoch = iter(loader)
    head = [next(epoch)["__key__"] for _ in range(7)]
    again = ds.loader(fetcher=fetcher)
    again.load_state_dict(loader.state_dict())
    assert head + [batch["__key__"] for batch in again] == whole
    loader.close()


def test_windows_fetch_each_frame_once(fetcher: StandInFetcher) -> None:
    ds = dataset(300, folder=100).windows(8)
    assert len(ds) == 3 * 93
    loader = ds.loader(fetcher=fetcher)
    for sample in loader:
        rows = sample["row"]
        assert rows == list(range(rows[0], rows[0] + 8))
        assert rows[0] // 100 == rows[-1] // 100
        assert [int.from_bytes(bytes(frame[:8]), "little") for frame in sample["bin"]] == rows
    assert set(fetcher.reads.values()) == {1}
    assert loader.stats().reads == 300
    assert loader.stats().frames_shared == 279 * 8 - 300


def test_shuffled_windows_fetch_frames_and_block_edges(fetcher: StandInFetcher) -> None:
    ds = dataset(1000, folder=1000).windows(8).shuffle(3)
    for ranks in (1, 2):
        fetcher.reads.clear()
        keys = []
        for rank in range(ranks):
            for batch in ds.shard(rank, ranks).batch(5).loader(fetcher=fetcher):
                keys += batch["__key__"]
        assert len(keys) == len(set(keys)) == 993
        blocks = -(-993 // 64) + 1  # the one that wraps around is cut once more
        assert sum(fetcher.reads.values()) <= 1000 + blocks * 7


def test_windows_stack_when_decoded(fetcher: StandInFetcher) -> None:
    ds = dataset(40).windows(4, stride=2).map(lambda s: {"x": np.stack([np.frombuffer(f, "u1") for f in s["bin"]])})
    assert next(iter(ds.batch(3).loader(fetcher=fetcher)))["x"].shape == (3, 4, 8)


def test_too_long_windows_are_refused() -> None:
    with pytest.raises(InputError, match="the longest holds 10"):
        dataset(100, folder=10).windows(11)


def test_memory_stays_within_the_window() -> None:
    fetcher = StandInFetcher()
    loader = dataset(400, size=10_000).batch(4).loader(prefetch=200_000, fetcher=fetcher)
    for _ in loader:
        assert loader.stats().held_bytes <= 200_000
    assert fetcher.most_in_flight <= 200_000
    fetcher.close()


@pytest.mark.parametrize("order", ["exact", "window"])
@pytest.mark.parametrize("prefetch", [1, 5_000, 30_000])
def test_a_batch_larger_than_the_window_still_comes(fetcher: StandInFetcher, order: str, prefetch: int) -> None:
    ds = dataset(100, size=1000).filter(lambda s: s["row"] % 3 == 0, threads=2).batch(20)
    assert len(everything(ds.loader(prefetch=prefetch, order=order, fetcher=fetcher))) == 34


def test_the_users_exception_arrives_with_key_and_cause(fetcher: StandInFetcher) -> None:
    def decode(sample: Any) -> Any:
        if sample["row"] == 77:
            raise ValueError("not an image")
        return sample

    loader = dataset(200).map(decode).batch(10).loader(fetcher=fetcher)
    with pytest.raises(BadSampleError, match=r"00000077.*decode.*not an image") as caught:
        everything(loader)
    assert isinstance(caught.value.__cause__, ValueError)
    assert not headrace_threads()


def test_a_missing_object_is_its_own_error(fetcher: StandInFetcher) -> None:
    fetcher.missing = ("00000031",)
    with pytest.raises(NotFoundError, match="00000031"):
        everything(dataset(200).batch(10).loader(fetcher=fetcher))


def test_skips_are_counted_named_and_bounded(fetcher: StandInFetcher) -> None:
    fetcher.missing = ("00000031",)

    def decode(sample: Any) -> Any:
        if sample["row"] in (5, 150):
            raise ValueError("truncated")
        return sample

    ds = dataset(200)
    loader = ds.map(decode, on_error=Skip(max_count=3)).batch(10).loader(fetcher=fetcher)
    assert sorted(everything(loader)) == [row for row in range(200) if row not in (5, 31, 150)]
    assert {(entry.key[-3:], entry.stage.split("(")[0]) for entry in loader.ledger} == {
        ("005", "map"),
        ("031", "fetch"),
        ("150", "map"),
    }
    assert loader.stats().skipped == 3
    over = ds.map(decode, on_error=Skip(max_rate=0.01)).batch(10).loader(fetcher=fetcher)
    with pytest.raises(BadSampleError, match=r"3 bad samples, 2 allowed.*00000150"):
        everything(over)


def test_two_fields_of_unlike_shapes_stay_lists(fetcher: StandInFetcher) -> None:
    ds = dataset(8).map(lambda s: {"same": np.zeros((2, 3), "f4"), "ragged": np.zeros(s["row"]), "n": s["row"] * 0.5})
    batch = next(iter(ds.batch(8).loader(fetcher=fetcher)))
    assert batch["same"].shape == (8, 2, 3)
    assert batch["same"].dtype == np.float32
    assert isinstance(batch["ragged"], list)
    assert batch["n"].tolist() == [row * 0.5 for row in range(8)]


def test_other_order_or_data_is_refused(fetcher: StandInFetcher) -> None:
    loader = dataset(10).shuffle(1).loader(fetcher=fetcher)
    with pytest.raises(ChangedError):
        dataset(10).shuffle(2).loader(fetcher=fetcher).load_state_dict(loader.state_dict())
    with pytest.raises(ChangedError):
        dataset(11).shuffle(1).loader(fetcher=fetcher).load_state_dict(loader.state_dict())


@pytest.mark.parametrize("how", ["close", "drop", "error"])
def test_everything_stops_within_two_seconds(how: str) -> None:
    fetcher = StandInFetcher()
    fetcher.gate.clear()
    loader = dataset(500, size=100_000).map(lambda s: s).batch(8).loader(prefetch=1_000_000, fetcher=fetcher)
    epoch = iter(loader)
    assert headrace_threads()
    gc.freeze()  # what other tests have left is not looked through meanwhile
    began = time.monotonic()
    if how == "close":
        loader.close()
        with pytest.raises(InputError, match="the loader was closed before this epoch ended"):
            next(epoch)
    elif how == "drop":
        del epoch
        gc.collect()
    else:
        timer = threading.Timer(0.2, fetcher.gate.set)
        timer.start()
        fetcher.missing = ("0000",)
        with pytest.raises(NotFoundError):
            next(epoch)
        timer.join()
    took = time.monotonic() - began
    gc.unfreeze()
    assert took < 2
    assert not headrace_threads()
    fetcher.close()


def test_methods_in_impossible_places_are_refused() -> None:
    ds = dataset(10)
    for wrong in (
        lambda: ds.batch(2).batch(2),
        lambda: ds.batch(2).shuffle(1),
        lambda: ds.filter(bool).take(3),
        lambda: ds.shuffle(1).windows(2),
        lambda: ds.repeat().shuffle(1),
        lambda: Dataset.mix([ds.batch(2)], [1]),
        lambda: Dataset.mix([ds, ds], [1]),
        lambda: Dataset.mix([ds, ds], [1, -1]),
        lambda: ds.loader(order="sideways"),
        lambda: ds.loader(prefetch="many"),
        lambda: Dataset.of(MemoryIndex(0)),
        lambda: Skip(),
    ):
        with pytest.raises(InputError):
            wrong()


def test_the_verdict_names_what_limits(fetcher: StandInFetcher) -> None:
    def slow(sample: Any) -> Any:
        time.sleep(0.004)
        return sample

    decode = dataset(200).map(slow, threads=1).batch(10).loader(fetcher=fetcher)
    everything(decode)
    assert decode.stats().verdict.startswith("Decoding is the limit")
    fetcher.jitter_s = 0.02
    store = dataset(200).batch(10).loader(fetcher=fetcher)
    everything(store)
    assert store.stats().verdict.startswith("The store is the limit")
    fetcher.jitter_s = 0
    model = dataset(200).batch(10).loader(fetcher=fetcher)
    for _ in model:
        time.sleep(0.02)
    stats = model.stats()
    assert stats.verdict.startswith("Healthy")
    assert stats.samples == 200
    assert stats.bytes == 1600
    assert 0 < stats.own_s < stats.elapsed_s
    json.dumps(stats.as_dict())


def test_a_description_is_never_changed() -> None:
    ds = dataset(10)
    before = repr(ds)
    ds.shuffle(1).map(lambda s: s).batch(2)
    assert repr(ds) == before
    assert ds.fingerprint != ds.shuffle(1).fingerprint != ds.shuffle(2).fingerprint
