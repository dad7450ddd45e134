"""What a user's function does to a sample stays its own: nothing of it comes into the cache, or into another epoch."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.pack.examples import RecordWriter, example
from headrace.store import open_store
from headrace.store.protocol import Store

COUNT, SIDE = 120, 300
_places = count()


def picture(row: int) -> Any:
    return np.full((SIDE, SIDE), row + 1, np.uint8)


def npy(row: int) -> bytes:
    file = io.BytesIO()
    np.save(file, picture(row))
    return file.getvalue()


def as_objects(store: Store) -> None:
    for row in range(COUNT):
        store.put(f"{row:04d}.x.npy", npy(row))


def as_tar(store: Store) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for row in range(COUNT):
            member = tarfile.TarInfo(f"{row:04d}.x.npy")
            member.size = len(body := npy(row))
            tar.addfile(member, io.BytesIO(body))
    store.put("a.tar", file.getvalue())


def as_rows(store: Store) -> None:
    file = io.BytesIO()
    np.save(file, np.stack([picture(row) for row in range(COUNT)]))
    store.put("rows.npy", file.getvalue())


def as_examples(store: Store) -> None:
    file = io.BytesIO()
    writer = RecordWriter(file)
    for row in range(COUNT):
        writer.add(example({"x": picture(row).astype(np.float32).ravel()}))
    store.put("a.tfrecord", file.getvalue())


@pytest.fixture
def store(seaweedfs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for variable, value in seaweedfs.variables().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "node"))
    bucket = seaweedfs.create_bucket(f"not-shared-{os.getpid()}")  # one: the first object of each takes a second
    store = open_store(f"{bucket}/{next(_places)}", seaweedfs.options())
    yield store
    store.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Fetcher]]:
    made: list[Fetcher] = []

    def another() -> Fetcher:
        made.append(Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path / "own"), min_free=0)), None, Metrics()))
        made[-1].insist()
        return made[-1]

    yield another
    for fetcher in made:
        fetcher.close()


def arrays_in(sample: Mapping[str, Any]) -> list[Any]:
    return [value for name, value in sample.items() if not name.startswith("__") and isinstance(value, np.ndarray)]


def as_table(store: Store) -> None:
    file = io.BytesIO()
    rows = {"x": [picture(row)[0].astype(np.float32) for row in range(COUNT)], "words": [["a", "b"]] * COUNT}
    pq.write_table(pa.table(rows), file, row_group_size=50)
    store.put("a.parquet", file.getvalue())


def wiped(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What an augmentation in place does; and what the sample was before."""
    (array,) = arrays_in(sample)
    values = np.unique(array).tolist()
    array[:] = 0
    assert sample.get("words", ["a", "b"]) == ["a", "b"]
    sample.get("words", []).append("c")
    return {"values": values}


def opened_as(store: Store, kind: str) -> Any:
    return hr.Dataset.open(f"{store.url}/", format="npy" if kind == "npy rows" else None)


WRITTEN: dict[str, tuple[Callable[[Store], None], Callable[[Any], Any]]] = {
    "objects": (as_objects, lambda ds: ds.map(hr.decode.npy())),
    "tar": (as_tar, lambda ds: ds.map(hr.decode.npy())),
    "npy rows": (as_rows, lambda ds: ds),
    "examples": (as_examples, lambda ds: ds.map(hr.decode.example())),
    "table": (as_table, lambda ds: ds),
}


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("batch", [None, 4])
def test_arrays_may_be_changed_and_the_next_epoch_is_as_the_first(
    store: Store, opened: Callable[[], Fetcher], kind: str, batch: int | None
) -> None:
    write, decoded = WRITTEN[kind]
    write(store)
    dataset = decoded(opened_as(store, kind)).map(wiped).batch(batch or COUNT)
    for epoch in range(3):
        fetcher = opened()
        for again in range(2):
            found = [values for one in dataset.loader(fetcher=fetcher) for values in one["values"]]
            assert sorted(found) == [[row + 1] for row in range(COUNT)], f"epoch {epoch}.{again}"
        assert fetcher.settle(60)
    assert fetcher.metrics.get("cache.hit")


def test_batches_of_a_table_are_as_they_were_in_every_epoch(store: Store, opened: Callable[[], Fetcher]) -> None:
    as_table(store)
    found: list[float] = []
    for batch in opened_as(store, "table").repeat(3).batch(50).loader(fetcher=opened()):
        found += batch["x"][:, 0].tolist()
        try:
            batch["x"][:] = 0
        except ValueError:
            continue  # a view of what is kept, which it does not let go of
    assert sorted(found) == [row + 1 for row in range(COUNT) for _ in range(3)]


@pytest.mark.parametrize("kind", ["npy rows", "examples"])
def test_a_batch_may_be_changed(store: Store, opened: Callable[[], Fetcher], kind: str) -> None:
    write, decoded = WRITTEN[kind]
    write(store)
    for epoch in range(2):
        fetcher, found = opened(), list[float]()
        for batch in decoded(opened_as(store, kind)).batch(4).loader(fetcher=fetcher):
            (array,) = arrays_in(batch)
            found += array.reshape(len(array), -1).max(axis=1).tolist()
            array[:] = 0
        assert sorted(found) == [row + 1 for row in range(COUNT)], f"epoch {epoch}"
        assert fetcher.settle(60)


@pytest.mark.parametrize("kind", ["objects", "tar"])
def test_bytes_are_read_only_in_every_epoch(store: Store, opened: Callable[[], Fetcher], kind: str) -> None:
    WRITTEN[kind][0](store)
    for _ in range(2):
        fetcher = opened()
        for batch in opened_as(store, kind).batch(8).loader(fetcher=fetcher):
            parts = [part for name in batch if not name.startswith("__") for part in batch[name]]
            assert all(part.readonly for part in parts)
            with pytest.raises(ValueError, match="read-only"):
                np.frombuffer(parts[0], np.uint8)[0] = 7
        assert fetcher.settle(60)


def test_so_are_those_of_a_single_read(store: Store, opened: Callable[[], Fetcher]) -> None:
    info = store.put("one", b"x" * 100_000)
    fetcher = opened()
    for _ in range(2):
        assert fetcher.get(Read(store, "one", info.size, info.version)).data.readonly
        assert fetcher.settle(60)
    assert fetcher.metrics.get("cache.hit")
