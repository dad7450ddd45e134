"""Compressed shards through the loader, as GNU tar, webdataset, gzip and zstd leave them: files and SeaweedFS."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import logging
import random
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import webdataset

import headrace as hr
from headrace.base.errors import BadSampleError, ChangedError, CorruptError, InputError, NotFoundError
from headrace.base.metrics import Metrics
from headrace.base.progress import SILENT
from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.snapshot import take_snapshot
from headrace.fetch import Fetcher
from headrace.formats.compressed.compressed_samples import CompressedSamples
from headrace.formats.index.index_job import Job, Shard
from headrace.formats.index.shard_index import open_set
from headrace.formats.tar.tar import Tar
from headrace.store import open_store
from headrace.store.protocol import Blob
from headrace.store.wrappers import ForwardingStore
from tests.shard_formats_kit import record
from tests.tar_kit import tar_of

SHARDS, EACH = 5, 23
ALL = list(range(SHARDS * EACH))


def body(number: int) -> bytes:
    return random.Random(number).randbytes(number * 37 % 5000)


def tar_by(suffix: str, option: str) -> Callable[[Path, range], None]:
    def write(path: Path, numbers: range) -> None:
        tree = path.parent.parent / f"tree-{path.name}"
        tree.mkdir()
        for n in numbers:
            (tree / f"{n:05d}.bin").write_bytes(body(n))
            (tree / f"{n:05d}.cls").write_text(str(n))
        subprocess.run(["tar", "-c", option, "-f", f"{path}{suffix}", "-C", tree, "--sort=name", "."], check=True)

    return write


def by_webdataset(path: Path, numbers: range) -> None:
    with webdataset.TarWriter(f"{path}.tar.gz", encoder=False) as writer:
        for n in numbers:
            writer.write({"__key__": f"{n:05d}", "bin": body(n), "cls": str(n).encode()})


def tfrecord(suffix: str, pack: Callable[[bytes], bytes]) -> Callable[[Path, range], None]:
    def write(path: Path, numbers: range) -> None:
        Path(f"{path}{suffix}").write_bytes(pack(b"".join(record(b"%d" % n) for n in numbers)))

    return write


def jsonl(path: Path, numbers: range) -> None:
    lines = "".join(json.dumps({"x": n, "text": "é" * n}) + "\n" for n in numbers)
    path.with_suffix(".jsonl").write_text(lines)
    subprocess.run(["gzip", path.with_suffix(".jsonl")], check=True)


def table(path: Path, numbers: range) -> None:
    """A header concerns its own file."""
    names = ["x", "text"] if path.name != "1" else ["text", "x"]
    with open(path.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows({"x": n, "text": f'"{n}", and\na line more'} for n in numbers)
    subprocess.run(["zstd", "-q", "--rm", path.with_suffix(".csv")], check=True)


def in_tar(sample: dict[str, Any]) -> int:
    number = int(bytes(sample["cls"]))
    assert bytes(sample["bin"]) == body(number)
    return number


def in_record(sample: dict[str, Any]) -> int:
    return int(bytes(sample["data"]))


def in_line(sample: dict[str, Any]) -> int:
    return int(sample["x"])


KINDS: dict[str, tuple[Callable[[Path, range], None], Callable[[dict[str, Any]], int], str | None]] = {
    "gnu.tgz": (tar_by(".tgz", "-z"), in_tar, None),
    "gnu.tar.zst": (tar_by(".tar.zst", "--zstd"), in_tar, None),
    "webdataset.tar.gz": (by_webdataset, in_tar, "tar"),
    "tfrecord.gz": (tfrecord(".tfrecord.gz", gzip.compress), in_record, None),
    "tfrecord.zlib": (tfrecord(".tfrecord.zlib", zlib.compress), in_record, None),
    "tfrecord, unnamed": (tfrecord(".tfrecord", gzip.compress), in_record, "tfrecord"),
    "jsonl.gz": (jsonl, in_line, "jsonl"),
    "csv.zst": (table, in_line, "csv"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_HOME", (tmp_path / "home").as_uri())
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def write(folder: Path, kind: str) -> None:
    for shard in range(SHARDS):
        KINDS[kind][0](folder / str(shard), range(shard * EACH, (shard + 1) * EACH))


def opened(folder: Path, kind: str) -> hr.Dataset:
    return hr.Dataset.open(folder.as_uri(), format=KINDS[kind][2])


def numbers(ds: hr.Dataset, kind: str, **options: Any) -> list[int]:
    with contextlib.closing(ds.loader(**options)) as loader:
        return [KINDS[kind][1](sample) for sample in loader]


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_comes_once_in_order_and_shuffled(folder: Path, kind: str) -> None:
    write(folder, kind)
    ds = opened(folder, kind)
    assert len(ds) == len(ALL)
    assert numbers(ds, kind) == ALL
    with contextlib.closing(ds.shuffle(3).loader()) as loader:
        first, second = ([KINDS[kind][1](sample) for sample in loader] for _ in range(2))
    assert sorted(first) == sorted(second) == ALL
    assert ALL != first != second
    assert numbers(ds.shuffle(3), kind) == numbers(ds.shuffle(3, block="1KB"), kind) == first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_a_resume_on_other_ranks_sees_exactly_what_is_left(folder: Path, kind: str, before: int, after: int) -> None:
    write(folder, kind)
    read = KINDS[kind][1]
    ds = opened(folder, kind).shuffle(5).map(lambda sample: {"n": read(sample)}).batch(3)
    seen: list[int] = []
    states: list[Any] = []
    for rank in range(before):
        with contextlib.closing(ds.shard(rank, before).loader()) as loader:
            batches = iter(loader)
            seen += [int(n) for _ in range(3) for n in next(batches)["n"]]
            states.append(loader.state_dict())
    for rank in range(after):
        with contextlib.closing(ds.shard(rank, after).loader()) as loader:
            loader.load_state_dict(states[0])
            seen += [int(n) for batch in loader for n in batch["n"]]
    assert sorted(seen) == ALL


@pytest.mark.parametrize("kind", ["gnu.tar.zst", "csv.zst"])
def test_windows_filters_a_process_of_its_own_and_a_snapshot(folder: Path, kind: str) -> None:
    write(folder, kind)
    read = KINDS[kind][1]
    ds = opened(folder, kind)
    part = "cls" if kind.startswith("gnu") else "x"
    windows = [[int(bytes(n) if part == "cls" else n) for n in one[part]] for one in ds.windows(4).loader()]
    assert windows == [[n, n + 1, n + 2, n + 3] for n in ALL if n % EACH <= EACH - 4]
    assert numbers(ds.filter(lambda sample: read(sample) % 3 == 0), kind) == ALL[::3]
    assert sorted(numbers(ds.shuffle(1), kind, where="process")) == ALL
    settings = Settings.load()
    take_snapshot(folder.as_uri(), "set", namespace=hr.Namespace.load(settings), settings=settings)
    assert numbers(hr.Dataset.open("set@v1", format=KINDS[kind][2]), kind) == ALL


def test_compressed_and_plain_shards_side_by_side(folder: Path) -> None:
    write(folder, "gnu.tgz")
    subprocess.run(["gunzip", folder / "1.tgz", folder / "3.tgz"], check=True)
    ds = opened(folder, "gnu.tgz")
    assert numbers(ds, "gnu.tgz") == ALL
    assert sorted(numbers(ds.shuffle(2), "gnu.tgz")) == ALL
    assert {sample["__shard__"] for sample in ds.loader()} == {"0.tgz", "1.tar", "2.tgz", "3.tar", "4.tgz"}


def test_the_shuffle_by_whole_shards_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder, "jsonl.gz")
    ds = opened(folder, "jsonl.gz")
    with caplog.at_level(logging.WARNING):
        shuffled = ds.shuffle(7)
    (said,) = caplog.messages
    assert "5 of 5 mixed" in said
    assert shuffled.mixing is not None
    assert (shuffled.mixing.blocks, shuffled.mixing.mixed_blocks, shuffled.mixing.mixed_samples) == (5, 5, len(ALL))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        again = ds.take(50).shuffle(7)
    assert "again and again" in caplog.text
    assert sorted(numbers(again, "jsonl.gz")) == ALL[:50]


class Counting(ForwardingStore):
    """Counts the bytes read of each object."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(folder.as_uri()))
        self.bytes: dict[str, int] = {}

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        blob = super().get(key, start, stop, if_match=if_match)
        self.bytes[key] = self.bytes.get(key, 0) + len(blob.data)
        return blob


