"""Tar shards, from one header to an opened data set of local files: names, what is refused, the index, the choice."""

from __future__ import annotations

import logging
import pickle
import tarfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.base.errors import ChangedError, CorruptError, InputError, NotFoundError, TryAgainError, UnsupportedError
from headrace.base.metrics import Metrics
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.snapshot import take_snapshot
from headrace.fetch import Fetcher
from headrace.formats.index.index_job import Job, Shard
from headrace.formats.index.shard_index import open_set
from headrace.formats.shard_samples import ShardSamples
from headrace.formats.tar.tar import Tar
from headrace.store import open_store
from headrace.store.protocol import Blob
from headrace.store.wrappers import ForwardingStore
from headrace.testing.faults import FaultStore
from headrace.testing.plan import Fault, Kind, Plan
from tests.tar_kit import scanned, seen, tar_of, write_shards


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_HOME", f"file://{tmp_path}/home")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def opened(folder: Path, **options: Any) -> hr.Dataset:
    return hr.Dataset.open(f"file://{folder}", **options)


def samples_in(ds: hr.Dataset) -> dict[str, dict[str, bytes]]:
    found: dict[str, dict[str, bytes]] = {}
    for sample in ds.loader():
        parts = {name: bytes(value) for name, value in sample.items() if not name.startswith("__")}
        assert found.setdefault(sample["__key__"], parts) is parts
    return found


def small(count: int) -> dict[str, dict[str, bytes]]:
    return {f"{row:05d}": {"x": bytes([row % 256]) * (row % 700), "y": str(row).encode()} for row in range(count)}


# Names


@pytest.mark.parametrize(
    ("name", "key", "part"),
    [
        ("17.jpg", "17", "jpg"),
        ("./17.JPG", "17", "jpg"),
        ("a/b.c/17.seg.png", "a/b.c/17", "seg.png"),
        ("ünï/日本.cls", "ünï/日本", "cls"),
        ("x" * 400 + ".txt", "x" * 400, "txt"),
    ],
)
def test_key_and_part_of_a_name(name: str, key: str, part: str) -> None:
    assert seen(tar_of([(name, b"data")])) == [(key, part, b"data")]


def test_files_without_a_suffix_and_hidden_ones_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    names = ["README", ".hidden", "a/._17.jpg", "odd.", "__meta.x__", "17.jpg"]
    with caplog.at_level(logging.WARNING, "headrace"):
        assert [m.key for m in scanned(tar_of([(name, b"") for name in names]))] == ["17"]
    assert "5 files have no suffix" in caplog.text


# What is refused


@pytest.mark.parametrize(
    ("name", "reason"),
    [("/etc/17.jpg", "absolute"), ("a/../17.jpg", "leads out"), ("../17.jpg", "leads out"), ("\udcff.jpg", "UTF-8")],
)
def test_hostile_names_are_named_with_shard_offset_and_reason(name: str, reason: str) -> None:
    data = tar_of([("1.jpg", b"x" * 600), (name, b"x")], tarfile.GNU_FORMAT)
    with pytest.raises(CorruptError, match=reason) as failed:
        scanned(data)
    assert failed.value.path == "memory://shards/s.tar"
    assert failed.value.reason.startswith("at byte 1,536: ")


def test_a_body_longer_than_the_shard() -> None:
    with pytest.raises(CorruptError, match=r"should have 5,000 bytes"):
        scanned(tar_of([("1.x", b"x" * 5000)])[: 512 + 4608])


def test_cut_between_two_members() -> None:
    data = tar_of([("1.x", b"x" * 512), ("2.x", b"x")])
    with pytest.raises(CorruptError, match="at byte 1,024: ends without an end mark"):
        scanned(data[:1024])


def test_two_archives_in_one_are_not_read_as_one() -> None:
    one = tar_of([("1.x", b"x")])
    with pytest.raises(CorruptError, match="goes on behind its end"):
        scanned(one + one)


