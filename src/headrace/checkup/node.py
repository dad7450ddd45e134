"""This machine: settings files, and the cache's disk."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator

from headrace.base.places import make_folder
from headrace.base.settings import CacheSettings, Settings
from headrace.base.units import format_bytes
from headrace.cache import batch_io
from headrace.checkup.finding import Finding

_SAMPLE = 64 << 20  # bytes written: enough to tell a disk's rate, and soon removed


def check_settings(settings: Settings) -> Iterator[Finding]:
    """Which files apply, and what is left unset."""
    files = ", ".join(settings.files) or "none; defaults and environment only"
    yield Finding("settings", "ok", f"settings: {files}", values={"files": list(settings.files)})
    if settings.home is None:
        yield Finding(
            "home",
            "note",
            "no home is set: snapshots have nowhere to go",
            'write home = "s3://bucket/prefix" in headrace.toml, or set HEADRACE_HOME',
        )
    if not settings.mounts:
        yield Finding("mounts", "note", "nothing is attached; URLs work all the same", "headrace attach PATH URL")


def check_cache(cache: CacheSettings) -> Iterator[Finding]:
    """Whether the cache's disk can be written, has room, keeps attributes, and how fast it is."""
    if cache.size == 0:
        yield Finding("cache", "warn", "the cache is off", "set cache.size, such as 100GB")
        return
    make_folder(cache.dir, "HEADRACE_CACHE_DIR")
    disk = os.statvfs(cache.dir)
    free = disk.f_bavail * disk.f_frsize
    values = {"path": cache.dir, "free": free, "limit": cache.size, "min_free": cache.min_free}
    text = f"cache {cache.dir}: {format_bytes(free)} free, limit {format_bytes(cache.size)}"
    if free < cache.min_free:
        advice = f"below cache.min_free = {format_bytes(cache.min_free)} nothing is kept: free some, or move cache.dir"
        yield Finding("cache-room", "warn", text, advice, values)
    elif free - cache.min_free < cache.size // 10:
        advice = "the disk, not the limit, bounds this cache: move cache.dir to a larger disk for larger data sets"
        yield Finding("cache-room", "note", text, advice, values)
    else:
        yield Finding("cache-room", "ok", text, values=values)
    if free > cache.min_free + 2 * _SAMPLE:
        yield from _disk_speed(cache.dir)


def _disk_speed(folder: str) -> Iterator[Finding]:
    data = os.urandom(1 << 20)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="doctor-") as file:
        started = time.perf_counter()
        for _ in range(_SAMPLE >> 20):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
        rate = _SAMPLE / (time.perf_counter() - started)
        labels = _keeps_attributes(file.fileno())
    text = f"cache disk writes {format_bytes(rate)}/s"
    slow = rate < 100e6
    advice = "slower than most stores: fills will be left out under load; put cache.dir on an SSD" if slow else None
    yield Finding("cache-disk", "warn" if slow else "ok", text, advice, {"bytes_per_second": round(rate)})
    if not labels:
        advice = "works, with a small file beside each entry; ext4 and xfs keep attributes"
        yield Finding("cache-attributes", "note", "the cache disk keeps no extended attributes", advice)
    yield _many_files()


def _many_files() -> Finding:
    way = batch_io.chosen().name
    values = {"way": way}
    if way == batch_io.IO_URING:
        text = f"cached objects are read and written up to {batch_io.MOST} in one call, by {way}"
        return Finding("cache-reads", "ok", text, values=values)
    advice = "Linux 5.7 or newer, kernel.io_uring_disabled=0, and a container that allows io_uring_setup and _enter"
    text = f"no io_uring: cached objects are read and written by {way}, small ones at about 60 % of the rate"
    return Finding("cache-reads", "note", text, advice, values)


def _keeps_attributes(descriptor: int) -> bool:
    try:
        os.setxattr(descriptor, "user.headrace.doctor", b"1")
    except OSError:
        return False
    return True
