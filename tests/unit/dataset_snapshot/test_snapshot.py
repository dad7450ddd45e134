"""Snapshots end to end over file://: taken, opened, compared, verified, refused."""

import json
import logging
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    CorruptError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    SettingError,
)
from headrace.base.settings import Settings
from headrace.catalog.sample_index import SampleIndex
from headrace.catalog.snapshot import list_snapshots, open_snapshot, snapshot_objects, take_snapshot
from headrace.catalog.snapshot_diff import change_summary, diff, verify
from headrace.formats.open_options import OpenOptions
from headrace.formats.opening_targets import open_source
from headrace.namespace import Namespace
from tests.unit.dataset_snapshot.kit import World

TREE = {"train/1.image": b"one", "train/1.label": b"1", "train/2.image": b"two!", "train/2.label": b"2", "val/9.x": b""}


def everything(index: SampleIndex) -> list[tuple[str, dict[str, int]]]:
    specs = index.specs(np.arange(len(index)))
    return [(key, {part.name: part.size for part in parts}) for key, parts, _ in specs]


def test_take_and_open(world: World) -> None:
    world.write(TREE)
    made = take_snapshot("/data", "digits", **world.context)
    assert (made.id, made.objects, made.bytes, made.parents) == ("digits@v1", 5, 9, ())
    assert (made.source, made.path) == (f"file://{world.data}", "/data")
    assert sorted(os.listdir(world.home / "datasets/digits/v1")) == ["manifest.parquet", "snapshot.json"]
    for name in ("digits@v1", "digits", "digits@latest"):
        assert open_snapshot(name, **world.context) == made
    index = open_source("digits@v1", **world.context)
    assert everything(index) == [
        ("train/1", {"image": 3, "label": 1}),
        ("train/2", {"image": 4, "label": 1}),
        ("val/9", {"x": 0}),
    ]
    assert index.pinned
    assert index.sizes(np.array([1, 0, 2])).tolist() == [5, 4, 0]
    part = index.specs(np.array([0]))[0][1][0]
    blob = index.store.get(part.key, if_match=part.version)
    assert bytes(blob.data) == b"one"
    assert part.version == blob.info.version


def test_another_node_builds_the_same_index_from_the_manifest(world: World) -> None:
    world.write(TREE)
    take_snapshot("/data/train", "digits", **world.context)
    here = open_source("digits", **world.context)
    world.write({"train/3.image": b"not in the snapshot"})
    there = open_source("digits", **world.elsewhere().context)
    rows = np.arange(2)
    assert (here.fingerprint, here.specs(rows)) == (there.fingerprint, there.specs(rows))
    assert [part.key for part in there.specs(rows)[1][1]] == ["train/2.image", "train/2.label"]


def test_opening_lists_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write(TREE)
    take_snapshot("/data", "digits", **world.context)
    (world.root / "data").rename(world.root / "moved")
    assert len(open_source("digits@v1", **world.context)) == 3


def test_versions_count_on_and_name_their_parent(world: World) -> None:
    world.write(TREE)
    for number in (1, 2, 3):
        made = take_snapshot("/data", "digits", **world.context)
        assert made.version == f"v{number}"
    assert made.parents == ("digits@v2",)
    take_snapshot("/data", "digits", "best", **world.context)
    take_snapshot("/data/train", "other", **world.context)
    ids = [s.id for s in list_snapshots(**world.context)]
    assert ids == ["digits@v1", "digits@v2", "digits@v3", "digits@best", "other@v1"]
    assert open_snapshot("digits", **world.context).version == "best"


def test_an_existing_version_is_refused_and_kept(world: World) -> None:
    world.write(TREE)
    first = take_snapshot("/data", "digits", "v1", **world.context)
    world.write({"train/3.image": b"x"})
    with pytest.raises(AlreadyExistsError, match="digits@v1 exists") as caught:
        take_snapshot("/data", "digits", "v1", **world.context)
    assert caught.value.exit_code == 5
    assert open_snapshot("digits@v1", **world.elsewhere().context) == first


def test_an_unfinished_attempt_is_not_listed_nor_in_the_way(world: World) -> None:
    world.write(TREE)
    torn = world.home / "datasets/digits/v1/manifest.parquet"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"from a writer that was killed")
    assert list_snapshots("digits", **world.context) == []
    assert take_snapshot("/data", "digits", **world.context).version == "v2"
    made = take_snapshot("/data", "digits", "v1", **world.context)
    assert made.manifest.startswith("manifest-")
    assert len(open_source("digits@v1", **world.elsewhere().context)) == 3
    assert torn.read_bytes() == b"from a writer that was killed"


