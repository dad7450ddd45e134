"""Nodes that share their caches: who asks whom, how often the store is asked, and what goes wrong on the way."""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.base.errors import ChangedError, HeadraceError
from headrace.base.ports import reserve_port
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.cluster.peers import PeerServer
from headrace.fetch import PEER_PATH, Fetcher, Keepers, Read
from headrace.http_server import Address
from headrace.namespace import Namespace
from headrace.store import open_store
from headrace.store.protocol import Blob, Store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Objects, Upstream, etag_of
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.cluster_rig import PYTHON, SharedCluster
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

TOKEN = "a token that this job's nodes have"
PATIENCE_S = 60
BODIES = {f"{number:03}.bin": random.Random(number).randbytes(6000) for number in range(240)}
CHARGED = len(BODIES) * 3 * 4096
"""Bytes of a cache that holds all of them: two pages each, and one for the label."""
BLOCK = 64 << 10


class Node:
    """A cache, a fetcher, and a server for others. `door`: where others find it."""

    def __init__(self, folder: Path, name: str, size: int, *, verify: bool = False) -> None:
        self.name, self.file = name, str(folder / f"{name}.toml")
        cache = CacheSettings(dir=str(folder / name), size=size, min_free=0, block=BLOCK, whole=BLOCK, peers=self.file)
        self.settings = Settings(cache=cache, fetch=FetchSettings(verify=verify, hedge=False))
        self.server = PeerServer(self.settings, Namespace(self.settings), Address())
        self.door = self.server.url
        self.fetcher: Fetcher | None = None

    def join(self, nodes: Sequence[Node], token: str = TOKEN) -> None:
        Keepers(self.name, {node.name: node.door for node in nodes}, token).save(self.file)
        self.server.start(token)
        self.fetcher = Fetcher.open(self.settings)

    def read(self, reads: Sequence[Read]) -> dict[str, bytes]:
        """All of these, asked for at once."""
        assert self.fetcher is not None
        found: dict[str, bytes | HeadraceError] = {}
        arrived = threading.Semaphore(0)

        def sink(read: Read, result: Blob | HeadraceError) -> None:
            found[read.key if read.whole else f"{read.key}@{read.start}"] = (
                bytes(result.data) if isinstance(result, Blob) else result
            )
            arrived.release()

        self.fetcher.submit(reads, sink)
        for _ in reads:
            assert arrived.acquire(timeout=PATIENCE_S)
        if failures := [one for one in found.values() if isinstance(one, HeadraceError)]:
            raise failures[0]
        assert self.fetcher.settle()
        return {key: data for key, data in found.items() if isinstance(data, bytes)}

    def keeps(self, read: Read) -> bool:
        assert self.fetcher is not None
        assert self.fetcher.cache is not None
        return self.fetcher.cache.holds(name_of(self, read))

    def count(self, name: str) -> float:
        assert self.fetcher is not None
        return self.fetcher.metrics.get(name)

    def close(self) -> None:
        if self.fetcher is not None:
            self.fetcher.close()
        self.server.close()


@contextmanager
def pair(folder: Path, size: int = 1 << 30, *, verify: bool = False) -> Generator[tuple[Node, Node]]:
    """Two nodes that have not joined yet."""
    with ExitStack() as stack:
        nodes = [Node(folder, name, size, verify=verify) for name in ("a", "b")]
        for node in nodes:
            stack.callback(node.close)
        yield nodes[0], nodes[1]


@pytest.fixture
def objects() -> dict[str, bytes]:
    """What the store holds."""
    return dict(BODIES)


@pytest.fixture
def origin(objects: dict[str, bytes]) -> Iterator[FaultServer]:
    with FaultServer(Objects(objects)) as server:
        yield server


@pytest.fixture
def store(origin: FaultServer) -> Iterator[Store]:
    store = open_store(origin.endpoint)
    yield store
    store.close()


def read_of(store: Store, key: str, body: bytes) -> Read:
    return Read(store, key, len(body), etag_of(body))


