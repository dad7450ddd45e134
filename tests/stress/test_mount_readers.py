"""Readers that are killed, many at once, and two mounts with loaders on one cache: nothing leaks, no byte is wrong."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, only_a_mount, rigged, wait_for

pytestmark = pytest.mark.server

KILLS, READS, WRITES = 16, 5, 10
MOST_SECONDS = 40.0
BUDGET = 64_000_000
BIG = 24 << 20
READER = """
import hashlib, os, random, sys
folder, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
known = dict(one.rsplit(" ", 1) for one in sys.stdin.read().splitlines())
names = sorted(known)
buffer = bytearray(1 << 20)
print("ready", flush=True)
while True:
    name = rng.choice(names)
    with open(os.path.join(folder, name), "rb", buffering=0) as file:
        if rng.random() < 0.5:  # whole
            digest = hashlib.sha256()
            while got := file.readinto(buffer):
                digest.update(memoryview(buffer)[:got])
            assert digest.hexdigest() == known[name], name
        else:  # some places of it; each file repeats 256 bytes that begin with its number
            size = os.fstat(file.fileno()).st_size
            first = int(name[:-4].split("-")[1])
            for _ in range(20):
                at = rng.randrange(size - 100)
                want = bytes((at + n + first) % 256 for n in range(100))
                assert os.pread(file.fileno(), 100, at) == want, (name, at)
    print("read", flush=True)
"""
LOADER = """
import sys, hashlib
import headrace as hr
url = sys.argv[1]
known = dict(one.rsplit(" ", 1) for one in sys.stdin.read().splitlines())
print("ready", flush=True)
while True:
    for batch in hr.Dataset.open(url).batch(4).loader(prefetch="32MB"):
        for key, data in zip(batch["__key__"], batch["bin"]):
            assert hashlib.sha256(data).hexdigest() == known[f"{key}.bin"], key
        print("read", flush=True)
"""


def _body(number: int, size: int) -> bytes:
    return (bytes((n + number) % 256 for n in range(256)) * (size // 256 + 1))[:size]


@dataclass
class _Filled:
    """A bucket with small files and big ones. `known`: their names and SHA-256."""

    bucket: str
    known: dict[str, str]


@pytest.fixture(scope="module")
def filled(seaweedfs: EmbeddedS3) -> _Filled:
    only_a_mount()
    made = _Filled(f"mount-{secrets.token_hex(4)}", {})
    store = open_store(seaweedfs.create_bucket(made.bucket), seaweedfs.options())
    for number in range(44):
        size = BIG + number if number < 4 else 20_000 + number
        name = f"{'big' if number < 4 else 'small'}-{number}.bin"
        body = _body(number, size)
        store.put(f"data/{name}", body)
        made.known[name] = hashlib.sha256(body).hexdigest()
    return made


@pytest.fixture
def crowd() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        process.kill()
        process.communicate()


def _start(
    script: str, known: dict[str, str], *arguments: Any, env: dict[str, str] | None = None, out: Path | None = None
) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    with open(out or os.devnull, "w") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=pipe, stdout=stdout, stderr=pipe, text=True, env={**os.environ, **(env or {})},
        )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write("".join(f"{name} {digest}\n" for name, digest in known.items()))
    process.stdin.close()
    process.stdin = None
    return process


@pytest.fixture(scope="module")
def mounts(seaweedfs: EmbeddedS3, filled: _Filled) -> Iterator[list[Rig]]:
    """Without OPEN and with it."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                rigged(seaweedfs, bucket=filled.bucket, options=options, HEADRACE_FETCH_MEMORY=str(BUDGET))
            )
            for options in ("ro,no_open", "")
        ]


@pytest.mark.parametrize("number", [0, 1], ids=["ro,no_open", ""])
def test_memory_stays_in_its_budget_while_readers_are_killed(
    filled: _Filled, mounts: list[Rig], crowd: list[subprocess.Popen[str]], number: int
) -> None:
    """What they leave behind is seen at the end of this file: without OPEN, it takes a while until that is let go."""
    chance, rig = random.Random(4), mounts[number]
    crowd += [_start(READER, filled.known, rig.folder + "/data", born) for born in range(6)]
    for born in range(6, 6 + KILLS):
        time.sleep(chance.random() * 0.5)
        victim = crowd.pop(chance.randrange(len(crowd)))
        ended = victim.poll()
        victim.kill()
        _, errors = victim.communicate()
        assert ended is None, errors
        crowd.append(_start(READER, filled.known, rig.folder + "/data", born))
    assert wait_for(lambda: any(rig.under_way().values()), 10), "nothing was under way: this proves nothing"
    assert rig.peak_bytes() < BUDGET + 150_000_000


def test_two_mounts_and_a_loader_share_one_cache(
    seaweedfs: EmbeddedS3, filled: _Filled, crowd: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    known = filled.known
    with rigged(seaweedfs, bucket=filled.bucket) as first:
        shared = {"HEADRACE_CACHE_DIR": str(first.cache)}
        with rigged(seaweedfs, bucket=filled.bucket, **shared) as second:
            outs = [tmp_path / str(number) for number in range(5)]
            for number, rig in enumerate((first, second, first, second)):
                crowd.append(_start(READER, known, Path(rig.folder, "data"), number, out=outs[number]))
            url = f"s3://{first.bucket}/data/"
            crowd.append(_start(LOADER, known, url, env=first.environment, out=outs[4]))
            written: dict[str, bytes] = {}
            deadline = time.monotonic() + MOST_SECONDS
            while (min(map(_reads, outs)) < READS or len(written) < WRITES) and time.monotonic() < deadline:
                rig = (first, second)[len(written) % 2]  # a writer beside them, on both mounts in turn
                path, data = Path(rig.folder, f"out-{len(written)}"), os.urandom(200_000)
                path.with_suffix(".part").write_bytes(data)
                path.with_suffix(".part").rename(path)
                written[path.name] = data
                assert all(process.poll() is None for process in crowd), [_end(process) for process in crowd]
            for process in crowd:
                _end(process)
            crowd.clear()
            assert min(map(_reads, outs)) > 2, f"not everyone got to read: {[_reads(out) for out in outs]}"
            assert len(written) > 5
            second.stop()
        first.restart(wipe=True)
        for name, data in written.items():
            assert Path(first.folder, name).read_bytes() == data
        first.stop()


def test_killed_readers_leave_nothing(filled: _Filled, mounts: list[Rig]) -> None:
    for rig in mounts:
        assert wait_for(lambda rig=rig: not any(rig.under_way().values()), 60), rig.under_way()
        whole = Path(rig.folder, "data/big-0.bin").read_bytes()
        assert hashlib.sha256(whole).hexdigest() == filled.known["big-0.bin"]
        rig.stop()


def _reads(out: Path) -> int:
    return out.read_text().count("read\n")


def _end(process: subprocess.Popen[str]) -> str:
    """Kill it; what it complained of."""
    process.kill()
    return process.communicate()[1]