def _take(root: Path, settings: Settings, start: Barrier, times: int) -> list[str]:
    namespace = Namespace.load(settings)
    namespace.attach("/data", f"file://{root}/data")
    start.wait(60)
    return [take_snapshot("/data", "digits", namespace=namespace, settings=settings).version for _ in range(times)]


def test_racing_writers_each_get_a_version(world: World) -> None:
    writers, times = 4, 10
    world.write(TREE)
    spawned = multiprocessing.get_context("spawn")
    with spawned.Manager() as manager, ProcessPoolExecutor(writers, spawned) as pool:
        start = manager.Barrier(writers)
        races = [pool.submit(_take, world.root, world.settings, start, times) for _ in range(writers)]
        versions = [version for race in races for version in race.result()]
    assert sorted(versions) == sorted(f"v{number}" for number in range(1, writers * times + 1))
    assert len(list_snapshots("digits", **world.context)) == writers * times


@pytest.mark.parametrize("name", ["", "a b", "-x", ".x", "a/b", "latest", "x" * 101, "é", "a\n"])
def test_bad_names(world: World, name: str) -> None:
    with pytest.raises(InputError):
        take_snapshot("/data", name, **world.context)
    if name:
        with pytest.raises(InputError):
            take_snapshot("/data", "fine", name, **world.context)


def test_what_is_not_there_is_named(world: World) -> None:
    with pytest.raises(NotFoundError, match="no objects"):
        take_snapshot("/data/none", "digits", **world.context)
    with pytest.raises(NotFoundError, match="known names: none yet"):
        open_snapshot("digits", **world.context)
    world.write(TREE)
    take_snapshot("/data", "digits", **world.context)
    with pytest.raises(NotFoundError, match="known versions: v1"):
        open_source("digits@v7", **world.context)
    with pytest.raises(SettingError, match="HEADRACE_HOME"):
        open_source("digits", namespace=world.namespace, settings=Settings())
    for bad in ("some where", "./x"):
        with pytest.raises(InputError):
            open_source(bad, **world.context)
    with pytest.raises(InputError, match="on_change"):
        open_source("digits", OpenOptions(on_change="ignore"), **world.context)


def test_a_read_only_home_is_refused_before_listing(world: World) -> None:
    world.namespace.attach("/home", f"file://{world.home}", read_only=True)
    with pytest.raises(ReadOnlyError):
        take_snapshot("/data/none", "digits", **world.context)


def test_stores_attached_inside_are_refused(world: World) -> None:
    world.namespace.attach("/data/inner", f"file://{world.home}")
    with pytest.raises(InputError, match="/data/inner"):
        take_snapshot("/data", "digits", **world.context)


@pytest.mark.parametrize("harm", ["cut", "flip", "gone", "text", "other"])
def test_a_corrupt_manifest(world: World, harm: str) -> None:
    world.write(TREE)
    take_snapshot("/data", "digits", **world.context)
    file = world.home / "datasets/digits/v1/manifest.parquet"
    data = bytearray(file.read_bytes())
    if harm == "cut":
        file.write_bytes(data[:-20])
    elif harm == "flip":
        data[40] ^= 255
        file.write_bytes(data)
    elif harm == "gone":
        file.unlink()
    elif harm == "text":
        file.write_bytes(b"x" * len(data))
    else:
        world.write({"train/1.image": b"ONE"})
        os.utime(world.data / "train/1.image", ns=(1, 1))
        take_snapshot("/data", "digits", **world.context)
        other = (world.home / "datasets/digits/v2/manifest.parquet").read_bytes()
        file.write_bytes(other)
        marker = file.with_name("snapshot.json")
        marker.write_text(json.dumps(json.loads(marker.read_text()) | {"manifest_bytes": len(other)}))
    with pytest.raises(CorruptError) as caught:
        open_source("digits@v1", **world.elsewhere().context)
    assert "digits/v1/manifest.parquet" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}'])
def test_a_corrupt_marker(world: World, text: str) -> None:
    world.write(TREE)
    take_snapshot("/data", "digits", **world.context)
    (world.home / "datasets/digits/v1/snapshot.json").write_text(text)
    with pytest.raises(CorruptError, match=r"snapshot\.json"):
        open_source("digits@v1", **world.context)


