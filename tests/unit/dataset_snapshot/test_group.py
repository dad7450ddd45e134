"""Which objects make one sample: the named cases. The general case is tests/property/test_group.py."""

from pathlib import Path

import numpy as np
import pytest

from headrace.base.errors import InputError, NotFoundError
from headrace.formats.open_options import OpenOptions
from headrace.formats.opening_targets import open_source
from tests.unit.dataset_snapshot.kit import World


def samples(world: World, by: str) -> dict[str, list[str]]:
    index = open_source("/data", OpenOptions(by=by), **world.context)
    return {key: [p.name for p in parts] for key, parts, _ in index.specs(np.arange(len(index)))}


def test_stems(world: World) -> None:
    world.write(
        dict.fromkeys(
            [
                "a.d/17.image", "a.d/17.label", "b/x.tar.gz", "b/.hidden", "b/.hid.png", "b/README", "b/odd.",
                "b/..two.txt", "é/ü.ä", "日/本.語",
            ],
            b"",
        )
    )  # fmt: skip
    assert samples(world, "stem") == {
        "a.d/17": ["image", "label"],
        "b/..two": ["txt"],
        "b/.hid": ["png"],
        "b/.hidden": ["data"],
        "b/README": ["data"],
        "b/odd.": ["data"],
        "b/x": ["tar.gz"],
        "é/ü": ["ä"],
        "日/本": ["語"],
    }


def test_stems_that_are_not_adjacent(world: World) -> None:
    world.write(dict.fromkeys(["a", "a-1.png", "a.d/1.png", "a.png", "a.zip", "b.txt"], b""))
    found = samples(world, "stem")
    assert found == {"a": ["data", "png", "zip"], "a-1": ["png"], "a.d/1": ["png"], "b": ["txt"]}
    assert list(found) == ["a", "a-1", "a.d/1", "b"]


def test_objects(world: World) -> None:
    world.write(dict.fromkeys(["a.image", "a.label", "b"], b""))
    assert samples(world, "object") == {"a.image": ["image"], "a.label": ["label"], "b": ["data"]}


def test_classes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write(dict.fromkeys(["dog/1.png", "cat-b/1.png", "cat/x/1.png", "cat/x/1.txt", "README.md"], b""))
    index = open_source("/data", OpenOptions(by="class"), **world.context)
    assert index.classes == ["cat", "cat-b", "dog"]
    assert [(key, extra) for key, _, extra in index.specs(np.arange(3))] == [
        ("cat-b/1", {"class": 1}),
        ("cat/x/1", {"class": 0}),
        ("dog/1", {"class": 2}),
    ]
    assert "1 objects lie in no class folder" in caplog.text
    assert open_source("/data", OpenOptions(by="folder"), **world.context).classes == ["cat-b", "cat/x", "dog"]


def test_two_objects_for_one_part(world: World) -> None:
    world.write(dict.fromkeys(["a", "a.data"], b""))
    with pytest.raises(InputError, match='suffix "data"') as caught:
        open_source("/data", **world.context)
    assert caught.value.path == "a"


def test_unknown_and_empty_groupings(world: World) -> None:
    world.write({"README": b""})
    with pytest.raises(InputError, match="by='shard'"):
        open_source("/data", OpenOptions(by="shard"), **world.context)
    with pytest.raises(NotFoundError, match="make a sample"):
        open_source("/data", OpenOptions(by="class"), **world.context)


def test_fingerprints(world: World, tmp_path: Path) -> None:
    world.write({"a/1.x": b"1", "b/1.x": b"1"})
    first = open_source("/data", **world.context).fingerprint
    assert open_source("/data", **world.context).fingerprint == first
    assert open_source("/data", OpenOptions(by="object"), **world.context).fingerprint != first
    world.write({"a/1.x": b"22"})
    assert open_source("/data", **world.context).fingerprint != first
