"""Batches by length, by cost, padded, taken apart, and what stands behind them, against a plain model: each sample
once, the batches that the rule gives, and the same ones after a resume; exactly once on another number of ranks.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.loader import Dataset, Loader

COUNT = 120
LONGEST = 40
Batch = list[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made, chance = tmp_path_factory.mktemp("lengths"), random.Random(3)
    for number in range(COUNT):
        (made / f"{number:03}.bin").write_bytes(bytes([number]) * chance.randint(1, LONGEST))
    return made


def tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "tokens": np.frombuffer(sample["bin"], np.uint8)}


def parts(sample: dict[str, Any]) -> list[dict[str, Any]]:
    """None of some, several of others."""
    key, values = sample["__key__"], sample["tokens"]
    return [{"__key__": f"{key}/{one}", "tokens": values[one:]} for one in range(min(int(key) % 4, len(values)))]


def is_odd_part(sample: dict[str, Any]) -> bool:
    return not sample["__key__"].endswith("/1")


def length_of(sample: dict[str, Any]) -> int:
    return len(sample["tokens"])


def is_kept(sample: dict[str, Any]) -> bool:
    return int(sample["__key__"].partition("/")[0]) % 5 != 2


def has_several(batch: dict[str, Any]) -> bool:
    return len(batch["__key__"]) > 1


RULES = st.one_of(
    st.fixed_dictionaries({"n": st.integers(1, 9)}),
    st.fixed_dictionaries({"n": st.integers(1, 9), "pad": st.just({"tokens": 7})}),
    st.fixed_dictionaries({"n": st.integers(1, 9), "pad": st.just({"tokens": 7}), "pad_to": st.just(LONGEST)}),
    st.fixed_dictionaries({"cost": st.just(length_of), "limit": st.integers(LONGEST, 200)}),
    st.fixed_dictionaries({"n": st.integers(1, 4), "cost": st.just(length_of), "limit": st.integers(LONGEST, 200)}),
    st.fixed_dictionaries(
        {
            "bucket": st.just(length_of),
            "sizes": st.sampled_from([{10: 5, 20: 4, LONGEST: 2}, {LONGEST: 3}, {5: 2, LONGEST: 8}]),
            "window": st.sampled_from([None, 8, 13]),
            "pad": st.sampled_from([None, {"tokens": 0}]),
        }
    ),
    st.fixed_dictionaries(
        {"n": st.just(6), "bucket": st.just(length_of), "sizes": st.just([15, LONGEST]), "cost": st.just(length_of),
         "limit": st.integers(LONGEST, 120)}
    ),
)  # fmt: skip


def described(folder: Path, seed: int | None, filtered: bool, flat: bool, rank: int = 0, world: int = 1) -> Dataset:
    dataset = Dataset.open(str(folder))
    dataset = dataset if seed is None else dataset.shuffle(seed)
    dataset = dataset.shard(rank, world).map(tokens, threads=2)
    dataset = dataset.filter(is_kept) if filtered else dataset
    if not flat:
        return dataset
    dataset = dataset.flat_map(parts, threads=2)
    return dataset.filter(is_odd_part) if filtered else dataset


def batches(loader: Loader, most: int | None = None) -> list[Batch]:
    """Keys, of single samples each in a list; the values are those of the keys."""
    found: list[Batch] = []
    epoch = iter(loader)
    while most is None or len(found) < most:
        batch = next(epoch, None)
        if batch is None:
            break
        if isinstance(batch["__key__"], str):
            batch = {name: [value] for name, value in batch.items()}
        for key, row in zip(batch["__key__"], batch["tokens"], strict=True):
            assert row[0] == int(key.partition("/")[0])
        found.append(list(batch["__key__"]))
    return found


def modelled(samples: list[dict[str, Any]], rule: dict[str, Any], drop_last: bool) -> Iterator[Batch]:
    """The rule, said once more in the plainest way."""
    sizes, n = rule.get("sizes"), rule.get("n")
    bounds = sorted(sizes) if sizes else []
    most = {place: (sizes[bound] if isinstance(sizes, dict) else n) for place, bound in enumerate(bounds)} or {0: n}
    window = rule.get("window") or (8 * max(most.values()) if bounds else None)
    waiting: dict[int, list[dict[str, Any]]] = {}
    for one in samples:
        place = bisect_left(bounds, length_of(one)) if bounds else 0
        if "limit" in rule and sum(map(length_of, [*waiting.get(place, []), one])) > rule["limit"]:
            yield [each["__key__"] for each in waiting.pop(place)]
        waiting.setdefault(place, []).append(one)
        if len(waiting[place]) == most[place]:
            yield [each["__key__"] for each in waiting.pop(place)]
        elif window and sum(map(len, waiting.values())) > window:
            yield [each["__key__"] for each in waiting.pop(next(iter(waiting)))]
    if not drop_last:
        yield from ([each["__key__"] for each in left] for left in waiting.values())


@given(
    rule=RULES, seed=st.sampled_from([None, 1, 2]), filtered=st.booleans(), flat=st.booleans(), drop_last=st.booleans(),
    behind=st.booleans(), apart=st.booleans(), stop=st.integers(0, 30), where=st.sampled_from(["exact", "window"]),
)  # fmt: skip
@settings(max_examples=60)
def test_batches_are_those_of_the_rule_and_go_on_where_they_stopped(
    folder: Path, rule: dict[str, Any], seed: int | None, filtered: bool, flat: bool, drop_last: bool, behind: bool,
    apart: bool, stop: int, where: str,
) -> None:  # fmt: skip
    dataset = described(folder, seed, filtered, flat)
    samples = list(dataset.loader())
    batched = dataset.batch(**rule, drop_last=drop_last)
    batched = batched.filter(has_several, threads=2) if behind else batched
    expected = [one for one in modelled(samples, rule, drop_last) if not behind or len(one) > 1]
    if apart:
        batched, expected = batched.unbatch(), [[key] for one in expected for key in one]
    if where == "window":  # the order is another one each time: each sample comes once
        seen = sorted(key for one in batches(batched.loader(order="window", window=16)) for key in one)
        assert behind or drop_last or seen == sorted(key for one in expected for key in one)
        return
    assert batches(batched.loader()) == expected
    loader, resumed, again = batched.loader(), batched.loader(), batched.loader()
    assert batches(loader, stop) == expected[:stop]
    resumed.load_state_dict(loader.state_dict())
    if stop < len(expected):
        assert batches(resumed, 2) == expected[stop : stop + 2]
        again.load_state_dict(resumed.state_dict())
    if stop + 2 < len(expected):
        assert batches(again) == expected[stop + 2 :]
    loader.close()
    resumed.close()


@given(
    rule=RULES, seed=st.sampled_from([None, 1]), filtered=st.booleans(), flat=st.booleans(), behind=st.booleans(),
    apart=st.booleans(), worlds=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    stops=st.lists(st.integers(0, 9), min_size=4, max_size=4),
)  # fmt: skip
@settings(max_examples=50)
def test_on_another_number_of_ranks_every_sample_comes_once(
    folder: Path, rule: dict[str, Any], seed: int | None, filtered: bool, flat: bool, behind: bool, apart: bool,
    worlds: list[int], stops: list[int],
) -> None:  # fmt: skip
    """Through several numbers of ranks, on each of which every rank takes some batches; the last ones take the rest."""
    seen: list[str] = []
    states: list[Any] = []
    for turn, world in enumerate(worlds):
        made = [described(folder, seed, filtered, flat, rank, world).batch(**rule) for rank in range(world)]
        made = [one.map(dict, threads=2) if behind else one for one in made]
        loaders = [(one.unbatch() if apart else one).loader() for one in made]
        for loader, stop in zip(loaders, stops, strict=False):
            if states:
                loader.load_state_dict(states)
            most = None if turn == len(worlds) - 1 else stop
            seen += [key for one in batches(loader, most) for key in one]
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        if all(state["epoch"] for state in states):
            break
    whole = described(folder, None, filtered, flat).loader()
    assert sorted(seen) == sorted(sample["__key__"] for sample in whole)


KINDS: list[dict[str, Any]] = [
    {"bucket": length_of, "sizes": {10: 5, 20: 4, LONGEST: 2}, "window": 13, "pad": {"tokens": 0}},
    {"cost": length_of, "limit": 90},
]


def in_workers(folder: Path, rank: int = 0, world: int = 1) -> Dataset:
    """What of it runs where makes no difference."""
    dataset = Dataset.open(str(folder)).shuffle(5).shard(rank, world)
    dataset = dataset.map(tokens, processes=1).filter(is_kept, processes=1).filter(is_odd_part)
    return dataset.flat_map(parts, processes=1).filter(is_odd_part, threads=2)


@pytest.fixture(scope="module", params=KINDS, ids=["bucket", "cost"])
def pooled(folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, Any], Loader, list[Batch]]]:
    """A rule, a loader whose workers last over all examples, and its batches as they are without workers."""
    with in_workers(folder).batch(**request.param).loader() as loader:
        yield request.param, loader, batches(described(folder, 5, True, True).batch(**request.param).loader())


@given(stop=st.integers(0, 30), world=st.integers(1, 2))
@settings(max_examples=6)
def test_worker_processes_make_the_same_batches_and_go_on_where_they_stopped(
    folder: Path, pooled: tuple[dict[str, Any], Loader, list[Batch]], stop: int, world: int
) -> None:
    rule, loader, expected = pooled
    loader.load_state_dict(in_workers(folder).batch(**rule).loader().state_dict())
    assert batches(loader, stop) == expected[:stop]
    state = loader.state_dict()
    if stop >= len(expected):
        return
    ranks = [described(folder, 5, True, True, rank, world).batch(**rule).loader() for rank in range(world)]
    for one in ranks:
        one.load_state_dict(state)
    rest = sorted(key for one in ranks for batch in batches(one) for key in batch)
    assert rest == sorted(key for batch in expected[stop:] for key in batch)
    loader.load_state_dict(state)
    assert batches(loader) == expected[stop:]
