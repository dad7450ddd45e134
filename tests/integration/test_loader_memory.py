"""What a loader holds is let go as soon as it is used, whatever the collector of cycles does."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.base import memory
from tests.tar_kit import tar_of

SIZE, SAMPLES, PREFETCH = 400_000, 240, 8_000_000


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same samples as tars and as single files."""
    rng = random.Random(5)
    tars, files = tmp_path_factory.mktemp("tars"), tmp_path_factory.mktemp("files")
    for shard in range(6):
        some: list[tuple[str, bytes]] = []
        for row in range(shard * SAMPLES // 6, (shard + 1) * SAMPLES // 6):
            data = rng.randbytes(SIZE)
            for name, content in ((f"{row:03d}.bin", data), (f"{row:03d}.cls", str(row % 7).encode())):
                some.append((name, content))
                (files / name).write_bytes(content)
        (tars / f"{shard}.tar").write_bytes(tar_of(some))
    return {"tar": tars, "files": files}


@pytest.mark.parametrize(("kind", "block"), [("tar", None), ("tar", "1MB"), ("tar", False), ("files", None)])
@pytest.mark.usefixtures("no_collector")
def test_bytes_do_not_wait_for_the_collector(folders: dict[str, Path], kind: str, block: str | bool | None) -> None:
    """`block` False: not shuffled."""
    dataset = hr.Dataset.open(f"file://{folders[kind]}/")
    if block is not False:
        dataset = dataset.shuffle(3, block=block or None)
    before, most = memory.lent(), 0
    for batch in dataset.batch(8).loader(prefetch=PREFETCH):
        del batch
        most = max(most, memory.lent() - before)
    assert 0 < most < 4 * PREFETCH < SIZE * SAMPLES / 2
