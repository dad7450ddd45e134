"""``ds[17]``, ``ds["train/17"]``, ``ds.at(…)``: the same samples as the loader gives, over every kind of source."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import pickle
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import BadSampleError, InputError, NotFoundError
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.namespace import Namespace
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3

pytestmark = pytest.mark.server
COUNT = 150


def fill_objects(folder: Path) -> None:
    for number in range(COUNT):
        for name in ("txt", "label"):
            path = folder / f"{number % 3}" / f"{number:03d}.{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} {number}")


def fill_tars(folder: Path, mode: str = "w", suffix: str = "tar") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(3):
        with tarfile.open(folder / f"{shard}.{suffix}", mode) as tar:  # type: ignore[call-overload]
            for number in range(shard, COUNT, 3):  # their keys are in no order over all shards
                for name in ("txt", "label"):
                    data = f"{name} {number}".encode()
                    info = tarfile.TarInfo(f"{number:03d}.{name}")
                    info.size = len(data)
                    tar.addfile(info, BytesIO(data))


def fill_table(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(2):
        numbers = list(range(part * COUNT // 2, (part + 1) * COUNT // 2))
        table = pa.table({"number": numbers, "text": [f"text {one}" for one in numbers]})
        pq.write_table(table, folder / f"{part}.parquet", row_group_size=20)


def fill_lines(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps({"number": number}) + "\n" for number in range(COUNT)))


def fill_odd(folder: Path) -> None:
    odd = ("a", "a.b", "a b", "a-1", "a/b", "a/b.c", "a!/x", "Z", "z", "10", "9", "ü", "日/本", "\U0001f600", "\uffee")
    for name in odd:
        path = folder / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def fill_paths(folder: Path) -> None:
    """A table of paths, in an order of its own."""
    fill_objects(folder / "data")
    lines = [f"data/{number % 3}/{number:03d}.txt" for number in reversed(range(COUNT))]
    (folder / "t.csv").write_text("path\n" + "".join(f"{line}\n" for line in lines))


SOURCES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "objects": (fill_objects, {}, ""),
    "single objects": (fill_objects, {"by": "object"}, ""),
    "classes": (fill_objects, {"by": "class"}, ""),
    "odd names": (fill_odd, {}, ""),
    "odd single names": (fill_odd, {"by": "object"}, ""),
    "shards": (fill_tars, {}, ""),
    "compressed shards": (lambda folder: fill_tars(folder, "w:gz", "tar.gz"), {}, ""),
    "rows": (fill_table, {}, ""),
    "lines": (fill_lines, {"format": "jsonl"}, ""),
    "a table of paths": (fill_paths, {}, "t.csv"),
}


@pytest.fixture(scope="module")
def space(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """`/<source>` for each: in a bucket."""
    root = tmp_path_factory.mktemp("sources")
    seaweedfs.create_bucket("random-access")
    store = open_store("s3://random-access", seaweedfs.options())
    for name, (fill, _, _) in SOURCES.items():
        fill(root / name)
    for path in root.rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(root)), path.read_bytes())
    made = Namespace(Settings())
    made.attach("/", "s3://random-access", endpoint=seaweedfs.endpoint, **credentials(seaweedfs))
    yield made
    made.close()


def credentials(server: EmbeddedS3) -> dict[str, str]:
    options = server.options()
    return {"access_key_id": str(options.access_key_id), "secret_access_key": str(options.secret_access_key)}


@pytest.fixture(scope="module", params=["cached", "not cached"])
def fetcher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetcher]:
    size = 1 << 30 if request.param == "cached" else 0
    made = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path_factory.mktemp("cache")), size=size)))
    yield made
    made.close()


def opened(space: Namespace, source: str) -> hr.Dataset:
    _, how, below = SOURCES[source]
    return hr.Dataset.open(f"/{source}/{below}".rstrip("/"), namespace=space, **how)


def plain(sample: Any) -> Any:
    return {name: bytes(value) if isinstance(value, memoryview) else value for name, value in sample.items()}


@pytest.mark.parametrize("source", [source for source in SOURCES if not source.startswith("odd")])
def test_the_same_as_the_loader_gives(space: Namespace, fetcher: Fetcher, source: str) -> None:
    for dataset in (opened(space, source), opened(space, source).shuffle(7)):
        wanted = [plain(sample) for sample in dataset.loader(fetcher=fetcher)]
        for _ in range(2):  # the second time from the cache, where there is one
            got = dataset.at(range(len(dataset)), fetcher=fetcher)
            assert [plain(sample) for sample in got] == wanted
        some = [17, 3, 3, -1, 149, 0, 17, *range(60, 80)]
        assert [plain(one) for one in dataset.at(some, fetcher=fetcher)] == [wanted[place] for place in some]
        assert [plain(one) for one in dataset[10:20].at(range(10), fetcher=fetcher)] == wanted[10:20]


@pytest.mark.parametrize("source", SOURCES)
def test_a_key_finds_its_sample(space: Namespace, source: str) -> None:
    dataset = opened(space, source)
    keys = [sample["__key__"] for sample in dataset]
    for key in keys[:: 13 if len(keys) == COUNT else 1]:  # of rows, which are numbered in each file, the first counts
        assert dataset[key]["__key__"] == key
        assert dataset.shuffle(1)[key]["__key__"] == key
        assert key in dataset
    for none in ("", "no such", keys[0] + "x", keys[0][:-1], "\udc80"):
        assert none not in dataset
        with pytest.raises(KeyError):
            dataset[none]


def test_places_slices_and_what_there_is_not(space: Namespace) -> None:
    dataset = opened(space, "objects")
    keys = [sample["__key__"] for sample in dataset]
    assert dataset[17]["__key__"] == keys[17]
    assert dataset[np.int64(17)]["__key__"] == keys[17]
    assert dataset[-1]["__key__"] == keys[-1]
    for places in ([3, 1, 2], (3, 1, 2), np.array([3, 1, 2], np.uint8), torch.tensor([3, 1, 2]).tolist()):
        assert [one["__key__"] for one in dataset[places]] == [keys[3], keys[1], keys[2]]
    assert dataset.at([]) == dataset[[]] == []
    for wrong in (COUNT, -COUNT - 1, [0, COUNT]):
        with pytest.raises(IndexError, match="no place"):
            dataset[wrong]
    for odd in (1.5, [1.5], [True, False], [[1]], None):
        with pytest.raises(TypeError):
            dataset[odd]  # type: ignore[call-overload]
    for bounds in ((10, 20), (-5, None), (None, None, 7), (20, 10, -3), (0, 5), (None, None, -1)):
        part = slice(*bounds)
        chosen = dataset[part]
        assert isinstance(chosen, hr.Dataset)
        assert [one["__key__"] for one in chosen] == keys[part]
        assert chosen[0]["__key__"] == keys[part][0]
        assert len(chosen) == len(keys[part])
    assert [one["__key__"] for one in dataset[10:40][5:10]] == keys[15:20]
    with pytest.raises(InputError, match="holds none"):
        dataset[5:5]
    repeated = dataset.shuffle(3).repeat()
    assert repeated[COUNT + 5]["__key__"] != repeated[5]["__key__"]
    assert sorted(one["__key__"] for one in repeated.at(range(COUNT, 2 * COUNT))) == sorted(keys)


def test_epochs_of_a_shuffle(space: Namespace) -> None:
    dataset = opened(space, "objects").shuffle(3)
    loader = dataset.loader()
    for epoch in range(2):
        loader.set_epoch(epoch)
        assert [one["__key__"] for one in loader] == [one["__key__"] for one in dataset.at(range(COUNT), epoch=epoch)]


def test_maps_are_applied_to_each_by_itself(space: Namespace) -> None:
    def change(sample: dict[str, Any]) -> dict[str, Any]:
        sample["more"] = sample["__key__"] + "!"
        return sample

    dataset = opened(space, "objects").map(change)
    first, second = dataset[[4, 4]]
    assert first == second
    assert first is not second
    assert first["more"].endswith("!")
    assert [one["more"] for one in dataset.at(range(40))] == [one["more"] for one in itertools.islice(dataset, 40)]


def test_what_fails_says_which(space: Namespace) -> None:
    def refuse(sample: dict[str, Any]) -> Any:
        raise ValueError("no good")

    dataset = opened(space, "objects").map(refuse)
    with pytest.raises(BadSampleError, match=r"0/000.*ValueError: no good") as caught:
        dataset[0]
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(BadSampleError):
        dataset.at(range(50))


def test_what_has_changed_or_gone_since(space: Namespace, fetcher: Fetcher) -> None:
    for number in range(3):
        space.write(f"/changing/{number}.txt", b"old")
    dataset = hr.Dataset.open("/changing", namespace=space)
    space.write("/changing/1.txt", b"newer")
    space.delete("/changing/2.txt")
    assert bytes(dataset.at([0], fetcher=fetcher)[0]["txt"]) == b"old"
    assert bytes(dataset.at([1], fetcher=fetcher)[0]["txt"]) == b"newer", "a folder is no snapshot"
    with pytest.raises(NotFoundError):
        dataset.at([2], fetcher=fetcher)


def test_windows_and_mixes(space: Namespace) -> None:
    objects, rows = opened(space, "objects"), opened(space, "shards")
    windows = objects.windows(3)
    for place in (0, 5, 20):
        assert plain_window(windows[place]) == plain_window(next(itertools.islice(windows, place, None)))
    mixed = hr.Dataset.mix([objects, rows], [1, 2], seed=5)
    wanted = [plain(sample) for sample in mixed]
    assert [plain(sample) for sample in mixed.at(range(len(wanted)))] == wanted


def plain_window(sample: dict[str, Any]) -> Any:
    return {name: [bytes(one) for one in value] if name != "__key__" else value for name, value in sample.items()}


@pytest.mark.parametrize("change", ["batch", "shard", "filter"])
def test_where_nothing_stands_at_a_place(space: Namespace, change: str) -> None:
    dataset = opened(space, "objects")
    odd = {"batch": dataset.batch(4), "shard": dataset.shard(0, 2), "filter": dataset.filter(bool)}[change]
    for wanted in (3, [3], slice(1, 3), "0/000"):
        with pytest.raises(InputError):
            odd[wanted]
    with pytest.raises(InputError):
        dataset.take(5)["0/000"]


@pytest.mark.parametrize("context", ["fork", "spawn", None])
def test_a_data_loader_with_any_sampler(space: Namespace, context: str | None) -> None:
    dataset = opened(space, "objects").map(length)
    weights = torch.utils.data.WeightedRandomSampler([1.0] * COUNT, 100)
    spread = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=1, shuffle=False)  # type: ignore[arg-type]
    for sampler in (weights, spread):
        loader = torch.utils.data.DataLoader(
            dataset,  # type: ignore[arg-type]
            batch_size=16,
            sampler=sampler,
            num_workers=2 if context else 0,
            multiprocessing_context=multiprocessing.get_context(context) if context else None,
        )
        numbers = torch.cat([batch["number"] for batch in loader])
        assert len(numbers) == (100 if sampler is weights else COUNT // 2)
    keys = [one["__key__"] for one in dataset]
    assert [keys.index(one["__key__"]) for one in pickle.loads(pickle.dumps(dataset))[[1, 2]]] == [1, 2]


def length(sample: dict[str, Any]) -> dict[str, Any]:
    return {"__key__": sample["__key__"], "number": len(sample["txt"])}


@settings(max_examples=40)
@given(
    first=st.one_of(st.none(), st.integers(-200, 200)),
    stop=st.one_of(st.none(), st.integers(-200, 200)),
    step=st.one_of(st.none(), st.integers(-9, 9).filter(bool)),
)
def test_slices_are_those_of_a_list(space: Namespace, first: int | None, stop: int | None, step: int | None) -> None:
    dataset, part = opened(space, "lines"), slice(first, stop, step)
    wanted = list(range(COUNT))[part]
    if not wanted:
        with pytest.raises(InputError):
            dataset[part]
        return
    assert [int(one["number"]) for one in dataset[part].at(range(len(wanted)))] == wanted
