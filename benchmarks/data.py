"""The data every contender reads, made once under ``benchmarks/data/``.

``large``: samples of 4.2 MB, an image (1024x1024 RGB noise, PNG, 3.1 MB) and a label (1024x1024 grey noise, 1.05 MB).
``small``: samples of one 110 kB object. Both also as tar shards of the same samples. ``index.tsv`` holds one line an
object in key order (key, size, mtime, xxh3 of the bytes): the static server lists from it, `meter.py` checks by it.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import xxhash

FORMAT = "2"
LARGE_SAMPLES = 150
SMALL_SAMPLES = 5500
LOADER_SHARD_BYTES = 84_000_000  # WebDataset's advice is 100 MB to 1 GB; smaller keeps eight shards a data set
SHARD_BYTES = 100_000_000
"""Of tars, TFRecords, MDS and litdata's chunks in the benchmark of shards."""
MANY = 132_000
"""Samples of 10 kB in the shards whose index is built."""
MOST_BYTES = 4_000_000_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One object: key below the bucket, size in bytes, digest of its content."""

    key: str
    size: int
    digest: str


def prepare(root: Path, *, large: int = LARGE_SAMPLES, small: int = SMALL_SAMPLES) -> Path:
    """Make the data below `root` unless a complete set of the same shape is there. Returns the bucket's folder."""
    bucket = root / "bench"
    stamp = root / "complete"
    shape = f"{FORMAT} {large} {small}"
    if stamp.exists() and stamp.read_text() == shape:
        return bucket
    if shutil.disk_usage(root.parent).free < MOST_BYTES + 2_000_000_000:
        raise SystemExit(f"{root}: the benchmark's data needs {MOST_BYTES / 1e9:.0f} GB, the disk has less to spare")
    shutil.rmtree(root, ignore_errors=True)
    for name, samples in (("large", _large(large)), ("small", _small(small))):
        _write(bucket, name, samples, LOADER_SHARD_BYTES)
    index(bucket)
    stamp.write_text(shape)
    return bucket


def prepare_shards(root: Path, *, large: int = 384, small: int = 33_000) -> Path:
    """As `prepare`, for the benchmark of shards: ``large`` of 4.2 MB and ``tenk`` of 10 kB, as tar shards and as single
    objects, the shards listed too. Returns the bucket's folder.
    """
    bucket, stamp = root / "bench", root / "complete"
    shape = f"shards {FORMAT} {large} {small} {SHARD_BYTES}"
    if stamp.exists() and stamp.read_text() == shape:
        return bucket
    shutil.rmtree(root, ignore_errors=True)
    for name, samples in (("large", _large(large)), ("tenk", _tenk(small))):
        _write(bucket, name, samples, SHARD_BYTES)
    index(bucket, ("large", "tenk", "large-shards", "tenk-shards"))
    stamp.write_text(shape)
    return bucket


def prepare_many(root: Path) -> None:
    """``many-shards``: as ``tenk-shards``, four times as many, without the single objects: there the rate of reading
    them is measured, not that of beginning.
    """
    bucket, stamp = root / "bench", root / "many-complete"
    shape = f"{FORMAT} {MANY} {SHARD_BYTES}"
    if not stamp.exists() or stamp.read_text() != shape:
        shutil.rmtree(bucket / "many-shards", ignore_errors=True)
        _write(bucket, "many", _tenk(MANY), SHARD_BYTES, singly=False)
        stamp.write_text(shape)
    listed = root / "index.tsv"
    before = listed.read_text()
    if "many-shards/" not in before:
        listed.write_text("".join(sorted([*before.splitlines(keepends=True), *_lines(bucket, "many-shards")])))


def in_shards(root: str, dataset: str) -> int:
    """Samples in the tar shards of a data set."""
    return MANY if dataset == "many" else len(samples(root, dataset))


def _tenk(count: int) -> Iterator[dict[str, bytes]]:
    rng = np.random.default_rng(3)
    for number in range(count):
        yield {"data": rng.bytes(10_000), "cls": b"%d" % (number % 10)}