def everything(store: Store) -> list[Read]:
    return [read_of(store, key, body) for key, body in BODIES.items()]


def gets(origin: FaultServer) -> int:
    return sum(one.operation == "get" for one in origin.seen)


def epoch(nodes: Sequence[Node], store: Store, seed: int) -> dict[str, bytes]:
    """Each node reads the share of a rank, which is another one in each epoch."""
    order = everything(store)
    random.Random(seed).shuffle(order)
    return {key: data for at, node in enumerate(nodes) for key, data in node.read(order[at :: len(nodes)]).items()}


def second_epoch(folder: Path, origin: FaultServer, store: Store, *, shared: bool) -> int:
    """Requests to the store."""
    with pair(folder, CHARGED // 2) as nodes:
        for node in nodes:
            node.join(nodes if shared else [node])
        assert epoch(nodes, store, 1) == BODIES
        before = gets(origin)
        assert epoch(nodes, store, 2) == BODIES
        if shared:
            assert all(node.count("peers.reads") > 0 for node in nodes)
            assert all(node.count("peers.bytes") == 6000 * node.count("peers.reads") for node in nodes)
        return gets(origin) - before


def test_data_twice_a_cache_asks_the_store_for_less_than_half(
    tmp_path: Path, origin: FaultServer, store: Store
) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "shared").mkdir()
    alone = second_epoch(tmp_path / "alone", origin, store, shared=False)
    shared = second_epoch(tmp_path / "shared", origin, store, shared=True)
    assert shared <= alone / 2, (shared, alone)


def test_the_first_epoch_asks_the_store_once_for_each_whoever_reads(
    tmp_path: Path, origin: FaultServer, store: Store
) -> None:
    with pair(tmp_path) as nodes:
        for node in nodes:
            node.join(nodes)
        for node in nodes:
            assert node.read(everything(store)) == BODIES
        assert gets(origin) == len(BODIES) + sum(node.count("peers.late") for node in nodes)
        kept = [len(list(Path(node.settings.cache.dir).glob("v1/objects/*/*"))) for node in nodes]
        assert sum(kept) == len(BODIES)  # each lies in one cache alone


def test_pieces_of_a_large_object_lie_on_one_node_each(
    tmp_path: Path, store: Store, objects: dict[str, bytes]
) -> None:
    objects["large"] = body = random.Random(3).randbytes(70 * BLOCK + 777)
    starts = [random.Random(5).randrange(len(body) - 9000) for _ in range(200)]
    whole = read_of(store, "large", body)
    reads = [whole._replace(start=at, stop=at + 9000) for at in sorted(set(starts))]
    with pair(tmp_path) as nodes:
        for node in nodes:
            node.join(nodes)
        for node in nodes:
            found = node.read(reads)
            assert all(found[f"large@{read.start}"] == body[read.start : read.stop] for read in reads)
        pieces = len(body) // (16 * BLOCK) + 1
        late = sum(node.count("peers.late") for node in nodes)
        assert sum(node.count("peers.reads") for node in nodes) + late >= len(reads)  # one of two keeps each
        # A block on the border may be on both sides.
        assert node_bytes(nodes) <= len(body) + pieces * BLOCK + late * 9000


def node_bytes(nodes: Sequence[Node]) -> float:
    return sum(node.count("fetch.bytes") + node.server.metrics.get("fetch.bytes") for node in nodes)


@pytest.mark.parametrize("kind", [Kind.TRUNCATE, Kind.RESET, Kind.SHORT, Kind.REFUSE, Kind.INTERNAL, Kind.CORRUPT,
                                  Kind.CHANGED])  # fmt: skip
def test_a_node_that_answers_badly_costs_nothing_but_requests(kind: Kind, tmp_path: Path, store: Store) -> None:
    with pair(tmp_path, verify=kind is Kind.CORRUPT) as (a, b), broken(b, Fault(kind, rate=0.5)) as between:
        for node in (a, b):
            node.join([a, b])
        assert a.read(everything(store)) == BODIES
        assert between.plan.struck(kind) > 0
        assert a.count("peers.failed") > 0
        assert a.count("fetch.errors") == 0


