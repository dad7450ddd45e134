"""What the tests of the cache share: small caches, objects with bytes that tell who they are, worker processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings
from headrace.cache import Cache, Entries, EntryLabel

STORE = "s3://bucket/prefix"
MB = 1_000_000


def open_cache(folder: os.PathLike[str] | str, size: int = 100 * MB, *, min_free: int = 0, block: int = 4096) -> Cache:
    settings = CacheSettings(dir=str(folder), size=size, min_free=min_free, block=block)
    return Cache.open(settings, Metrics(), required=True)


def content(key: str, size: int) -> bytes:
    """Bytes that belong to `key` and to nothing else."""
    return hashlib.shake_128(key.encode()).digest(size)


def named(cache: Cache, key: str, size: int, version: str = "v1") -> tuple[str, EntryLabel]:
    return cache.name(STORE, key, version, size), EntryLabel(STORE, key, version, size)


def fill(cache: Cache, key: str, size: int) -> str:
    name, label = named(cache, key, size)
    assert cache.fill(name, content(key, size), label)
    return name


def entries_of(cache: Cache, names: Sequence[str]) -> Entries:
    """Names as `Cache.read_many` wants them."""
    digests = np.frombuffer(bytes.fromhex("".join(name[:32] for name in names)), np.uint8).reshape(-1, 16)
    return cache.entries(digests, np.array([int(name[33:], 16) for name in names], np.int64))


def read_many(cache: Cache, names: Sequence[str]) -> list[memoryview | None]:
    return cache.read_many(entries_of(cache, names))


def entry_file(cache: Cache, name: str) -> Path:
    return Path(cache.settings.dir, "v1", "objects", name[:2], name[2:])


def worker(script: str, *args: object, **popen: object) -> subprocess.Popen[str]:
    """A real process that runs `script` with this kit imported as `*`, and `sys.argv[1:]` = args."""
    source = f"import os, sys, time, random\nfrom tests.cache_kit import *\n{script}"
    root = Path(__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, "-c", source, *map(str, args)], cwd=root, stdout=subprocess.PIPE, text=True, **popen
    )


@contextmanager
def loop_mount(folder: Path, megabytes: int) -> Iterator[Path]:
    """A small ext4 of its own, in a file, mounted at the folder it yields."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system: run as root, or with CI=true in a container that may mount")
    image, mountpoint = folder / "disk.img", folder / "disk"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    mountpoint.mkdir()
    remount(image, mountpoint)
    try:
        yield mountpoint
    finally:
        unmount(mountpoint)


def remount(image: Path, mountpoint: Path, *options: str) -> None:
    run = subprocess.run(
        ["mount", "-o", ",".join(("loop", *options)), image, mountpoint], capture_output=True, text=True
    )
    if run.returncode:
        pytest.skip(f"cannot mount here: {run.stderr.strip()}")


def unmount(mountpoint: Path) -> None:
    """Also while files there are still open, as they are in the frames of a test that failed."""
    if subprocess.run(["umount", mountpoint], capture_output=True).returncode:
        subprocess.run(["umount", "--lazy", mountpoint], check=True)
