"""Shards the whole way, from tars that GNU tar and the webdataset package wrote: local files and SeaweedFS."""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import webdataset

import headrace as hr
from headrace.base.errors import ChangedError, InputError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.store import open_store
from headrace.store.protocol import Store
from tests.tar_kit import parts_of, tar_of

pytestmark = pytest.mark.server
SHARDS, COUNT = 7, 230
Samples = dict[str, dict[str, bytes]]
Maker = Callable[[Samples, Path, Path], None]


@pytest.fixture(scope="module")
def samples() -> Samples:
    """Small and large ones, with empty parts, in folders."""
    rng = random.Random(4)
    return {
        f"{row % 3}/{row:05d}": {
            "image.png": rng.randbytes(rng.choice([10, 3000, 70_000, 300_000])),
            "label": str(row).encode(),
            "note": b"" if row % 2 else b"n",
        }
        for row in range(COUNT)
    }


def groups(samples: Samples) -> Iterator[tuple[str, Samples]]:
    keys = list(samples)
    for number in range(SHARDS):
        yield f"part-{number:02d}.tar", {key: samples[key] for key in keys[number::SHARDS]}


def by_gnu_tar(samples: Samples, folder: Path, work: Path) -> None:
    """Of unsorted folders, as people do: a sample's parts do not always lie together."""
    for name, some in groups(samples):
        tree = work / name
        for key, parts in some.items():
            for part, data in parts.items():
                path = tree / f"{key}.{part}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        subprocess.run(["tar", "--create", "--file", folder / name, "--directory", tree, "."], check=True)


def by_webdataset(samples: Samples, folder: Path, _: Path) -> None:
    for name, some in groups(samples):
        with webdataset.TarWriter(str(folder / name), encoder=False) as writer:
            for key, parts in some.items():
                writer.write({"__key__": key, **parts})


@pytest.fixture(scope="module")
def made(samples: Samples, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Maker], Path]:
    """The folder of shards that somebody's program wrote, once."""

    @functools.cache
    def make(by: Maker) -> Path:
        base = tmp_path_factory.mktemp("made")
        (base / "shards").mkdir()
        by(samples, base / "shards", base / "work")
        return base / "shards"

    return make


