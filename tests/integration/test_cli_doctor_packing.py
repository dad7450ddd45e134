"""``headrace doctor``: whether packing pays, on SeaweedFS, near and far."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.checkup import Finding
from headrace.checkup.packing import Spot, check_packing
from headrace.fetch import Read
from headrace.store import open_store
from headrace.store.protocol import Blob, Store
from headrace.testing.faults import LatencyStore
from headrace.testing.servers import EmbeddedS3
from tests.integration.cli_kit import Shell, s3_shell  # noqa: F401
from tests.tar_kit import tar_of

pytestmark = pytest.mark.server
AT_ONCE = 16


@pytest.fixture
def store(s3_shell: Shell, seaweedfs: EmbeddedS3) -> Iterator[Store]:  # noqa: F811
    """What ``$BUCKET`` holds."""
    opened = open_store(s3_shell.variables["BUCKET"], seaweedfs.options())
    yield opened
    opened.close()


def put(store: Store, folder: str, count: int, size: int, suffix: str = "bin") -> None:
    for number in range(count):
        store.put(f"{folder}/{number:04d}.{suffix}", os.urandom(size))


def told(store: Store, tmp_path: Path, folder: str, *, write: bool = True) -> Finding:
    fetch = FetchSettings(connections=AT_ONCE)
    settings = Settings(cache=CacheSettings(dir=str(tmp_path / "cache"), size=0), fetch=fetch)
    infos = [info for page in store.list(f"{folder}/") for info in page]
    reads = [Read(store, info.key, info.size, info.version) for info in infos]
    spot = Spot(f"s3://b/{folder}", store, f"{folder}/" if write else None)
    [finding] = check_packing(settings, reads, spot, seconds=2.4)
    return finding


def told_at_once(cases: Iterable[tuple[Store, Path, str]]) -> list[Finding]:
    """Side by side: each waits for its store nearly all the time."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda case: told(*case), cases))


def test_the_advice_on_single_objects_turns_with_their_size(store: Store, tmp_path: Path) -> None:
    put(store, "tiny", 150, 2000)
    put(store, "large", 6, 5_000_000)
    tiny, large = told(store, tmp_path, "tiny"), told(store, tmp_path, "large")
    assert tiny.advice == "headrace pack s3://b/tiny DST --shuffle 1"
    assert tiny.values["gain"] > 2
    assert "packing pays" in tiny.text
    assert "a million samples" in tiny.text
    assert (large.status, large.advice) == ("ok", None), large
    assert "does not pay" in large.text
    assert sum(len(page) for page in store.list()) == 156, "the throwaway object is gone"


class Link(LatencyStore):
    """A way to the store that brings 40 MB/s in all, whoever shares it."""

    def __init__(self, inner: Store, latency_s: float) -> None:
        super().__init__(inner, latency_s)
        self._busy, self._free_at = threading.Lock(), 0.0

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        blob = super().get(key, start, stop, if_match=if_match)
        with self._busy:
            self._free_at = max(time.monotonic(), self._free_at) + len(blob.data) / 40e6
            until = self._free_at
        time.sleep(max(0.0, until - time.monotonic()))
        return blob


def test_the_advice_turns_with_the_way_to_the_store(store: Store, tmp_path: Path) -> None:
    put(store, "middling", 60, 100_000)
    ways = [Link(store, latency_s) for latency_s in (0.001, 0.3)]
    near, far = told_at_once((way, tmp_path, "middling") for way in ways)
    assert (near.status, near.advice) == ("ok", None), near
    assert far.advice == "headrace pack s3://b/middling DST --shuffle 1", far
    assert far.values["samples_per_second"] < AT_ONCE / 0.3 * 1.1, "each request waits so long"


def test_without_leave_to_write_it_says_what_it_cannot_tell(store: Store, tmp_path: Path) -> None:
    put(store, "tiny", 30, 2000)
    finding = told(LatencyStore(store, 0.02), tmp_path, "tiny", write=False)
    assert (finding.status, "--write" in (finding.advice or "")) == ("note", True)
    assert "gain" not in finding.values
    put(store, "tiny", 1, 6_000_000, "big")
    assert told(LatencyStore(store, 0.02), tmp_path, "tiny", write=False).values["gain"] > 0


def shards(store: Store, folder: str, count: int, samples: int, size: int) -> None:
    data = random.Random(1).randbytes(size)
    for number in range(count):
        store.put(f"{folder}/{number}.tar", tar_of((f"{row:05d}.png", data) for row in range(samples)))


def test_of_shards_it_says_which_order_they_need(store: Store, tmp_path: Path) -> None:
    shards(store, "small", 3, 2500, 2000)
    shards(store, "large", 3, 2, 4_000_000)
    shards(store, "crumbs", 20, 20, 2000)
    far = LatencyStore(store, 0.05)
    small, large, crumbs = told_at_once((far, tmp_path, name) for name in ("small", "large", "crumbs"))
    assert small.status == "ok"
    assert 'block="auto"' in (small.advice or "")
    assert small.values["everywhere_samples_per_second"] < AT_ONCE / 0.05 * 1.1
    assert (large.status, large.advice, large.values["block"]) == ("ok", None, None)
    assert crumbs.advice == "headrace pack s3://b/crumbs DST --shard-size 100MB"


def test_what_cannot_be_packed_or_read_at_random(store: Store, tmp_path: Path) -> None:
    put(store, "xz", 2, 1000, "tar.xz")
    assert "decompress them" in (told(store, tmp_path, "xz").advice or "")
    put(store, "gz", 2, 1000, "tar.gz")
    assert told(store, tmp_path, "gz").advice == "headrace pack s3://b/gz DST --shuffle 1"
    put(store, "tables", 2, 1000, "parquet")
    with pytest.raises(ValueError, match="not enough values"):
        told(store, tmp_path, "tables")


def test_the_command_says_it_beforehand_and_prints_json(s3_shell: Shell, store: Store) -> None:  # noqa: F811
    put(store, "tiny", 60, 2000)
    place = s3_shell.variables["BUCKET"] + "/tiny"
    ended = s3_shell.run("doctor", place, "--write", "--seconds", "1")
    assert "at most 256 MB, to see whether packing pays" in ended.err
    assert f"-> headrace pack {place} DST" in ended.out
    found: dict[str, Any] = {row["id"]: row for row in s3_shell.json("doctor", place, "--seconds", "1")}
    assert found["packing"]["values"]["sample_bytes"] == 2000
