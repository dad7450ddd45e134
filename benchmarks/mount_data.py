"""The data every mount shows, made once below ``benchmarks/data/mount``, and SeaweedFS filled with it once.

``small/<class>/<number>.png``: images of 110 kB (191x191 noise) in ten folders: a set of small files, and an
ImageFolder. ``big/<number>.tfrecord``: files of 128 MB of 110 kB records. Both also on local disk, for the limit.
``keys/``: 100,000 tiny objects in one folder. ``tree/``: 300 folders of 47 tiny objects. Those in the store only.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import obstore
from obstore.store import S3Store

from headrace.store.embedded import EmbeddedS3

FORMAT = "1"
CLASSES = 10
RECORD_BYTES = 110_000
RECORDS = 64  # distinct ones; a file holds them over and over, each file in an order of its own
TINY_BODY = b"tiny"


@dataclass(frozen=True)
class Shape:
    """How much of everything."""

    small: int = 5_000
    big: int = 8
    big_bytes: int = 128_000_000
    keys: int = 100_000
    folders: int = 300
    per_folder: int = 47
    write_bytes: int = 1_000_000_000
    write_files: int = 2_000
    write_each: int = 100_000

    @property
    def small_paths(self) -> list[str]:
        return [f"small/{number % CLASSES:02d}/{number:06d}.png" for number in range(self.small)]

    @property
    def big_paths(self) -> list[str]:
        return [f"big/{number:02d}.tfrecord" for number in range(self.big)]

    @property
    def key_paths(self) -> list[str]:
        return [f"keys/{number:08d}.txt" for number in range(self.keys)]

    @property
    def tree_paths(self) -> list[str]:
        return [f"tree/{f:03d}/{n:04d}.txt" for f in range(self.folders) for n in range(self.per_folder)]


FULL = Shape()
QUICK = Shape(500, 2, 32_000_000, 3_000, 30, 47, 100_000_000, 200, 100_000)


def prepare(root: Path, shape: Shape) -> Path:
    """Make the local files below `root` unless they are there. Returns their folder."""
    stamp = root / "complete"
    wanted = f"{FORMAT} {json.dumps(asdict(shape))}"
    if stamp.exists() and stamp.read_text() == wanted:
        return root / "files"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    if shutil.disk_usage(root).free < 20_000_000_000:
        raise SystemExit(f"{root}: this benchmark needs 20 GB of disk, there is less to spare")
    print("making the data (once)", flush=True)
    files = root / "files"
    rng = np.random.default_rng(3)
    for path in shape.small_paths:
        target = files / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_png(rng))
    (files / "big").mkdir()
    records = [_record(rng.bytes(RECORD_BYTES)) for _ in range(RECORDS)]
    for number, path in enumerate(shape.big_paths):
        order = random.Random(number)
        with open(files / path, "wb") as out:
            while out.tell() + len(records[0]) <= shape.big_bytes:
                out.write(order.choice(records))
    stamp.write_text(wanted)
    return files


def _png(rng: np.random.Generator) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (191, 191, 3), np.uint8)).save(out, "png", compress_level=0)
    return out.getvalue()


def _record(data: bytes) -> bytes:
    """One TFRecord: length, its masked CRC-32C, the data, its masked CRC-32C (TensorFlow's `record_writer.h`)."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _table()


@dataclass(frozen=True)
class Server:
    """A running SeaweedFS. `filer`: as `weed mount` takes it, ``host:port.grpc-port``."""

    s3: EmbeddedS3
    bucket: str
    filer: str

    def store(self, bucket: str) -> S3Store:
        return S3Store(
            bucket,
            endpoint=self.s3.endpoint,
            access_key_id=self.s3.access_key,
            secret_access_key=self.s3.secret_key,
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )


@contextmanager
def serving(folder: Path, files: Path, shape: Shape) -> Iterator[Server]:
    """Start SeaweedFS over `folder` and fill in what is missing. A bucket for each shape."""
    digest = hashlib.sha256(f"{FORMAT} {shape}".encode()).hexdigest()[:8]
    with EmbeddedS3(folder) as s3:
        server = Server(s3, f"mount-{digest}", _filer(s3))
        s3.create_bucket(server.bucket)
        store = server.store(server.bucket)
        local = [*shape.small_paths, *shape.big_paths]
        _fill(store, [(path, files / path) for path in local])
        _fill(store, [(path, TINY_BODY) for path in shape.tree_paths])
        _fill(store, [(path, TINY_BODY) for path in shape.key_paths])
        yield server


def _filer(s3: EmbeddedS3) -> str:
    """The filer's address: its ports stand in the server's command line."""
    words = Path(f"/proc/{s3.pid}/cmdline").read_bytes().decode().split("\0")
    options = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
    return f"127.0.0.1:{options['filer.port']}.{options['filer.port.grpc']}"


def _fill(store: S3Store, wanted: Sequence[tuple[str, bytes | Path]]) -> None:
    def put(item: tuple[str, bytes | Path]) -> None:
        obstore.put(store, item[0], item[1], use_multipart=False)

    try:
        obstore.head(store, wanted[-1][0])  # written after all others: where it is, the rest is
        return
    except FileNotFoundError:
        print(f"  writing {len(wanted):,} objects to SeaweedFS (once)", flush=True)
    with ThreadPoolExecutor(16) as pool:
        deque(pool.map(put, wanted[:-1]), maxlen=0)
    put(wanted[-1])