@pytest.mark.parametrize("shuffled", [False, True])
def test_each_shard_is_fetched_once_where_half_of_what_is_kept_is_mixed(folder: Path, shuffled: bool) -> None:
    for number in range(8):
        files = [(f"{number}-{row:03d}.x", random.Random(row).randbytes(2000)) for row in range(500)]
        (folder / f"{number}.tar.gz").write_bytes(gzip.compress(tar_of(files), 1))
    store = Counting(folder)
    settings = Settings(cache=CacheSettings(dir=str(folder / "none"), size=0))
    shards = sorted(Shard(info.key, info.size, info.version) for page in store.list() for info in page)
    index = open_set(Shelf.of(settings), Job(store, Tar(), shards, settings, SILENT))
    largest = max(one.size for one in index.packed.values())
    samples = CompressedSamples(store, "", Tar(), shards, index, settings, keep=4 * largest)
    assert samples.together == 2
    store.bytes.clear()
    ds = hr.Dataset.of(samples)
    with contextlib.closing(Fetcher.open(settings, None, Metrics())) as fetcher:
        order = ds.shuffle(2) if shuffled else ds
        keys = [sample["__key__"] for sample in order.loader(prefetch="2MB", fetcher=fetcher)]
    assert len(set(keys)) == len(keys) == 4000
    assert store.bytes == {shard.key: shard.size for shard in shards}


