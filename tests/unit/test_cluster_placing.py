"""Where a gang is to run, who its processes are, and when what they write together is whole."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import SettingError
from headrace.cluster.checkpoints import Together
from headrace.cluster.placing import Free, planned, waits_for
from headrace.cluster.ranks import Rendezvous
from headrace.cluster.told import News, Part
from headrace.jobs import JobSpec
from headrace.jobs.spec_parts import ClusterSpec
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.tracking.runs import Run
from headrace.upload import published

nodes = st.lists(st.builds(Free, st.integers(0, 12), st.integers(0, 9)), max_size=8)


@given(nodes, st.integers(1, 9), st.integers(0, 9), st.integers(1, 3), st.integers(0, 2))
def test_workers_are_as_many_as_there_is_room_for(
    free: list[Free], least: int, more: int, cpus: int, gpus: int
) -> None:
    wanted = ClusterSpec(workers=(least, least + more), cpus_per_worker=cpus, gpus_per_worker=gpus)
    rooms = [min(int(node.cpus) // cpus, int(node.gpus) // gpus if gpus else 99) for node in free]
    shares = planned(wanted, free)
    if sum(rooms) < least:
        assert shares is None
        return
    assert shares is not None
    assert sum(share.processes or 0 for share in shares) == min(sum(rooms), least + more)
    for share, room in zip(shares, sorted(rooms, reverse=True), strict=False):
        assert share.processes is not None
        assert 0 < share.processes <= room, "each on one node, with what its processes need"
        assert (share.cpus, share.gpus) == (cpus * share.processes, gpus * share.processes)
    assert len(shares) <= len(free)


def test_nodes_are_asked_for_whatever_is_free() -> None:
    shares = planned(ClusterSpec(nodes=3, cpus_per_node=4, gpus_per_node=8), [])
    assert shares is not None
    assert [share.bundle for share in shares] == [{"CPU": 4.0, "GPU": 8.0}] * 3
    there = [{"CPU": 4.0, "GPU": 8.0}, {"CPU": 4.0}]
    said = waits_for(ClusterSpec(nodes=3, gpus_per_node=8), there, [Free(2, 1), Free(4, 0)])
    assert said.startswith("asks for 3 nodes with 1 CPU and 8 GPUs each; 1 of 2 nodes are large enough")
    assert said.endswith("6 CPUs and 1 GPU are free")


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_every_rank_is_there_once(sizes: list[int]) -> None:
    meeting = Rendezvous("run", tuple(sizes), "10.0.0.1", 4711, 2)
    told = [meeting.variables(node, local, ()) for node, size in enumerate(sizes) for local in range(size)]
    assert [int(one["RANK"]) for one in told] == list(range(sum(sizes)))
    assert {one["WORLD_SIZE"] for one in told} == {str(sum(sizes))}
    assert [int(one["LOCAL_RANK"]) for one in told] == [local for size in sizes for local in range(size)]
    assert all(("OMP_NUM_THREADS" in one) == (one["LOCAL_WORLD_SIZE"] != "1") for one in told)
    assert "OMP_NUM_THREADS" not in meeting.variables(0, 0, ("OMP_NUM_THREADS",))


@pytest.mark.parametrize(
    ("text", "found"),
    [("4..32", (4, 32)), ("7", (7, 7)), ("2 .. 3", (2, 3)), ("5..4", None), ("0", None), ("..4", None)],
)
def test_a_range_of_workers(text: str, found: tuple[int, int] | None) -> None:
    spec = JobSpec.from_command(["true"])
    if found is None:
        with pytest.raises(SettingError, match="workers"):
            spec.with_flags({"cluster.workers": text})
        return
    chosen = spec.with_flags({"cluster.workers": text})
    assert chosen.cluster.workers == found
    assert JobSpec.from_json(chosen.as_json()).cluster.workers == found


FOLDER = "checkpoints/4"


class Nodes:
    """Three that write one checkpoint, and what their leader makes of it."""

    def __init__(self) -> None:
        self.run = Run(Home(open_store(f"memory://{secrets.token_hex(8)}")), "run")
        self.told: list[str] = []
        self.together = Together(self.run, 3, self.told.append)

    def sends(self, node: int) -> None:
        info = self.run.store.put(f"{self.run.prefix}{FOLDER}/part-{node}", b"x")
        self.together.heard(node, News(parts=(Part(FOLDER, (info,), {}),)))

    def has_open(self, node: int) -> None:
        self.together.heard(node, News(open=frozenset([FOLDER])))

    def has_none(self, node: int) -> None:
        self.together.heard(node, News())

    def marked(self) -> list[str] | None:
        found = published(self.run.store, self.run.prefix + FOLDER)
        return None if found is None else [one.name for one in found.members]


def test_a_checkpoint_is_marked_when_nobody_has_any_of_it_left() -> None:
    nodes = Nodes()
    nodes.has_open(1)
    nodes.sends(0)
    nodes.has_none(2)
    assert nodes.marked() is None, "node 1 has not sent its part"
    nodes.sends(1)
    assert nodes.marked() is None, "nobody knows whether node 2 has begun since"
    nodes.has_none(2)
    assert nodes.marked() is None, "nor node 0"
    nodes.has_none(0)
    assert nodes.marked() == ["part-0", "part-1"]
    nodes.sends(2)
    for node in (0, 1):
        nodes.has_none(node)
    assert nodes.marked() == ["part-0", "part-1", "part-2"], "what comes later is of it, too"


@pytest.mark.parametrize(("gone", "complete"), [(True, True), (False, False), (False, True)])
def test_at_the_end_what_is_whole_is_marked(gone: bool, complete: bool) -> None:
    nodes = Nodes()
    nodes.sends(0)
    if gone:
        nodes.together.gone(2)
    nodes.together.close(complete=complete)
    assert (nodes.marked() is not None) == (complete and not gone)