def test_a_node_that_falls_silent_is_waited_for_as_long_as_a_hedge(tmp_path: Path, store: Store) -> None:
    with pair(tmp_path) as (a, b), broken(b, Fault(Kind.STALL, delay_s=PATIENCE_S)):
        for node in (a, b):
            node.join([a, b])
        assert a.read(everything(store)) == BODIES
        assert a.count("peers.late") > 0
        assert a.count("peers.failed") == 0  # nobody has waited until the connection was given up
        assert a.count("peers.reads") == 0


@contextmanager
def broken(node: Node, *faults: Fault) -> Generator[FaultServer]:
    """Others find the node behind this."""
    where = urlsplit(node.server.url)
    with FaultServer(Upstream(where.hostname or "", where.port or 0), Plan(faults, seed=1)) as between:
        node.door = between.endpoint
        yield between


def test_only_who_knows_the_token_is_answered(tmp_path: Path, origin: FaultServer, store: Store) -> None:
    with pair(tmp_path) as (a, b):
        a.join([a, b])
        b.join([a, b], token=TOKEN.replace("this", "that"))
        assert a.read(everything(store)) == BODIES
        assert a.count("peers.reads") == 0
        assert b.server.metrics.get("peers.served") == 0
        where = urlsplit(b.server.url)
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Basic {TOKEN}"}):
            connection = http.client.HTTPConnection(where.hostname or "", where.port)
            connection.request("GET", f"{PEER_PATH}?size=1", headers=headers)
            assert connection.getresponse().status == 401
            connection.close()
    assert gets(origin) == len(BODIES)


def test_what_lies_in_the_cache_is_not_shown_to_a_job_that_may_not_read_it(
    tmp_path: Path, origin: FaultServer, store: Store
) -> None:
    with pair(tmp_path) as (a, b):
        for node in (a, b):
            node.join([a, b])
        assert b.read(everything(store)) == BODIES  # half of it lies in b's cache now, half of it in a's
        b.server.close()
        later = PeerServer(b.settings, Namespace(b.settings), Address())
        try:
            later.start(TOKEN)
            b.door = later.url
            Keepers("a", {"a": a.door, "b": b.door}, TOKEN).save(a.file)
            origin.plan = Plan([Fault(Kind.EXPIRED, operations=frozenset({"head"}))])
            alone = Fetcher.open(a.settings)
            a.fetcher, before = alone, a.fetcher
            assert before is not None
            before.close()
            assert a.read(everything(store)) == BODIES
            assert later.metrics.get("peers.served") == 0
            assert origin.plan.struck(Kind.EXPIRED) > 0
        finally:
            later.close()


def test_an_object_that_is_rewritten_is_answered_in_the_version_that_was_asked_for(
    tmp_path: Path, store: Store, objects: dict[str, bytes]
) -> None:
    with pair(tmp_path) as (a, b):
        for node in (a, b):
            node.join([a, b])
        assert a.read(everything(store)) == BODIES
        keys = [key for key in BODIES if keeper(a, read_of(store, key, BODIES[key])) == "b"]
        after = {key: random.Random(key).randbytes(6000) for key in keys}
        objects.update(after)
        assert a.read([read_of(store, key, body) for key, body in after.items()]) == after
        old = read_of(store, keys[0], BODIES[keys[0]])
        assert a.read([old]) == {keys[0]: BODIES[keys[0]]}  # still kept by b
        with pytest.raises(ChangedError):  # kept by nobody
            a.read([old._replace(version=etag_of(b"never"))])


def keeper(node: Node, read: Read) -> str:
    return Keepers.load(node.file).of(name_of(node, read))