# Damage


def test_a_damaged_record_is_skipped_only_within_the_budget(folder: Path) -> None:
    write(folder, "tfrecord.gz")
    data = bytearray(gzip.decompress((folder / "1.tfrecord.gz").read_bytes()))
    data[12] ^= 1  # the first byte of the first record
    (folder / "1.tfrecord.gz").write_bytes(gzip.compress(bytes(data)))
    ds = opened(folder, "tfrecord.gz")
    with pytest.raises(BadSampleError, match=r"1\.tfrecord\.gz: record 00000000.*checksum"):
        numbers(ds, "tfrecord.gz")
    skipping = ds.map(lambda sample: sample, on_error=hr.Skip(max_count=1))
    assert numbers(skipping, "tfrecord.gz") == [n for n in ALL if n != EACH]


DAMAGED = [(kind, damage) for kind in KINDS for damage in ("cut", "flipped", "empty")]
DAMAGED.remove(("tfrecord, unnamed", "empty"))
"""Without a name that says so, nothing tells that it was compressed: a shard without records."""


@pytest.mark.parametrize(("kind", "damage"), DAMAGED)
def test_a_damaged_stream_is_named_when_the_shards_are_opened(folder: Path, kind: str, damage: str) -> None:
    write(folder, kind)
    path = next(iter(folder.glob("2.*")))
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 0xFF
    path.write_bytes({"cut": data[:-5], "flipped": data, "empty": b""}[damage])
    with pytest.raises(CorruptError, match=rf"{path.name}.* byte [\d,]+: ") as caught:
        opened(folder, kind)
    assert caught.value.hint


def test_a_shard_replaced_after_it_was_opened_is_refused_by_name(folder: Path) -> None:
    write(folder, "gnu.tgz")
    ds = opened(folder, "gnu.tgz")
    (folder / "2.tgz").write_bytes(gzip.compress(tar_of([("new.x", b"1")])))
    with pytest.raises((ChangedError, BadSampleError), match=r"2\.tgz.*changed"):
        numbers(ds, "gnu.tgz")