@pytest.fixture(params=[by_gnu_tar, by_webdataset], ids=["gnu-tar", "webdataset"])
def shards(
    request: pytest.FixtureRequest, made: Callable[[Maker], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of its own, as the test may replace a shard."""
    folder = tmp_path / "shards"
    shutil.copytree(made(request.param), folder)
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, shards: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Store]]:
    """A URL where the shards are, and the store below it."""
    if request.param == "file":
        url = f"file://{shards}"
        yield url, open_store(url)
        return
    server = request.getfixturevalue("seaweedfs")
    url = f"{server.create_bucket(f'shards-{os.getpid()}')}/{secrets.token_hex(6)}"
    for name, value in server.variables().items():
        monkeypatch.setenv(name, value)
    store = open_store(url, server.options())
    with ThreadPoolExecutor(SHARDS) as pool:
        list(pool.map(lambda path: store.put(path.name, path.read_bytes()), shards.iterdir()))
    yield f"{url}/", store
    store.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Fetcher]:
    fetcher = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path / "none"), size=0)), None, Metrics())
    yield fetcher
    fetcher.close()


def check(batch: Mapping[str, Any], samples: Samples) -> list[str]:
    """Every part of the batch is the source's, byte for byte; returns the keys."""
    for row, key in enumerate(batch["__key__"]):
        assert {name: bytes(batch[name][row]) for name in samples[key]} == samples[key]
        assert batch["__shard__"][row].endswith(".tar")
    return batch["__key__"]


def all_keys(loader: Any, samples: Samples) -> list[str]:
    return [key for batch in loader for key in check(batch, samples)]


@pytest.mark.parametrize("block", [None, "16KB", "1GB"])
def test_two_epochs_every_sample_once_and_every_byte_as_in_the_source(
    place: tuple[str, Store], samples: Samples, plain: Fetcher, block: str | None
) -> None:
    ds = hr.Dataset.open(place[0])
    assert len(ds) == COUNT
    loader = ds.shuffle(7, block=block).batch(16).loader(fetcher=plain)
    first, second = all_keys(loader, samples), all_keys(loader, samples)
    assert sorted(first) == sorted(second) == sorted(samples)
    assert first != second
    assert all_keys(ds.shuffle(7, block=block).batch(16).loader(fetcher=plain), samples) == first
    assert plain.stats().counters.get("fetch.errors", 0) == 0


def test_through_the_nodes_cache(place: tuple[str, Store], samples: Samples) -> None:
    loader = hr.Dataset.open(place[0]).shuffle(7).batch(16).loader()
    for _ in range(2):
        assert sorted(all_keys(loader, samples)) == sorted(samples)


@pytest.mark.parametrize("block", [None, "4KB"])
@pytest.mark.parametrize("order", ["exact", "window"])
@pytest.mark.parametrize(("ranks_before", "ranks_after"), [(2, 3), (3, 1)])
def test_resume_on_another_number_of_ranks_sees_exactly_what_was_left(
    place: tuple[str, Store],
    samples: Samples,
    plain: Fetcher,
    order: str,
    ranks_before: int,
    ranks_after: int,
    block: str | None,
) -> None:
    ds = hr.Dataset.open(place[0]).shuffle(3, block=block).filter(is_kept, threads=2)
    seen: list[str] = []
    states = []
    for rank in range(ranks_before):
        loader = ds.shard(rank, ranks_before).batch(9).loader(order=order, window=20, fetcher=plain)
        for number, batch in enumerate(loader):
            seen += check(batch, samples)
            if number == 2 + rank:
                break
        states.append(json.loads(json.dumps(loader.state_dict())))
        loader.close()
    for rank in range(ranks_after):
        loader = hr.Dataset.open(place[0]).shuffle(3, block=block).filter(is_kept, threads=2).shard(rank, ranks_after)
        again = loader.batch(4).loader(order=order, window=20, fetcher=plain)
        again.load_state_dict(states)
        seen += all_keys(again, samples)
        assert again.epoch == 1
    assert sorted(seen) == sorted(key for key, parts in samples.items() if is_kept(parts))


def is_kept(sample: Mapping[str, Any]) -> bool:
    return int(bytes(sample["label"])) % 5 != 0


@pytest.mark.parametrize("shards", [by_webdataset], indirect=True)
def test_parts_that_lie_together_come_in_one_request(shards: Path, plain: Fetcher) -> None:
    """Also those of samples that are made together: in storage order, hardly more than one request a shard."""
    assert len(list(hr.Dataset.open(f"file://{shards}").shuffle(1).loader(fetcher=plain))) == COUNT
    shuffled = plain.stats().counters["fetch.requests"]
    assert shuffled <= COUNT
    assert len(list(hr.Dataset.open(f"file://{shards}").loader(fetcher=plain))) == COUNT
    assert plain.stats().counters["fetch.requests"] - shuffled <= 2 * len(list(shards.glob("*.tar")))


def test_blocks_take_fewer_requests_and_mix(place: tuple[str, Store], samples: Samples, plain: Fetcher) -> None:
    ds = hr.Dataset.open(place[0])
    order = ds.shuffle(5, block="8KB")
    keys = all_keys(order.batch(16).loader(fetcher=plain), samples)
    assert sorted(keys) == sorted(samples)
    requests = plain.stats().counters["fetch.requests"]
    mixing = order.mixing
    assert mixing is not None
    assert requests < COUNT
    assert mixing.blocks > mixing.mixed_blocks > 1
    assert mixing.samples * mixing.blocks == pytest.approx(COUNT)
    assert ds.shuffle(5).mixing is None
    stored = {key: number for number, key in enumerate(all_keys(ds.batch(16).loader(fetcher=plain), samples))}
    places = [stored[key] for key in keys]
    neighbours = sum(1 for one, other in itertools.pairwise(places) if other == one + 1)
    assert neighbours < COUNT / 4


def test_only_shards_have_blocks(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a")
    with pytest.raises(InputError, match="by blocks"):
        hr.Dataset.open(f"file://{tmp_path}").shuffle(1, block="4MB")
    with pytest.raises(InputError, match="by blocks"):
        hr.Dataset.open(f"file://{tmp_path}").take(1).shuffle(1, block="4MB")


def test_the_second_open_reads_nothing_and_the_loader_refuses_a_replaced_shard(
    place: tuple[str, Store], samples: Samples, plain: Fetcher
) -> None:
    url, store = place
    assert len(hr.Dataset.open(url)) == COUNT
    store.put("part-03.tar", tar_of([("new.x", b"1")]))
    again = hr.Dataset.open(url)
    if url.startswith("file:"):  # a folder tells that it has changed
        assert len(again) < COUNT
        return
    # Its listing is still trusted: nothing is asked of the store.
    assert len(again) == COUNT
    with pytest.raises(ChangedError, match=r"part-03\.tar"):
        all_keys(again.batch(16).loader(fetcher=plain), samples)


def test_mixed_with_single_objects(place: tuple[str, Store], samples: Samples, plain: Fetcher, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    for number in range(40):
        (loose / f"{number}.label").write_bytes(b"0")
    both = hr.Dataset.mix([hr.Dataset.open(place[0]), hr.Dataset.open(f"file://{loose}")], seed=1)
    found = list(both.shuffle(2).loader(fetcher=plain))
    keys = sorted(sample["__key__"] for sample in found)
    assert keys == sorted([*samples, *map(str, range(40))])
    assert all(parts_of(s) == samples[s["__key__"]] for s in found if s["__key__"] in samples)