def name_of(node: Node, read: Read) -> str:
    assert node.fetcher is not None
    assert node.fetcher.cache is not None
    return node.fetcher.cache.name(read.store.identity, read.key, read.version or "", read.size or 0)


def test_a_node_that_is_killed_is_asked_no_more_and_none_of_it_is_lost(
    tmp_path: Path, origin: FaultServer, store: Store
) -> None:
    port = reserve_port("127.0.0.1")
    nodes = {"a": f"http://127.0.0.1:{reserve_port('127.0.0.1')}", "b": f"http://127.0.0.1:{port}"}
    Keepers("b", nodes, TOKEN).save(str(tmp_path / "b.toml"))
    with pair(tmp_path) as (a, _b):
        Keepers("a", nodes, TOKEN).save(a.file)
        a.fetcher = Fetcher.open(a.settings)
        share = [read for read in everything(store) if keeper(a, read) == "b"]
        with serving(tmp_path / "b.toml", tmp_path / "other") as process:
            a.read(share[:1])  # the first that a new process answers may be late
            assert a.read(everything(store)) == BODIES
            asked = a.count("peers.reads")
            assert asked > 0
            process.kill()
            process.wait()
            before = gets(origin)
            assert a.read(everything(store)) == BODIES
        assert a.count("peers.reads") == asked
        assert gets(origin) - before == len(share)  # no more: a keeps its own share, and no other
        assert not any(map(a.keeps, share))
        Keepers("a", {"a": nodes["a"]}, TOKEN).save(a.file)
        assert wait_for(lambda: a.read(share) and all(map(a.keeps, share)))  # they are a's from now on


@contextmanager
def serving(file: Path, cache: Path) -> Generator[subprocess.Popen[str]]:
    variables: Mapping[str, str] = {
        "HEADRACE_CACHE_PEERS": str(file), "HEADRACE_CACHE_DIR": str(cache), "HEADRACE_CACHE_MIN_FREE": "0",
    }  # fmt: skip
    command = [sys.executable, "-m", "headrace.cli", "cache", "serve"]
    process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "answers at" in process.stdout.readline()
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()


SHARING = """
import json, os, sys
from pathlib import Path
import headrace as hr

loader = hr.Dataset.open(sys.argv[1]).shuffle(seed=1).shard(0, 1).batch(4).loader()
seen = sorted(str(key) for batch in loader for key in batch["__key__"])
told = json.dumps([seen, dict(loader.stats().counters)])
(Path(os.environ["HEADRACE_OUTPUTS"]) / f"rank-{os.environ['RANK']}.json").write_text(told)
"""


@pytest.mark.server
@pytest.mark.timeout(300)
def test_nodes_of_a_job_on_a_cluster_share_when_it_says_so(
    seaweedfs: EmbeddedS3, ray_cluster: SharedCluster, tmp_path: Path
) -> None:
    rig = RunsRig(seaweedfs, tmp_path, ray_cluster.variables)
    rig.python = PYTHON
    keys = [f"{number:03}" for number in range(80)]
    for key in keys:
        rig.store().put(f"data/{key}.bin", key.encode() * 1000)
    script = rig.script(SHARING)
    words = ["run", "--on", ray_cluster.address, "--nodes", "2", "--set", "cluster.peers=true", "--id", "sharing"]
    try:
        rig.headrace(*words, "--", PYTHON, str(script), f"s3://{rig.bucket}/data", timeout=200)
        found = [json.loads(rig.read("sharing", f"outputs/rank-{rank}.json") or b"") for rank in (0, 1)]
    finally:
        rig.close()
    assert [seen for seen, _ in found] == [keys, keys]
    counts = [counters for _, counters in found]
    assert all(one.get("peers.reads", 0) > 0 for one in counts), counts
    # Of two nodes one keeps each: it was read by one from the other, or that was late.
    assert sum(one.get(name, 0) for one in counts for name in ("peers.reads", "peers.late")) >= len(keys), counts
    assert all(one["peers.bytes"] == 3000 * one["peers.reads"] for one in counts)
