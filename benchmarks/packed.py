"""The same samples in other formats, for the benchmark of shards: TFRecord, Parquet, MDS, litdata, wesnoth's pictures.

Each is made once, beside the tars of `data.prepare_shards`, by its own project's writer where it has one. ``columns``
is a table as features for a model are kept: 40 columns of numbers and text, of which three numbers are read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from data import SHARD_BYTES, index, samples
from headrace.base.errors import NotFoundError
from headrace.store import Store, open_store
from headrace.store.embedded import EmbeddedS3
from job import BUCKET
from peers.mosaic import without_torchvision
from real_store import RealStore

TABLE_ROWS, TABLE_FILES, TABLE_GROUP = 4_000_000, 8, 125_000
PROJECTED = ("f00", "f07", "label")
PICTURES = Path("/usr/share/games/wesnoth/1.16")


def prepare(root: Path) -> None:
    """Make what is missing below ``root/bench``, and list it for the server."""
    bucket = root / "bench"
    makers: dict[str, Callable[[Path], None]] = {
        "tenk-tfrecord": lambda folder: _tfrecords(folder, _read(root, "tenk"), _raw),
        "tenk-examples": lambda folder: _tfrecords(folder, _read(root, "tenk"), _example),
        "columns": _table,
        **{f"{name}-mds": _of(_mds, root, name) for name in ("tenk", "large")},
        **{f"{name}-litdata": _of(_litdata, root, name) for name in ("tenk", "large")},
    }
    for name, make in makers.items():
        folder, made = bucket / name, root / f"{name}.complete"
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            if not name.endswith("-mds"):  # its writer wants to make it
                folder.mkdir(parents=True)
            print(f"  writing {name} (once)", flush=True)
            make(folder)
            made.touch()
            (root / "complete-index").unlink(missing_ok=True)
    if not (root / "complete-index").exists():
        index(bucket, ("large", "tenk", "large-shards", "tenk-shards", *makers))
        (root / "complete-index").touch()


def pictures() -> list[Path]:
    """The PNGs of wesnoth's data package, in order."""
    found = sorted(PICTURES.rglob("*.png"))
    if not found:
        raise SystemExit(f"no pictures in {PICTURES}: apt-get install wesnoth-1.16-data")
    return found


@contextmanager
def store(folder: Path) -> Iterator[RealStore]:
    """SeaweedFS with the pictures in ``pictures/``. What a run packs stays below ``packed-…/`` until the next start."""
    with EmbeddedS3(folder) as server:
        url = server.create_bucket(BUCKET)
        bucket = open_store(url, server.options())
        found = pictures()
        last = f"pictures/{found[-1].relative_to(PICTURES)}"
        if not _holds(bucket, last):
            print(f"  writing {len(found):,} pictures to SeaweedFS (once)", flush=True)

            def put(path: Path) -> None:
                bucket.put(f"pictures/{path.relative_to(PICTURES)}", path.read_bytes())

            with ThreadPoolExecutor(8) as pool:
                deque(pool.map(put, found[:-1]), maxlen=0)
            put(found[-1])
        old = [info.key for page in bucket.list("packed-") for info in page]
        if old:
            bucket.delete(old)
        yield RealStore(
            server.endpoint, {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        )


def _holds(bucket: Store, key: str) -> bool:
    try:
        bucket.head(key)
    except NotFoundError:
        return False
    return True


def _of(make: Callable[[Path, Path, str], None], root: Path, name: str) -> Callable[[Path], None]:
    return lambda folder: make(folder, root, name)


def _read(root: Path, name: str) -> Iterator[dict[str, bytes]]:
    for entries in samples(str(root), name):
        yield {entry.key.rsplit(".", 1)[1]: (root / "bench" / entry.key).read_bytes() for entry in entries}


def _raw(sample: dict[str, bytes]) -> bytes:
    return sample["data"]


def _example(sample: dict[str, bytes]) -> bytes:
    from headrace.pack.examples import example

    return example({"data": sample["data"], "cls": int(sample["cls"])})


def _tfrecords(folder: Path, given: Iterator[dict[str, bytes]], record: Callable[[dict[str, bytes]], bytes]) -> None:
    from headrace.pack.examples import RecordWriter

    number, file = 0, None
    for sample in given:
        if file is None or file.tell() > SHARD_BYTES:
            if file is not None:
                file.close()
            file = open(folder / f"{number:05d}.tfrecord", "wb")  # noqa: SIM115 - closed when the next begins
            writer, number = RecordWriter(file), number + 1
        writer.add(record(sample))
    if file is not None:
        file.close()


def _table(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = TABLE_ROWS // TABLE_FILES
    for number in range(TABLE_FILES):
        rng = np.random.default_rng(number)
        columns: dict[str, Any] = {f"f{at:02d}": rng.standard_normal(rows, np.float32) for at in range(36)}
        columns["label"] = rng.integers(0, 10, rows)
        columns["user"] = rng.integers(0, 2**40, rows)
        columns["place"] = np.array([f"place-{at}" for at in range(1000)])[rng.integers(0, 1000, rows)]
        columns["said"] = np.array([f"{at:x} " * 8 for at in range(5000)])[rng.integers(0, 5000, rows)]
        pq.write_table(pa.table(columns), folder / f"part-{number:05d}.parquet", row_group_size=TABLE_GROUP)


def _mds(folder: Path, root: Path, name: str) -> None:
    """By Mosaic's own writer, in the interpreter that has it."""
    script = "import sys, packed; packed.write_mds(*map(packed.Path, sys.argv[1:3]), sys.argv[3])"
    here = Path(__file__).resolve().parent
    python = here.parent / ".tools" / "peers" / "bin" / "python"
    subprocess.run([python, "-c", script, folder, root, name], check=True, env={**os.environ, "PYTHONPATH": str(here)})


def write_mds(folder: Path, root: Path, name: str) -> None:
    """See `_mds`."""
    without_torchvision()
    from streaming import MDSWriter

    parts = [entry.key.rsplit(".", 1)[1] for entry in samples(str(root), name)[0]]
    with MDSWriter(out=str(folder), columns=dict.fromkeys(parts, "bytes"), size_limit=SHARD_BYTES) as writer:
        for sample in _read(root, name):
            writer.write(sample)


def _litdata(folder: Path, root: Path, name: str) -> None:
    from litdata.streaming.writer import BinaryWriter

    warnings.simplefilter("ignore")
    writer = BinaryWriter(str(folder), chunk_bytes=SHARD_BYTES)
    for number, sample in enumerate(_read(root, name)):
        # As arrays: a dict of nothing but bytes it keeps as rows of an Arrow table, which headrace does not read.
        writer[number] = {part: np.frombuffer(data, np.uint8) for part, data in sample.items()}
    writer.done()
    writer.merge()
    for left in os.listdir(folder):
        if left.endswith(".tmp"):
            os.unlink(folder / left)