@pytest.mark.parametrize("harm", ["cut", "gone", "meta", "zeroed by a power failure"])
def test_a_damaged_local_index_is_rebuilt(world: World, harm: str) -> None:
    world.write(TREE)
    take_snapshot("/data", "digits", **world.context)
    (folder,) = (world.root / "cache/indexes").glob("objects*")
    size = (folder / "rows").stat().st_size
    if harm == "cut":
        os.truncate(folder / "rows", 7)
    elif harm == "gone":
        (folder / "at").unlink()
    elif harm == "meta":
        (folder / "meta.json").write_text("[]")
    else:
        (folder / "rows").write_bytes(bytes(size))
        meta = json.loads((folder / "meta.json").read_text())
        (folder / "meta.json").write_text(json.dumps(meta | {"boot": "an earlier one"}))
    assert len(everything(open_source("digits@v1", **world.context))) == 3


def test_an_unusable_cache_folder_is_said_and_worked_around(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.write(TREE)
    (world.root / "cache").write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        assert len(open_source("/data", **world.context)) == 3
    assert "indices are not kept" in caplog.text


def test_diff_and_verify(world: World) -> None:
    world.write(TREE)
    a = take_snapshot("/data", "digits", **world.context)
    assert not change_summary(verify(a, **world.context))
    world.write({"train/2.image": b"changed", "train/3.image": b"new"})
    (world.data / "val/9.x").unlink()
    b = take_snapshot("/data", "digits", **world.context)
    expected = [("changed", "train/2.image"), ("added", "train/3.image"), ("removed", "val/9.x")]
    for changes in (diff(a, b, settings=world.settings), verify(a, **world.elsewhere().context)):
        found = change_summary(changes)
        assert [(c.kind, c.key) for c in found.first] == expected
        assert (found.added, found.removed, found.changed) == (1, 1, 1)
    assert [c.kind for c in diff(b, a, settings=world.settings)] == ["changed", "removed", "added"]
    assert not change_summary(diff(a, a, settings=world.settings))
    change = next(iter(diff(a, b, settings=world.settings)))
    assert (change.size_before, change.size_after) == (4, 7)


def test_a_path_is_listed_and_remembered_for_the_ttl(world: World) -> None:
    """Of local files, as long as no folder has changed."""
    world.write(TREE)
    index = open_source("/data/train", **world.context)
    assert not index.pinned
    assert [key for key, _ in everything(index)] == ["1", "2"]
    assert index.specs(np.array([0]))[0][1][0].key == "train/1.image"
    world.write({"train/3.image": b"x"})
    assert len(open_source("/data/train", **world.context)) == 3
    kept = Settings(cache=type(world.settings.cache)(dir=world.settings.cache.dir, ttl=3600.0))
    folders = [path for path in (world.data / "train", *(world.data / "train").rglob("*")) if path.is_dir()]

    def count(wanted: str = "/data/train") -> int:
        return len(open_source(wanted, namespace=world.namespace, settings=kept))

    def hide() -> None:
        for folder in folders:
            os.utime(folder, (1e9, 1e9))

    hide()
    assert count() == 3
    world.write({"train/4.image": b"x"})
    hide()
    assert count() == 3, "remembered"
    assert count(f"file://{world.data}/train") == 3, "by whichever name"
    (world.data / "train").touch()
    assert count() == 4


def test_report_instead_of_refuse(world: World) -> None:
    world.write(TREE)
    take_snapshot("/data", "digits", **world.context)
    assert not open_source("digits", OpenOptions(on_change="report"), **world.context).pinned


def test_rows_out_of_range(world: World) -> None:
    world.write(TREE)
    index = open_source("/data", **world.context)
    for bad in ([3], [-1]):
        with pytest.raises(IndexError):
            index.specs(np.array(bad))
    assert index.specs(np.array([], np.int64)) == []
    assert index.sizes(np.array([], np.int64)).tolist() == []


def test_nothing_but_the_shelf_is_left(world: World) -> None:
    world.write(TREE)
    take_snapshot("/data", "digits", **world.context)
    open_source("digits", OpenOptions(by="object"), **world.context)
    names = sorted(p.name.split("-")[0] for p in (world.root / "cache/indexes").iterdir())
    assert not [name for name in names if name.startswith("tmp")]
    assert snapshot_objects(open_snapshot("digits", **world.context), world.settings).objects == 5
