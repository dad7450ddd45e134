"""The index kept with a snapshot: made by one node, adopted by others; a node killed while it makes it; bars."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pty
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.store import open_store
from headrace.store.protocol import Store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.children import running
from tests.integration.cli_kit import PROGRAM, Shell, firsts
from tests.tar_kit import parts_of, write_shards

pytestmark = pytest.mark.server
SHARDS, EACH = 24, 10
LATE = Fault(Kind.LATENCY, key="*.tar", operations=frozenset({"get"}), delay_s=0.5)


@dataclasses.dataclass
class Site:
    """Shards in a bucket behind a server that counts, and nodes: shells with a cache of their own."""

    shell: Shell
    server: FaultServer
    store: Store
    samples: dict[str, dict[str, bytes]]

    def node(self, number: int) -> Shell:
        folder = self.shell.folder / f"node{number}"
        folder.mkdir(exist_ok=True)
        return dataclasses.replace(self.shell, folder=folder)

    def open(self, target: str, number: int, patch: pytest.MonkeyPatch, **options: Any) -> hr.Dataset:
        """Opened by this process, as that node."""
        for name, value in self.node(number).environment.items():
            if name.startswith(("AWS_", "HEADRACE_")):
                patch.setenv(name, value)
        return hr.Dataset.open(target, **options)

    def shards_read(self) -> set[str]:
        """Since the last call."""
        seen, self.server.seen = self.server.seen, []
        return {one.path for one in seen if one.operation in ("get", "head") and one.path.endswith(".tar")}


@pytest.fixture
def site(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, seaweedfs: EmbeddedS3
) -> Iterator[Site]:
    place = f"{seaweedfs.create_bucket(f'kept-{os.getpid()}')}/{secrets.token_hex(6)}"
    rng = random.Random(3)
    samples = {f"{row:05d}": {"png": rng.randbytes(900), "cls": b"%d" % row} for row in range(SHARDS * EACH)}
    write_shards(tmp_path / "made", samples, EACH)
    store = open_store(place, seaweedfs.options())
    for path in (tmp_path / "made").iterdir():
        store.put(f"set/{path.name}", path.read_bytes())
    host, port = seaweedfs.endpoint.removeprefix("http://").split(":")
    with FaultServer(Upstream(host, int(port))) as server:
        variables = {
            "AWS_ENDPOINT_URL_S3": server.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": seaweedfs.access_key,
            "AWS_SECRET_ACCESS_KEY": seaweedfs.secret_key,
            "HEADRACE_HOME": f"{place}/home",
            "SET": f"{place}/set",
        }
        yield Site(Shell(tmp_path, variables, firsts(request, tmp_path_factory)), server, store, samples)
    store.close()


def trained(ds: hr.Dataset, samples: dict[str, dict[str, bytes]]) -> None:
    with contextlib.closing(ds.shuffle(seed=1).loader()) as loader:
        found = {sample["__key__"]: parts_of(sample) for sample in loader}
    assert found == samples


def test_another_node_adopts_the_index_and_reads_no_shard_for_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site.node(1).run("snapshot", site.shell.variables["SET"], "--json")
    assert f"indexing its {SHARDS} tar shards" in made.err
    assert f'"indexed_samples": {SHARDS * EACH}' in made.out
    assert len(site.shards_read()) == SHARDS, "the first node had to read them"
    folder = "home/datasets/set/v1/index/tar/"
    assert {one.key for page in site.store.list(folder) for one in page} == {
        folder + name for name in ("rows", "at", "first", "meta.json")
    }

    ds = site.open("set@v1", 2, monkeypatch)
    assert len(ds) == SHARDS * EACH
    assert site.shards_read() == set()
    trained(ds, site.samples)
    assert len(site.shards_read()) == SHARDS

    assert len(site.open("set@v1", 2, monkeypatch)) == SHARDS * EACH
    assert not [one for one in site.server.seen if "/index/" in one.path], "this node has it"


def test_a_damaged_index_is_ignored(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.node(1).run("snapshot", site.shell.variables["SET"])
    for number, name in enumerate(("rows", "at", "first", "meta.json"), 2):
        key = f"home/datasets/set/v1/index/tar/{name}"
        whole = bytes(site.store.get(key).data)
        data = bytearray(whole)
        data[len(data) // 2] ^= 1
        site.store.put(key, bytes(data))
        site.shards_read()
        trained(site.open("set@v1", number, monkeypatch), site.samples)
        assert len(site.shards_read()) == SHARDS
        site.store.put(key, whole)
    assert len(site.open("set@v1", 6, monkeypatch)) == SHARDS * EACH
    assert site.shards_read() == set(), "whole again"


def test_without_an_index_nodes_read_the_shards_until_it_follows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "indexing" not in site.node(1).run("snapshot", site.shell.variables["SET"], "--no-index").err
    assert site.shards_read() == set()
    assert len(site.open("set@v1", 2, monkeypatch)) == SHARDS * EACH
    assert len(site.shards_read()) == SHARDS
    assert site.node(2).json("snapshot", "set@v1")["indexed_samples"] == SHARDS * EACH
    assert site.shards_read() == set(), "this node had it, and keeps it for the others"
    assert len(site.open("set@v1", 3, monkeypatch)) == SHARDS * EACH
    assert site.shards_read() == set()


def test_killed_while_it_indexes_it_goes_on_shard_by_shard(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.server.plan = Plan((LATE,))
    node = site.node(1)
    process = subprocess.Popen(
        [*PROGRAM, "snapshot", site.shell.variables["SET"]],
        cwd=node.folder,
        env={**node.environment, "HEADRACE_FETCH_CONNECTIONS": "4"},  # or all would end at the same time
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    finished: list[Path] = []
    while not finished:
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.005)
        finished = list((node.folder / "cache/indexes").glob("shard1-tar-*"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = len(list((node.folder / "cache/indexes").glob("shard1-tar-*")))
    assert 0 < done < SHARDS, "killed too late or too early to show anything"
    site.server.plan = Plan()
    site.shards_read()

    assert node.json("snapshot", "set@v1")["indexed_samples"] == SHARDS * EACH
    assert len(site.shards_read()) == SHARDS - done, "a finished shard was read again, or one was left out"
    trained(site.open("set@v1", 2, monkeypatch), site.samples)


def test_shards_among_other_things_are_recorded_and_indexed_only_when_said(site: Site) -> None:
    site.store.put("set/cat.jpg", b"pixels")
    made = site.node(1).run("snapshot", site.shell.variables["SET"], "--json")
    assert '"indexed_samples": null' in made.out
    assert "no index is kept: holds 24 tar shards beside 1 other objects such as cat.jpg" in made.err
    site.node(1).fails("snapshot", "set@v1", code=2, says="holds 24 tar shards", hint="the snapshot stands")
    assert site.node(1).json("snapshot", "set@v1", "--format", "tar")["indexed_samples"] == SHARDS * EACH


def test_single_objects_and_tables_have_no_index_and_need_none(site: Site) -> None:
    site.store.put("plain/1.txt", b"x")
    bucket = site.shell.variables["SET"].removesuffix("/set")
    made = site.node(1).run("snapshot", f"{bucket}/plain", "--json")
    assert '"indexed_samples": null' in made.out
    assert "index" not in made.err
    site.node(1).fails("snapshot", "plain@v1", "--format", "parquet", code=2, says="'parquet' has no index to keep")


def test_a_damaged_shard_is_named_and_the_snapshot_stands(site: Site) -> None:
    site.store.put("set/set-003.tar", b"no tar at all")
    ended = site.node(1).run("snapshot", site.shell.variables["SET"], code=2)
    assert "set-003.tar" in ended.err
    assert "headrace snapshot set@v1" in ended.err
    assert site.node(1).json("snapshots", "set")[0]["id"] == "set@v1"


OPEN = "import sys, headrace as hr; print(len(hr.Dataset.open(sys.argv[1])))"


@pytest.mark.parametrize(("wanted", "late"), [("1", True), ("0", True), ("1", False)])
def test_a_slow_index_draws_a_bar_on_a_terminal(site: Site, wanted: str, *, late: bool) -> None:
    site.server.plan = Plan((LATE,) if late else ())
    node, (terminal, inner) = site.node(1), pty.openpty()
    environment = {**node.environment, "HEADRACE_PROGRESS": wanted, "TERM": "xterm"}
    shards = SHARDS if late else 2  # so few that they are indexed at once on any machine
    for path in sorted((site.shell.folder / "made").iterdir())[:shards]:
        site.store.put(f"some/{path.name}", path.read_bytes())
    command = [sys.executable, "-c", OPEN, site.shell.variables["SET"].removesuffix("/set") + "/some"]
    with running(command, cwd=node.folder, env=environment, stdout=subprocess.PIPE, stderr=inner) as process:
        os.close(inner)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(terminal, 4096):
                shown += piece
        assert process.stdout is not None
        assert int(process.stdout.read()) == shards * EACH
    os.close(terminal)
    assert (b"indexed" in shown) == (wanted == "1" and late), shown


def test_who_opens_may_follow_the_index_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting:
        items = size = 0
        of: tuple[int | None, int | None] = (None, None)

        def total(self, items: int | None, size: int | None = None) -> None:
            self.of = items, size

        def advance(self, items: int = 1, size: int = 0) -> None:
            self.items, self.size = self.items + items, self.size + size

    told = Counting()
    site.open(site.shell.variables["SET"], 1, monkeypatch, progress=told)
    held = sum(path.stat().st_size for path in (site.shell.folder / "made").iterdir())
    assert told.of == (SHARDS, held) == (told.items, told.size)