def test_padding_far_behind_a_tars_end_counts_and_is_verified(folder: Path) -> None:
    packed = gzip.compress(tar_of([("1.x", b"1")]) + bytes(5 << 20))
    (folder / "0.tar.gz").write_bytes(packed)
    (sample,) = hr.Dataset.open(folder.as_uri()).loader()
    assert bytes(sample["x"]) == b"1"
    (folder / "damaged").mkdir()
    (folder / "damaged" / "0.tar.gz").write_bytes(packed[:-6] + bytes([packed[-6] ^ 1]) + packed[-5:])
    with pytest.raises(CorruptError, match=r"0\.tar\.gz: compressed, about byte .*damaged"):
        hr.Dataset.open((folder / "damaged").as_uri())


# What is opened


def test_one_shard_by_its_own_name(folder: Path) -> None:
    write(folder, "gnu.tgz")
    write(folder, "jsonl.gz")
    (folder / "plain.tar").write_bytes(tar_of([("1.x", b"1")]))
    assert [s["__shard__"] for s in hr.Dataset.open(f"{folder.as_uri()}/plain.tar").loader()] == ["plain.tar"]
    assert numbers(hr.Dataset.open(f"{folder.as_uri()}/1.tgz"), "gnu.tgz") == ALL[EACH : 2 * EACH]
    assert numbers(hr.Dataset.open(f"{folder.as_uri()}/0.jsonl.gz", format="jsonl"), "jsonl.gz") == ALL[:EACH]
    (folder / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"x\.csv: at byte 0: this is no tar"):
        hr.Dataset.open(f"{folder.as_uri()}/x.csv", format="tar")
    with pytest.raises(NotFoundError):
        hr.Dataset.open(f"{folder.as_uri()}/none.tar")
    assert numbers(hr.Dataset.open(f"{folder.as_uri()}/0.jsonl.gz"), "jsonl.gz") == ALL[:EACH]


def test_compressed_shards_among_other_objects_are_objects(folder: Path) -> None:
    (folder / "1.png").write_bytes(b"png")
    (folder / "sources.tar.gz").write_bytes(gzip.compress(tar_of([("1.x", b"1")])))
    assert [sample["__key__"] for sample in hr.Dataset.open(folder.as_uri()).loader()] == ["1", "sources"]
    assert len(hr.Dataset.open(folder.as_uri(), format="tar")) == 1


# A store


@pytest.fixture
def bucket(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    server = request.getfixturevalue("seaweedfs")
    name = f"packed-{abs(hash(folder)):x}"
    server.create_bucket(name)
    for variable, value in server.variables().items():
        monkeypatch.setenv(variable, value)
    write(folder, "gnu.tgz")
    store = open_store(f"s3://{name}/set", server.options())
    for path in folder.iterdir():
        store.put(path.name, path.read_bytes())
    store.close()
    return f"s3://{name}/set/"


@pytest.mark.server
@pytest.mark.parametrize("cached", [True, False])
def test_from_a_store_with_and_without_the_nodes_cache(
    bucket: str, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_FETCH_VERIFY", "1")
    settings = Settings.load()
    if not cached:
        settings = Settings(fetch=settings.fetch, cache=CacheSettings(dir=settings.cache.dir, size=0))
    ds = hr.Dataset.open(bucket)
    with contextlib.closing(Fetcher.open(settings, None, Metrics())) as fetcher:
        for _ in range(2):
            assert numbers(ds, "gnu.tgz", fetcher=fetcher) == ALL
            assert sorted(numbers(ds.shuffle(4), "gnu.tgz", fetcher=fetcher)) == ALL
        assert (fetcher.stats().counters.get("cache.hit", 0) > 0) is cached
        assert fetcher.stats().counters.get("fetch.errors", 0) == 0