def test_an_extended_header_of_gigabytes_is_not_read() -> None:
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    with pytest.raises(CorruptError, match="extended header of 1,099,511,627,776 bytes"):
        scanned(entry.tobuf(tarfile.GNU_FORMAT) + bytes(10240))


def test_sizes_beyond_eight_gigabytes_are_understood() -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        entry = tarfile.TarInfo("1.x")
        entry.size = 9 << 30
        with pytest.raises(CorruptError, match="should have 9,663,676,416 bytes"):
            scanned(entry.tobuf(form) + bytes(10240))


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([("1.x", b"1"), ("1.x", b"2")], "at byte 1,536: sample '1' has two parts 'x'"),
        ([("1.x", b"1"), ("2.x", b""), ("1.x", b"2")], "at byte 2,048: sample '1' has two parts 'x'"),
        ([("1.__key__", b"1")], "part '__key__'"),
        ([(f"1.{n}", b"") for n in range(1025)], "more than 1024 parts"),
    ],
)
def test_samples_that_cannot_be(folder: Path, files: list[tuple[str, bytes]], reason: str) -> None:
    (folder / "s.tar").write_bytes(tar_of(files))
    with pytest.raises(CorruptError) as failed:
        opened(folder)
    assert reason in failed.value.reason
    assert failed.value.path == f"file://{folder}/s.tar"


def test_what_is_no_tar_is_named(folder: Path) -> None:
    write_shards(folder, small(3), 3)
    (folder / "z.tar").write_bytes(b"not a tar" * 1000)
    with pytest.raises(CorruptError, match=r"z\.tar: at byte 0: this is no tar"):
        opened(folder)
    (folder / "z.tar").write_bytes(b"")
    with pytest.raises(CorruptError, match="is empty"):
        opened(folder)


# A data set


def test_every_sample_with_its_bytes_and_its_shard(folder: Path) -> None:
    samples = small(300)
    write_shards(folder, samples, 70)
    ds = opened(folder)
    assert samples_in(ds.shuffle(3)) == samples
    assert [sample["__shard__"] for sample in ds.take(71).loader()] == ["set-000.tar"] * 70 + ["set-001.tar"]


def test_a_tar_without_members_holds_no_samples(folder: Path) -> None:
    write_shards(folder, small(5), 2)
    for name in ("a.tar", "set-000b.tar", "z.tar"):
        (folder / name).write_bytes(tar_of([]))
    assert samples_in(opened(folder)) == small(5)
    (folder / "none").mkdir()
    (folder / "none" / "a.tar").write_bytes(tar_of([]))
    with pytest.raises(InputError, match="holds no samples"):
        opened(folder / "none")


def test_parts_of_a_sample_that_do_not_lie_together_are_one_sample(folder: Path) -> None:
    files = [("1.x", b"1x"), ("2.x", b"2x"), ("1.y", b"1y"), ("3.y", b""), ("2.y", b"2y" * 100_000), ("1.z", b"1z")]
    (folder / "s.tar").write_bytes(tar_of(files))
    expected = {"1": {"x": b"1x", "y": b"1y", "z": b"1z"}, "2": {"x": b"2x", "y": b"2y" * 100_000}, "3": {"y": b""}}
    assert samples_in(opened(folder)) == expected


def test_what_lies_far_between_two_parts_is_not_read_along(folder: Path, settings: Settings) -> None:
    files = [("1.x", b"1x"), ("2.x", bytes(1 << 20)), ("1.y", b"1y"), ("1.z", b"1z")]
    (folder / "s.tar").write_bytes(tar_of(files))
    fetcher = Fetcher(settings, None, Metrics())
    (sample,) = opened(folder).take(1).loader(fetcher=fetcher)
    counters = fetcher.stats().counters
    fetcher.close()
    assert (bytes(sample["x"]), bytes(sample["y"]), bytes(sample["z"])) == (b"1x", b"1y", b"1z")
    assert counters["fetch.requests"] == 2
    assert counters["fetch.bytes"] < 4096


