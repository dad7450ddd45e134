"""Readers, writers and evictors in many processes, killed at random; then every entry is verified."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

from tests.cache_kit import MB, open_cache, worker

LIMIT = 4 * MB
KILLS = 20

SCRIPT = """
from headrace.cache import Busy, Claim, Fill
role = sys.argv[2]
random.seed(int(sys.argv[3]))
cache = open_cache(sys.argv[1], size=4 * MB)
size = 24 * 4096

def sample():
    key = f"k{random.randrange(300)}"
    return key, *named(cache, key, 20_000)

def write():
    key, name, label = sample()
    claim = cache.claim(name)
    if isinstance(claim, Claim):
        claim.publish(content(key, 20_000), label) if random.random() < 0.9 else claim.abandon()
    elif isinstance(claim, Busy):
        claim.wait(0.05)

def write_many():
    fills = []
    for _ in range(random.randrange(10, 21)):  # the larger ones together
        key, name, label = sample()
        claim = cache.claim(name) if random.random() < 0.5 else None
        fills.append(Fill(name, memoryview(content(key, 20_000)), label, claim if isinstance(claim, Claim) else None))
    cache.fill_many(fills)
    if random.random() < 0.3:
        cache.settle()

def read():
    key, name, _ = sample()
    data = cache.read(name)
    assert data is None or data == content(key, 20_000), key
    data = cache.read_range(name, 5_000, 9_000)
    assert data is None or data == content(key, 20_000)[5_000:9_000], key

def blocks():
    key = f"big{random.randrange(5)}"
    name, label = named(cache, key, size)
    entry = cache.blocks(name, size, label)
    if entry is None:
        return
    with entry:
        for start, stop in entry.missing():
            if random.random() < 0.3:
                entry.write(start, content(key, size)[start : start + 4096])
        for start in range(0, size, 4096):
            data = entry.read(start, start + 4096)
            assert data is None or data == content(key, size)[start : start + 4096], key

def evict():
    cache.evict(target_bytes=random.randrange(4 * MB))
    if random.random() < 0.1:
        report = cache.verify()
        assert not report.bad, report.bad
    cache.evict([sample()[1] for _ in range(5)])
    time.sleep(0.01)

print("ready", flush=True)
while True:
    {"write": write, "write many": write_many, "read": read, "blocks": blocks, "evict": evict}[role]()
"""
ROLES = ["write", "write many", "write many", "read", "blocks", "blocks", "evict"]


def on_disk(folder: Path) -> int:
    """Bytes of all entries, as ``du`` counts them."""
    files = [path for kind in ("objects", "blocks") for path in (folder / "v1" / kind).rglob("*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)


def test_every_entry_is_whole_whoever_was_killed(tmp_path: Path) -> None:
    chance = random.Random(2)
    running: list[tuple[str, subprocess.Popen[str]]] = []
    failed: list[str] = []
    born = 0
    try:
        for _ in range(KILLS):
            while len(running) < len(ROLES):
                role = ROLES[born % len(ROLES)]
                running.append((role, worker(SCRIPT, tmp_path, role, born)))
                born += 1
            role, victim = running.pop(0)  # the one that has worked longest
            assert victim.stdout is not None
            victim.stdout.readline()  # at work by now: killed while it starts, it would prove nothing
            time.sleep(chance.random() * 0.3)
            if victim.poll() is not None:
                failed.append(f"{role} ended by itself with {victim.returncode}")
            victim.kill()
            victim.communicate()
    finally:
        for role, process in running:
            if process.poll() is not None:
                failed.append(f"{role} ended by itself with {process.returncode}")
            process.kill()
            process.communicate()
    assert not failed
    for path in (tmp_path / "v1" / "tmp").rglob("*"):
        os.utime(path, (time.time() - 3600,) * 2)  # nobody alive has moved it there just now
    cache = open_cache(tmp_path, size=LIMIT)
    # A count made meanwhile may miss what each of them is just publishing.
    in_flight = len(ROLES) * 30_000 + ROLES.count("write many") * 20 * 25_000
    assert on_disk(tmp_path) <= LIMIT + in_flight
    report = cache.verify()
    assert report.bad == []
    assert report.count is not None
    assert report.count.bytes <= LIMIT
    names = [path for path in (tmp_path / "v1" / "objects").rglob("*") if path.is_file()]
    assert report.checked >= len(names), "what is over the limit goes after it was checked"
    cache.evict()
    assert (cache.status().entries, cache.status().bytes) == (0, 0)
    assert not [path for path in (tmp_path / "v1" / "blocks").rglob("*") if path.is_file()]
