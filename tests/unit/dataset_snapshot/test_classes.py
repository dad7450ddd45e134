"""Samples by the folders that they lie in: counted exactly, and found without a list of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.base.errors import InputError
from headrace.catalog import folder_classes as module
from headrace.catalog.folder_classes import OUTSIDE_ALL, Class, Classes, open_classes
from headrace.catalog.object_samples import ObjectSamples
from headrace.catalog.snapshot import take_snapshot
from headrace.formats.opening_targets import open_source
from headrace.loader.column_classes import class_columns, open_column_classes
from tests.unit.dataset_snapshot.kit import World

TREE = {
    "train/cat/1.jpg": b"", "train/cat/1.txt": b"", "train/cat/2.jpg": b"", "train/cat-b/3.jpg": b"",
    "val/cat/1.jpg": b"", "val/dog/puppy/4.jpg": b"", "val/dog/5.jpg": b"", "top.jpg": b"", "a.txt": b"",
}  # fmt: skip


def opened(world: World, tree: dict[str, bytes] = TREE) -> tuple[ObjectSamples, Classes | None]:
    world.write(tree)
    index = open_source("/data", **world.context)
    assert isinstance(index, ObjectSamples)
    return index, open_classes(index, settings=world.settings)


def keys(index: ObjectSamples, found: Classes, name: str, level: int) -> list[str]:
    places = found.places(name, level)
    return [key for key, _, _ in index.specs(places.at(0, len(places)))]


def test_classes_are_the_folders_that_samples_lie_in(world: World) -> None:
    index, found = opened(world)
    assert found is not None
    assert found.levels == 3
    assert found.by_level() == [
        Class("cat", 3), Class(".", 2), Class("cat-b", 1), Class("dog", 1), Class("puppy", 1),
    ]  # fmt: skip
    assert found.by_level(1) == [Class("train", 3), Class("val", 3), Class(".", 2)]
    assert found.by_level(3) == [Class(".", 7), Class("puppy", 1)]
    assert sum(one.samples for one in found.by_level(2)) == len(index)
    assert keys(index, found, "cat", 0) == ["train/cat/1", "train/cat/2", "val/cat/1"]
    assert keys(index, found, ".", 0) == ["a", "top"]
    assert keys(index, found, "dog", 2) == ["val/dog/5", "val/dog/puppy/4"]
    assert len(found.places("unicorn")) == 0


@pytest.mark.parametrize("seed", range(5))
def test_any_stretch_of_a_class(world: World, seed: int) -> None:
    some = np.random.default_rng(seed)
    tree = {f"{some.integers(3)}/{some.integers(4)}/{number:03}.x": b"" for number in range(300)}
    index, found = opened(world, tree)
    assert found is not None
    for name in ("0", "1", "2", "3"):
        places = found.places(name)
        expected = [at for at, (key, _, _) in enumerate(index.specs(np.arange(300))) if key.split("/")[1] == name]
        assert places.at(0, 1000).tolist() == expected
        for start in (0, 1, 7, len(expected) - 1, len(expected), 500):
            assert places.at(start, start + 9).tolist() == expected[start : start + 9]


def test_they_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    index, found = opened(world)
    monkeypatch.setattr(ObjectSamples, "folder_runs", None)
    again = open_classes(index, settings=world.settings)
    assert found is not None
    assert again is not None
    assert again.by_level() == found.by_level()


def test_of_too_many_folders_the_upper_ones_are_told_apart(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CLASSES", 3)
    _, found = opened(world, {f"{number % 2}/{number % 3}/{number}/x.jpg": b"" for number in range(12)})
    assert found is not None
    assert (found.depth, found.levels) == (1, 1)
    assert found.by_level() == [Class("0", 6), Class("1", 6)]


def test_of_far_too_many_there_are_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CLASSES", 3)
    assert opened(world, {f"{number}/x.jpg": b"" for number in range(12)})[1] is None


LABELS = ["cat", "cat", None, "dog", "a/b", "cat", "dog", "dog", None, None]


@pytest.mark.parametrize("kind", ["text", "dictionary", "numbers", "flags"])
def test_a_column_of_tables_tells_classes(world: World, kind: str) -> None:
    """Of several files and row groups; the order is that of the samples."""
    told = {"numbers": {"cat": 1, "dog": 2, "a/b": -3}, "flags": {"cat": True, "dog": False, "a/b": True}}.get(kind)
    values = LABELS if told is None else [None if one is None else told[one] for one in LABELS]
    column = pa.array(values).dictionary_encode() if kind == "dictionary" else pa.array(values)
    for number in range(3):
        table = pa.table({"x": [float(number)] * 10, "label": column, "picture": [b""] * 10})
        pq.write_table(table, world.data / f"{number}.parquet", row_group_size=4)
    take_snapshot("/data", "t", **world.context)
    index = open_source("t@v1", **world.context)
    assert class_columns(index) == ("label",)
    fetcher = world.namespace.fetcher
    found = open_column_classes("t@v1", "label", fetcher=fetcher, **world.context)
    assert found is not None
    names = [OUTSIDE_ALL if one is None else str(one).lower() if kind == "flags" else str(one) for one in values] * 3
    assert {one.name: one.samples for one in found.by_level()} == dict(Counter(names))
    for name in set(names):
        places = found.places(name)
        assert places.at(0, 99).tolist() == [at for at, one in enumerate(names) if one == name]
    with pytest.raises(InputError, match="tells no classes"):
        open_column_classes("t@v1", "x", fetcher=fetcher, **world.context)


def test_a_column_of_too_many_values_tells_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.loader.column_classes.MOST_CLASSES", 3)
    pq.write_table(pa.table({"label": range(9)}), world.data / "a.parquet")
    take_snapshot("/data", "t", **world.context)
    assert open_column_classes("t@v1", "label", fetcher=world.namespace.fetcher, **world.context) is None