def test_the_same_key_in_two_shards_is_two_samples(folder: Path) -> None:
    for name in ("a.tar", "b.tar"):
        (folder / name).write_bytes(tar_of([("1.x", name.encode())]))
    assert [bytes(sample["x"]) for sample in opened(folder).loader()] == [b"a.tar", b"b.tar"]


def test_windows_stay_within_a_shard_and_a_folder(folder: Path) -> None:
    names = {"a.tar": ["0", "1", "2"], "b.tar": ["3", "4", "f/5", "f/6", "f/7"]}
    for shard, keys in names.items():
        (folder / shard).write_bytes(tar_of([(f"{key}.x", key.encode()) for key in keys]))
    windows = opened(folder).windows(2)
    got = [[bytes(one).decode() for one in sample["x"]] for sample in windows.loader()]
    assert got == [["0", "1"], ["1", "2"], ["3", "4"], ["f/5", "f/6"], ["f/6", "f/7"]]


def test_windows_of_empty_parts(folder: Path) -> None:
    (folder / "a.tar").write_bytes(tar_of([(f"{n}.x", b"") for n in range(4)]))
    assert [[bytes(x) for x in sample["x"]] for sample in opened(folder).windows(3).loader()] == [[b""] * 3] * 2


def test_a_snapshot_of_shards(folder: Path) -> None:
    write_shards(folder, small(50), 20)
    settings = Settings.load()
    take_snapshot(f"file://{folder}", "set", namespace=hr.Namespace.load(), settings=settings)
    ds = hr.Dataset.open("set@v1")
    assert samples_in(ds.shuffle(1)) == small(50)
    (folder / "set-001.tar").write_bytes(tar_of([("other.x", b"")]))
    with pytest.raises(ChangedError, match=r"set-001\.tar"):
        samples_in(hr.Dataset.open("set@v1"))
    with pytest.raises(ChangedError, match=r"set-001\.tar"):
        samples_in(hr.Dataset.open("set@v1", on_change="report"))


def test_it_travels_by_name_with_its_format(folder: Path) -> None:
    write_shards(folder, small(50), 20)
    (folder / "photo.png").write_bytes(b"png")
    ds = opened(folder, format="tar").shuffle(2)
    again = pickle.loads(pickle.dumps(ds))
    assert again.fingerprint == ds.fingerprint
    assert [s["__key__"] for s in again.loader()] == [s["__key__"] for s in ds.loader()]


def test_the_child_process_delivers_the_same(folder: Path) -> None:
    write_shards(folder, small(60), 25)
    ds = opened(folder).shuffle(2).batch(7)
    for here, there in zip(ds.loader(), ds.loader(where="process"), strict=True):
        assert here["__key__"] == there["__key__"]
        assert here["__shard__"] == there["__shard__"]
        assert [bytes(x) for x in here["x"]] == [bytes(x) for x in there["x"]]


# Shards or objects


def test_what_people_keep_beside_shards_changes_nothing(folder: Path) -> None:
    write_shards(folder, small(5), 2)
    for name in ("index.json", "README", "_SUCCESS", ".part", "00000_stats.JSON", "00000.parquet", "set-000.idx"):
        (folder / name).write_bytes(b"?")
    assert samples_in(opened(folder)) == small(5)


def test_shards_among_other_objects_are_ambiguous_until_the_format_is_given(folder: Path) -> None:
    write_shards(folder, small(5), 5)
    (folder / "17.png").write_bytes(b"png")
    with pytest.raises(InputError, match=r"1 tar shards beside 1 other objects such as 17\.png") as failed:
        opened(folder)
    assert 'format="tar"' in str(failed.value.hint)
    assert samples_in(opened(folder, format="tar")) == small(5)
    objects = samples_in(opened(folder, format="objects"))
    assert objects["17"] == {"png": b"png"}
    assert objects["set-000"].keys() == {"tar"}
    assert len(samples_in(opened(folder, by="object"))) == 2


