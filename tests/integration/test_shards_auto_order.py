"""``shuffle(block="auto")``: what is picked at which cost, and that all ranks and later runs come to the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import CorruptError, InputError
from headrace.base.metrics import Metrics
from headrace.base.progress import SILENT
from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.snapshot import take_snapshot
from headrace.fetch import Fetcher
from headrace.formats.index.index_job import Job, Shard
from headrace.formats.index.shard_index import open_set
from headrace.formats.shard_samples import ShardSamples
from headrace.formats.tar.tar import Tar
from headrace.loader.order.auto_block import WORTH, decide_block
from headrace.loader.order.blocked_order import Blocked
from headrace.loader.order.store_rates import Cost, Rate
from headrace.store import open_store
from headrace.testing.faults import LatencyStore
from tests.tar_kit import write_shards


def make_shards(folder: Path, count: int, size: int, per_shard: int) -> Path:
    rng = random.Random(5)
    write_shards(folder, {f"{row:05d}": {"bin": rng.randbytes(size)} for row in range(count)}, per_shard)
    return folder


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_HOME", (tmp_path / "home").as_uri())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def behind(latency_s: float, folder: Path) -> tuple[hr.Dataset, LatencyStore]:
    """The shards of a folder, seen through a store that answers so late."""
    settings = Settings.load()
    store = LatencyStore(open_store(folder.as_uri()), latency_s)
    infos = sorted((info for page in store.list() for info in page), key=lambda info: info.key)
    shards = [Shard(info.key, info.size, info.version) for info in infos]
    index = open_set(Shelf.of(settings), Job(store, Tar(), shards, settings, SILENT))
    return hr.Dataset.of(ShardSamples(store, "", Tar(), shards, index)), store


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[Fetcher]:
    made = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path / "none"), size=0)), None, Metrics())
    yield made
    made.close()


@pytest.mark.parametrize(("size", "count", "per_shard", "blocks"), [(2000, 3000, 750, True), (4_000_000, 12, 3, False)])
def test_it_picks_by_what_a_request_costs(
    node: Path, fetcher: Fetcher, size: int, count: int, per_shard: int, *, blocks: bool
) -> None:
    ds, store = behind(0.02, make_shards(node / "shards", count, size, per_shard))
    ds = ds.shuffle(seed=1, block="auto")
    choice = ds.choice
    assert choice is not None
    assert (choice.block is not None) == blocks == (ds.mixing is not None) == isinstance(ds.stream, Blocked)
    assert 0 < choice.requests_per_s < 64 / 0.02 * 1.1, "more requests than 64 in flight can be answered"
    assert choice.bytes_per_s > 1_000_000
    assert ("by blocks of" in str(choice)) == blocks or not blocks
    assert f"{choice.requests_per_s:,.0f} requests/s" in str(choice)
    with contextlib.closing(ds.loader(fetcher=fetcher)) as loader:
        keys = [sample["__key__"] for sample in loader]
    assert sorted(keys) == [f"{row:05d}" for row in range(count)]
    asked = store.plan.requests("get")
    again = behind(0.02, node / "shards")[0].shuffle(seed=1, block="auto")
    assert again.choice == choice
    assert again.fingerprint == ds.fingerprint
    assert store.plan.requests("get") == asked


def test_single_objects_come_from_everywhere_and_nothing_is_measured(node: Path) -> None:
    (node / "objects").mkdir()
    for number in range(5):
        (node / f"objects/{number}.txt").write_bytes(b"x")
    ds = hr.Dataset.open((node / "objects").as_uri()).shuffle(seed=1, block="auto").shard(1, 4)
    assert ds.choice is not None
    assert (ds.choice.block, ds.choice.kept, ds.mixing) == (None, "everyone", None)
    assert ds.fingerprint == hr.Dataset.open((node / "objects").as_uri()).shuffle(seed=1).fingerprint


def test_ranks_that_may_not_agree_are_refused(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = hr.Dataset.open(make_shards(node / "shards", 60, 500, 20).as_uri())
    auto = ds.shuffle(seed=1, block="auto")
    assert auto.choice is not None
    assert auto.choice.kept == "node"
    assert auto.shard(0, 1).striping.world_size == 1
    for refused in (
        lambda: auto.shard(0, 2),
        lambda: ds.shard(0, 2).shuffle(seed=1, block="auto"),
        lambda: hr.Dataset.mix([ds, auto]).shard(0, 2),
    ):
        with pytest.raises(InputError, match="they may not agree") as caught:
            refused()
        assert "snapshot" in (caught.value.hint or "")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # torchrun: all ranks are on this node, and share its shelf
    assert auto.shard(1, 2).fingerprint == ds.shard(0, 2).shuffle(seed=1, block="auto").fingerprint
    with pytest.raises(InputError, match="4 ranks"):
        auto.shard(0, 4)


def test_where_the_home_cannot_be_written_ranks_are_refused_too(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(node)
    settings = Settings.load()
    namespace = hr.Namespace.load(settings)
    namespace.attach("/home", (node / "home").as_uri(), read_only=True)
    monkeypatch.setenv("HEADRACE_HOME", "/home")
    auto = hr.Dataset.open("set@v1", namespace=namespace).shuffle(seed=1, block="auto")
    assert auto.choice is not None
    assert auto.choice.kept == "node"
    assert not list((node / "home").rglob("order-*"))
    with pytest.raises(InputError, match="they may not agree"):
        auto.shard(0, 2)


def snapshot(node: Path) -> None:
    settings = Settings.load()
    url = make_shards(node / "shards", 400, 3000, 50).as_uri()
    take_snapshot(url, "set", namespace=hr.Namespace.load(settings), settings=settings)


RANK = """
import sys, json, dataclasses, headrace as hr
ds = hr.Dataset.open("set@v1")
sys.stdin.readline()
ds = ds.shuffle(seed=7, block="auto").shard(int(sys.argv[1]), 3)
keys = [sample["__key__"] for sample in ds.loader()]
print(json.dumps({"choice": dataclasses.asdict(ds.choice), "fingerprint": ds.fingerprint, "keys": keys}))
"""


def test_ranks_of_several_nodes_that_measure_at_once_take_one_choice(node: Path) -> None:
    snapshot(node)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank)],
            env={**os.environ, "HEADRACE_CACHE_DIR": str(node / f"cache{rank}")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
    ends = [json.loads(rank.communicate(timeout=60)[0]) for rank in ranks]
    assert [one["choice"] for one in ends] == [ends[0]["choice"]] * 3
    assert ends[0]["choice"]["kept"] == "home"
    assert len({one["fingerprint"] for one in ends}) == 1
    assert sorted(key for one in ends for key in one["keys"]) == [f"{row:05d}" for row in range(400)]


def test_the_choice_of_a_snapshot_outlives_the_node_and_a_run_resumes_on_more_ranks(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot(node)
    first = hr.Dataset.open("set@v1").shuffle(seed=7, block="auto").batch(10)
    with contextlib.closing(first.loader()) as loader:
        seen = [key for _, batch in zip(range(7), loader, strict=False) for key in batch["__key__"]]
        state = loader.state_dict()
    [kept] = (node / "home").rglob("order-*.json")
    other = json.loads(kept.read_text())
    other["requests_per_s"] = 1.5  # nobody measures that: who says so has read it here
    kept.write_text(json.dumps(other))
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(node / "another"))
    second = hr.Dataset.open("set@v1").shuffle(seed=7, block="auto").batch(10)
    assert second.choice is not None
    assert second.choice.requests_per_s == 1.5
    for rank in range(3):
        with contextlib.closing(second.shard(rank, 3).loader()) as loader:
            loader.load_state_dict(state)
            seen += [key for batch in loader for key in batch["__key__"]]
    assert sorted(seen) == [f"{row:05d}" for row in range(400)]


def test_a_damaged_choice_in_the_home_is_named(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(node)
    hr.Dataset.open("set@v1").shuffle(block="auto")
    [kept] = (node / "home").rglob("order-*.json")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(node / "another"))
    for text in (
        "",
        "[]",
        "7",
        '{"block": "4MB"}',
        '{"block": -1}',
        '{"block": 1, "format": 9}',
        '{"x": 1}',
        "[" * 9999,
    ):
        kept.write_text(text)
        with pytest.raises(CorruptError, match=r"order-.*\.json"):
            hr.Dataset.open("set@v1").shuffle(block="auto")
    kept.write_text('{"block": 1000000, "requests_per_s": "many"}')
    with pytest.raises(CorruptError, match="no such order"):
        hr.Dataset.open("set@v1").shuffle(block="auto")


def test_workers_of_a_dataloader_are_no_ranks(node: Path) -> None:
    import torch.utils.data

    ds = hr.Dataset.open(make_shards(node / "shards", 60, 500, 20).as_uri()).shuffle(seed=1, block="auto").batch(7)
    assert ds.choice is not None
    assert ds.choice.kept == "node"
    loader = torch.utils.data.DataLoader(hr.torch.IterableDataset(ds), batch_size=None, num_workers=2)
    assert sorted(key for batch in loader for key in batch["__key__"]) == [f"{row:05d}" for row in range(60)]


rates = st.floats(0.1, 1e9)


@given(rates, rates, st.floats(0.5, 20), st.floats(1, 1e8), st.integers(1, 10**9))
def test_a_choice_at_any_cost(requests: float, size: float, each: float, held: float, samples: int) -> None:
    cost = Cost(Rate(requests, size, 64), Rate(1.0, size, 8), each, held, samples)
    choice = decide_block(cost)
    fits = 2 * held <= 4_000_000
    assert (choice.block is not None) == (fits and cost.singly_per_s < WORTH * cost.by_block_per_s)
    assert choice.block is None or max(250_000, 2 * held) <= choice.block + 1 <= 4_000_001
    assert decide_block(cost) == choice


def test_samples_without_a_byte_need_no_requests() -> None:
    nothing = Rate(float("inf"), float("inf"), 0)
    assert decide_block(Cost(nothing, nothing, 0, 0, 5)).block is None