def _large(count: int) -> Iterator[dict[str, bytes]]:
    rng = np.random.default_rng(1)
    for _ in range(count):
        yield {"image": _png(rng, (1024, 1024, 3)), "label": _png(rng, (1024, 1024))}


def _small(count: int) -> Iterator[dict[str, bytes]]:
    rng = np.random.default_rng(2)
    for _ in range(count):
        yield {"image": _png(rng, (191, 191, 3))}


def _png(rng: np.random.Generator, shape: tuple[int, ...]) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    # noise does not compress: level 0 gives the same size in a tenth of the time
    Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(out, "png", compress_level=0)
    return out.getvalue()


def _write(
    bucket: Path, name: str, samples: Iterator[dict[str, bytes]], shard_bytes: int, *, singly: bool = True
) -> None:
    folder, shards = bucket / name, bucket / f"{name}-shards"
    if singly:
        folder.mkdir(parents=True)
    shards.mkdir(parents=True)
    shard: tarfile.TarFile | None = None
    for number, sample in enumerate(samples):
        if shard is None or shard.offset > shard_bytes:
            if shard is not None:
                shard.close()
            shard = tarfile.open(  # noqa: SIM115 - closed when the next begins
                shards / f"{number:06d}.tar", "w", format=tarfile.USTAR_FORMAT
            )
        for part, data in sample.items():
            if singly:
                (folder / f"{number:06d}.{part}").write_bytes(data)
            info = tarfile.TarInfo(f"{number:06d}.{part}")
            info.size = len(data)
            shard.addfile(info, io.BytesIO(data))
    if shard is not None:
        shard.close()


def index(bucket: Path, folders: tuple[str, ...] = ("large", "small")) -> None:
    """Write ``index.tsv``: every file directly in these folders."""
    rows = [row for folder in folders for row in _lines(bucket, folder)]
    (bucket.parent / "index.tsv").write_text("".join(sorted(rows)))


def _lines(bucket: Path, folder: str) -> Iterator[str]:
    for path in (bucket / folder).iterdir():
        stat = path.stat()
        digest = xxhash.xxh3_64_hexdigest(path.read_bytes())
        yield f"{folder}/{path.name}\t{stat.st_size}\t{int(stat.st_mtime)}\t{digest}\n"


@cache
def entries(root: str, dataset: str) -> list[Entry]:
    """The objects of one data set, in key order."""
    found: list[Entry] = []
    with open(Path(root) / "index.tsv") as lines:
        for line in lines:
            key, size, _, digest = line.rstrip("\n").split("\t")
            if key.startswith(dataset + "/"):
                found.append(Entry(key, int(size), digest))
    return found


def samples(root: str, dataset: str) -> list[list[Entry]]:
    """Objects that share a stem, together; in key order."""
    grouped: dict[str, list[Entry]] = {}
    for entry in entries(root, dataset):
        grouped.setdefault(entry.key.rsplit(".", 1)[0], []).append(entry)
    return list(grouped.values())


def batches(root: str, dataset: str, batch: int, seed: int, *, once: bool) -> Iterator[list[list[Entry]]]:
    """Whole batches of samples in a fresh random order an epoch, for one epoch or for ever."""
    everything = samples(root, dataset)
    rng = random.Random(seed)
    while True:
        rng.shuffle(everything)
        for start in range(0, len(everything), batch):
            yield everything[start : start + batch]
        if once:
            return


def shards(root: str, dataset: str) -> list[str]:
    """Names of the tar shards of a data set, below the bucket."""
    return sorted(f"{dataset}-shards/{name}" for name in os.listdir(Path(root) / "bench" / f"{dataset}-shards"))


def warm(bucket: Path) -> int:
    """Read every file once, so that the page cache is equally warm for all. Returns the bytes read."""
    total = 0
    for path in bucket.rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while block := file.read(1 << 22):
                    total += len(block)
    return total