def test_other_objects_are_what_they_were(folder: Path) -> None:
    for name in ("1.image", "1.label", "2.tar.gz", "2.image"):
        (folder / name).write_bytes(b"?")
    assert sorted(samples_in(opened(folder))) == ["1", "2"]
    (folder / "2.tar.gz").unlink()
    with pytest.raises(NotFoundError, match=r"holds no \.tar objects"):
        opened(folder, format="tar")


@pytest.mark.parametrize("name", ["a.tar.bz2", "a.TAR.XZ", "a.tar.lz4"])
def test_shards_in_other_compressions_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"?")
    with pytest.raises(UnsupportedError, match="1 tar shards in compressions that are not read"):
        opened(folder)
    assert len(opened(folder, format="objects")) == 1


def test_wrong_arguments(folder: Path) -> None:
    write_shards(folder, small(5), 5)
    with pytest.raises(InputError, match="format='zip' is not known"):
        opened(folder, format="zip")
    with pytest.raises(InputError, match="by='class' is about objects"):
        opened(folder, by="class", format="tar")


# The index


class CountingStore(ForwardingStore):
    """Counts the reads, and their bytes, of each object."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(f"file://{folder}"))
        self.reads: dict[str, list[int]] = {}

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        blob = super().get(key, start, stop, if_match=if_match)
        self.reads.setdefault(key, []).append(len(blob.data))
        return blob


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cache=CacheSettings(dir=str(tmp_path / "own-cache")))


def indexed(store: CountingStore, settings: Settings, progress: Progress = SILENT) -> ShardSamples:
    store.reads.clear()
    found = [Shard(info.key, info.size, info.version) for page in store.list() for info in page]
    shards = sorted(shard for shard in found if shard.key.endswith(".tar"))
    index = open_set(Shelf.of(settings), Job(store, Tar(), shards, settings, progress))
    return ShardSamples(store, "", Tar(), shards, index)


def test_only_a_replaced_shard_is_read_again(folder: Path, settings: Settings) -> None:
    write_shards(folder, small(100), 10)
    store = CountingStore(folder)
    before = indexed(store, settings)
    assert set(store.reads) == {f"set-{n:03d}.tar" for n in range(10)}
    assert indexed(store, settings).fingerprint == before.fingerprint
    assert not store.reads
    (folder / "set-004.tar").write_bytes(tar_of([("new.y", b"1"), ("new.x", b"2")]))
    after = indexed(store, settings)
    assert set(store.reads) == {"set-004.tar"}
    assert after.fingerprint != before.fingerprint
    keys = [key for key, _, _ in after.specs(np.arange(len(after)))]
    assert keys == [*(f"{n:05d}" for n in range(40)), "new", *(f"{n:05d}" for n in range(50, 100))]
    (_, parts, extra), *_ = after.specs(np.array([40]))
    assert [part.name for part in parts] == ["y", "x"]
    assert extra == {"__shard__": "set-004.tar"}


def test_what_was_scanned_before_a_failure_is_kept(folder: Path, settings: Settings) -> None:
    write_shards(folder, small(240), 10)
    store = CountingStore(folder)
    few = replace(settings, fetch=FetchSettings(connections=4))  # as many at once: all before these are finished
    last = folder / "set-023.tar"
    whole = last.read_bytes()
    last.write_bytes(whole[:1000])
    with pytest.raises(CorruptError, match=r"set-023\.tar"):
        indexed(store, few)
    last.write_bytes(whole)
    assert len(indexed(store, few)) == 240
    assert 1 <= len(store.reads) <= 4


def test_nobody_waits_for_shards_of_which_the_first_failed(folder: Path, settings: Settings) -> None:
    for number in range(24):
        (folder / f"set-{number:03d}.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(CorruptError, match="no tar"):
        indexed(CountingStore(folder), settings)
    assert not [one.name for one in threading.enumerate() if one.name.startswith("headrace-shards")]


def test_large_bodies_are_not_read_for_the_index(folder: Path, settings: Settings) -> None:
    samples = {f"{n:02d}": {"x": bytes(1 << 20), "y": b"1"} for n in range(20)}
    write_shards(folder, samples, 20)
    store = CountingStore(folder)
    assert len(indexed(store, settings)) == 20
    (reads,) = store.reads.values()
    assert sum(reads) < 1 << 20
    assert len(reads) < 25


def test_small_bodies_are_read_through_in_few_requests(folder: Path, settings: Settings) -> None:
    write_shards(folder, {f"{n}": {"x": bytes(3000)} for n in range(2000)}, 2000)
    store = CountingStore(folder)
    assert len(indexed(store, settings)) == 2000
    (reads,) = store.reads.values()
    assert len(reads) < 12


def test_progress_counts_every_shard_and_every_byte(folder: Path, settings: Settings) -> None:
    class Counting:
        def __init__(self) -> None:
            self.totals: tuple[int | None, int | None] = (0, 0)
            self.items = self.bytes = 0

        def total(self, items: int | None, size: int | None = None) -> None:
            self.totals = (items, size)

        def advance(self, items: int = 1, size: int = 0) -> None:
            self.items += items
            self.bytes += size

    write_shards(folder, small(60), 10)
    progress = Counting()
    indexed(CountingStore(folder), settings, progress)
    assert progress.totals == (6, sum(path.stat().st_size for path in folder.iterdir()))
    assert (progress.items, progress.bytes) == progress.totals


def test_sizes_and_rows_out_of_range(folder: Path, settings: Settings) -> None:
    write_shards(folder, small(30), 7)
    index = indexed(CountingStore(folder), settings)
    rows = np.array([29, 0, 13])
    assert index.sizes(rows).tolist() == [sum(map(len, small(30)[f"{row:05d}"].values())) for row in rows]
    for wrong in ([30], [-1]):
        with pytest.raises(IndexError):
            index.specs(np.array(wrong))


def test_a_shard_replaced_within_the_time_a_listing_is_trusted(folder: Path) -> None:
    write_shards(folder, small(30), 10)
    assert len(opened(folder, format="objects")) == 3
    (folder / "set-001.tar").write_bytes(tar_of([("new.x", b"1")]))
    assert max(samples_in(opened(folder))) == "new"


def test_a_shard_replaced_after_it_was_opened_is_refused_by_name(folder: Path) -> None:
    write_shards(folder, small(30), 10)
    ds = opened(folder)
    (folder / "set-002.tar").write_bytes(tar_of([("new.x", b"1")]))
    with pytest.raises(ChangedError, match=r"set-002\.tar"):
        samples_in(ds)


def test_an_answer_cut_short_is_an_error_never_a_shorter_sample(folder: Path, settings: Settings) -> None:
    write_shards(folder, small(30), 10)
    store = CountingStore(folder)
    index = indexed(store, settings)
    index.store = FaultStore(store, Plan([Fault(Kind.SHORT)]))
    fetcher = Fetcher(settings, None, Metrics())
    with pytest.raises(TryAgainError, match=r"set-000\.tar: answered with \d+ bytes, expected"):
        list(hr.Dataset.of(index).loader(fetcher=fetcher))
    fetcher.close()


def test_an_answer_cut_short_while_indexing_is_an_error_never_fewer_samples(folder: Path, settings: Settings) -> None:
    write_shards(folder, small(30), 30)
    inner = CountingStore(folder)
    shards = [Shard(info.key, info.size, info.version) for page in inner.list() for info in page]
    store = FaultStore(inner, Plan([Fault(Kind.SHORT)]))
    with pytest.raises(TryAgainError, match=r"set-000\.tar: answered with \d+ bytes, expected"):
        open_set(Shelf.of(settings), Job(store, Tar(), shards, settings, SILENT))
