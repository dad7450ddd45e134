"""torch.distributed.checkpoint in a real bucket: two ranks save, one loads; committed last, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import headrace as hr
from headrace.base.ports import reserve_port
from headrace.base.settings import Settings
from headrace.fetch import Fetcher
from headrace.namespace import Namespace
from headrace.testing.servers import EmbeddedS3
from headrace.upload import published

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore")]
ROWS, COLUMNS = 1500, 4096  # 24 MB: several parts a rank


@pytest.fixture
def place(seaweedfs: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a folder, which child processes reach too."""
    for name, value in seaweedfs.variables().items():
        monkeypatch.setenv(name, value)
    return f"{seaweedfs.create_bucket(f'dcp-{os.urandom(4).hex()}')}/checkpoints"


@pytest.fixture(params=["0", "1GB"])
def ns(request: pytest.FixtureRequest, seaweedfs: EmbeddedS3, place: str, tmp_path: Path) -> Iterator[Namespace]:
    environ = {"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_CACHE_SIZE": request.param}
    fetcher = Fetcher.open(Settings.load(environ=environ))
    opened = Namespace(fetcher.settings, fetcher=lambda: fetcher)
    given = {name: value for name, value in asdict(seaweedfs.options()).items() if value and isinstance(value, str)}
    opened.attach("/c", place, **given)
    yield opened
    fetcher.close()


def state(seed: int) -> dict[str, Any]:
    made = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(ROWS, COLUMNS, generator=made),
        "half": torch.randn(7, 3, generator=made).to(torch.bfloat16),
        "scalar": torch.tensor(float(seed)),
        "epoch": seed,
        "optimizer": {"name": "adam", "step": [seed, 2]},
    }


def empty() -> dict[str, Any]:
    return {
        "weight": torch.zeros(ROWS, COLUMNS),
        "half": torch.zeros(7, 3, dtype=torch.bfloat16),
        "scalar": torch.tensor(0.0),
        "epoch": 0,
        "optimizer": {"name": "", "step": []},
    }


def assert_state(found: dict[str, Any], seed: int) -> None:
    expected = state(seed)
    assert found.keys() == expected.keys()
    for name in ("weight", "half", "scalar"):
        assert torch.equal(found[name], expected[name]), name
    assert (found["epoch"], found["optimizer"]) == (expected["epoch"], expected["optimizer"])


def save_on_rank(rank: int, place: str, port: int, seed: int) -> None:
    """One of two ranks: its rows of the weight, and what all have."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), HEADRACE_CACHE_SIZE="0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        full = state(seed)
        full["weight"] = distribute_tensor(full["weight"], mesh, [Shard(0)])
        full["half"] = distribute_tensor(full["half"], mesh, [Replicate()])
        dcp.save(full, storage_writer=hr.torch.checkpoint.Writer(f"{place}/two"))
        columns = empty()
        columns["weight"] = distribute_tensor(columns["weight"], mesh, [Shard(1)])
        dcp.load(columns, storage_reader=hr.torch.checkpoint.Reader(f"{place}/two"))
        mine = columns["weight"]
        assert isinstance(mine, DTensor)
        half = COLUMNS // 2
        assert torch.equal(mine.to_local(), state(seed)["weight"][:, rank * half : (rank + 1) * half])
    finally:
        dist.destroy_process_group()


def test_two_ranks_save_and_any_number_load(place: str) -> None:
    mp.spawn(save_on_rank, (place, reserve_port(), 5), nprocs=2)
    found = empty()
    dcp.load(found, storage_reader=hr.torch.checkpoint.Reader(f"{place}/two"))
    assert_state(found, 5)


def test_what_is_saved_is_loaded_and_torch_reads_it(ns: Namespace, tmp_path: Path) -> None:
    dcp.save(state(1), storage_writer=hr.torch.checkpoint.Writer("/c/1", thread_count=2, namespace=ns))
    found = empty()
    dcp.load(found, storage_reader=hr.torch.checkpoint.Reader("/c/1", namespace=ns))
    assert_state(found, 1)
    for entry in ns.walk("/c/1"):
        ns.copy(entry, tmp_path / entry.name)
    theirs = empty()
    dcp.load(theirs, storage_reader=FileSystemReader(tmp_path))
    assert_state(theirs, 1)


def test_the_marker_names_what_is_there_and_goes_first(ns: Namespace) -> None:
    for seed, threads in ((1, 3), (2, 1)):
        dcp.save(state(seed), storage_writer=hr.torch.checkpoint.Writer("/c/1", thread_count=threads, namespace=ns))
        place = ns.resolve("/c/1")
        publication = published(place.store, place.key)
        assert publication is not None
        assert {entry.name for entry in ns.walk("/c/1")} == {one.name for one in publication.members} | {"COMMITTED"}
    with pytest.raises(CheckpointException, match="AlreadyExistsError"):
        dcp.save(state(3), storage_writer=hr.torch.checkpoint.Writer("/c/1", overwrite=False, namespace=ns))
    found = empty()
    dcp.load(found, storage_reader=hr.torch.checkpoint.Reader("/c/1", namespace=ns))
    assert_state(found, 2)


class Breaks:
    """Cannot be pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


def test_a_failed_save_commits_nothing_and_takes_back_what_was_committed(ns: Namespace) -> None:
    dcp.save(state(2), storage_writer=hr.torch.checkpoint.Writer("/c/1", namespace=ns))
    with pytest.raises(CheckpointException, match="not me"):
        dcp.save({**state(1), "wrong": Breaks()}, storage_writer=hr.torch.checkpoint.Writer("/c/1", namespace=ns))
    assert not ns.exists("/c/1/COMMITTED")
    with pytest.raises(CheckpointException, match="not complete"):
        dcp.load(empty(), storage_reader=hr.torch.checkpoint.Reader("/c/1", namespace=ns))


def test_checkpoints_that_torch_wrote_are_read_when_asked_for(ns: Namespace, tmp_path: Path) -> None:
    dcp.save(state(4), storage_writer=FileSystemWriter(tmp_path / "theirs"))
    for path in (tmp_path / "theirs").iterdir():
        ns.copy(path, f"/c/theirs/{path.name}")
    reader = hr.torch.checkpoint.Reader("/c/theirs", namespace=ns)
    with pytest.raises(CheckpointException, match="committed=False"):
        dcp.load(empty(), storage_reader=reader)
    found = empty()
    dcp.load(found, storage_reader=hr.torch.checkpoint.Reader("/c/theirs", committed=False, namespace=ns))
    assert_state(found, 4)


def test_only_what_is_wanted_is_read(ns: Namespace) -> None:
    dcp.save(state(1), storage_writer=hr.torch.checkpoint.Writer("/c/1", namespace=ns))
    before = ns.fetcher.stats().counters.get("fetch.bytes", 0)
    found = {"half": empty()["half"]}
    dcp.load(found, storage_reader=hr.torch.checkpoint.Reader("/c/1", namespace=ns))
    assert torch.equal(found["half"], state(1)["half"])
    assert ns.fetcher.stats().counters.get("fetch.bytes", 0) - before < 9 << 20, "of 24 MB: a block or two"


def test_nothing_is_written_where_nothing_may_be(ns: Namespace) -> None:
    (mount,) = ns.mounts()
    ns.attach("/r", f"{mount.url}/below", read_only=True, **mount.options)
    with pytest.raises(CheckpointException, match="ReadOnlyError: /r/1: is read-only"):
        dcp.save(state(1), storage_writer=hr.torch.checkpoint.Writer("/r/1", namespace=ns))
