"""Samples by the folders that they lie in: counted exactly, and found without a list of them."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.dataset import classes as module
from headrace.dataset.classes import Class, Classes, open_classes
from headrace.dataset.samples import ObjectSamples
from headrace.dataset.source import open_source
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
    monkeypatch.setattr(module, "MOST", 3)
    _, found = opened(world, {f"{number % 2}/{number % 3}/{number}/x.jpg": b"" for number in range(12)})
    assert found is not None
    assert (found.depth, found.levels) == (1, 1)
    assert found.by_level() == [Class("0", 6), Class("1", 6)]


def test_of_far_too_many_there_are_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    assert opened(world, {f"{number}/x.jpg": b"" for number in range(12)})[1] is None
