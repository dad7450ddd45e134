"""The verdict on a run of many ranks as a function of the figures of each: who is waited for, for what, and when it
cannot be told.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from headrace.base.figures import Figures
from headrace.base.ranks import OF_RANKS
from headrace.base.verdict import judge
from headrace.loader.pipeline.step_clock import Steps
from headrace.tracking.figures import figures_of
from headrace.tracking.points import Point, table

STEPS = 1000.0
Told = dict[str, float]


def rank(own: float = 100.0, cpu: float = 5.0, steps: float = STEPS, node: int = 0, **more: float) -> Figures:
    """Milliseconds of each step: of the loop's own, of that on its thread, and waits by name."""
    ms = steps / 1000
    waits = {f"loader.wait_{one}_s": more.pop(one, 0.0) * ms for one in ("store", "decode", "batch")}
    stall = more.pop("stall", 0.0)
    sums = {
        "loader.batches": steps + 1, "loader.epochs": 1.0, "loader.own_s": own * ms, "loader.own_cpu_s": cpu * ms,
        "loader.own_queued_s": more.pop("queued", 0.0) * ms,
        "loader.wait_s": sum(waits.values()), "loader.stall_s": stall * ms, "loader.stalls": float(stall > 0),
        "loader.uneven_s": more.pop("uneven", 0.0) * ms, "loader.elapsed_s": 100 * ms, "process.cpu_s": cpu * ms,
        **waits,
    }  # fmt: skip
    assert not more
    return Figures(sums, {}, 100 * ms, node=node)


def run(*ranks: Figures | None) -> Figures:
    """What the record has of them; None: the rank told nothing."""
    known = {number: one for number, one in enumerate(ranks) if one is not None}
    sums: Told = {}
    for one in known.values():
        for name, value in one.sums.items():
            sums[name] = sums.get(name, 0.0) + value
    return Figures(sums, {}, max(one.seconds for one in known.values()), known if len(known) > 1 else {})


def node(first: int, **told: float) -> Figures:
    return rank(**told, node=first)


SLOW_STORE = rank(own=20, store=80)
CASES = {
    "a slow store, the last of 8": (run(*[rank()] * 7, SLOW_STORE), "straggler", "store", "Rank 7 is slow", 4.9),
    "a slow store, the first of 8": (run(SLOW_STORE, *[rank()] * 7), "straggler", "store", "Rank 0 is slow", 4.9),
    "slow decoding": (
        run(*[rank()] * 3, rank(own=40, decode=60), *[rank()] * 4), "straggler", "decode", "Rank 3 is slow", 2.5
    ),
    "slow batches": (run(rank(own=40, batch=60), *[rank()] * 3), "straggler", "batch", "Rank 0 is slow", 2.5),
    "slow computing": (
        run(rank(cpu=95), *[rank(cpu=45)] * 7), "straggler", "computing", "Rank 0 is slow: it computes 95 ms", 2.0
    ),
    "no core": (
        run(*[rank(cpu=45)] * 7, rank(cpu=45, queued=50)), "straggler", "queued", "Rank 7 is slow: it waits for a core",
        2.0,
    ),
    "computing more, where cores are few": (
        run(*[rank(cpu=20, queued=2)] * 7, rank(cpu=40, queued=58)), "straggler", "computing", "Rank 7 is slow", 4.0
    ),
    "one that writes": (
        run(rank(stall=60), *[rank()] * 7), "straggler", "writing", "Rank 0 is slow: it writes its checkpoints", 2.5
    ),
    "a little slower": (run(*[rank()] * 7, rank(own=94, store=6)), "straggler", "store", "Rank 7", 1.06),
    "too little slower": (run(*[rank()] * 7, rank(own=96, store=4)), "consumer-bound", "step", "Healthy", 1.0),
    "2 ranks": (run(rank(), SLOW_STORE), "straggler", "store", "Rank 1 is slow: it waits for the store 80 ms", 4.0),
    "2 ranks, both wait, one twice as long": (
        run(rank(own=75, store=25), rank(own=20, store=80)), "straggler", "store", "Rank 1 is slow", 2.2
    ),
    "2 ranks, both wait": (
        run(rank(own=60, store=40), rank(own=20, store=80)), "store-bound", "latency", "The store", 2.4
    ),
    "all wait, one a bit longer": (
        run(*[rank(own=40, store=60)] * 7, rank(own=30, store=70)), "store-bound", "latency", "The store", 2.5
    ),
    "a slow machine with 2 ranks": (
        run(node(0), node(0), node(2), node(2), node(4, own=20, store=80), node(4, own=21, store=79), node(6), node(6)),
        "straggler", "store", "Ranks 4, 5 (one machine) are slow: each waits for the store", 4.0,
    ),
    "one rank of a machine": (
        run(node(0), node(0), node(2), node(2, own=20, store=80)), "straggler", "store", "Rank 3 is slow", 4.0
    ),
    "two ranks of two machines": (
        run(node(0), node(0, own=20, store=80), node(2, own=20, store=80), node(2), *[node(4)] * 2), "straggler",
        "store", "Ranks 1, 2 are slow", 4.0,
    ),
    "two machines with a rank each": (
        run(node(0), node(1, own=20, store=80), node(2, own=20, store=80), node(3), node(4)), "straggler", "store",
        "Ranks 1, 2 are slow", 4.0,
    ),
    "more than half of them": (
        run(*[rank(cpu=95)] * 5, *[rank(uneven=40)] * 3), "consumer-bound", "step", "Healthy", 1.0
    ),
    "a few in turn": (
        run(*[rank(cpu=50, uneven=40)] * 2, *[rank()] * 6), "straggler", "computing", "Ranks 0, 1 are slow", 1.5
    ),
    "in turn": (
        run(*[rank(cpu=50, uneven=45)] * 2), "collective-bound", "turns", "The ranks wait for each other", 1.6
    ),
    "in turn, for data": (
        run(*[rank(own=88, store=12, uneven=75)] * 8), "collective-bound", "turns", "The ranks wait", 3.0
    ),
    "in turn, but data are most of it": (
        run(*[rank(own=50, store=50, uneven=40)] * 2), "store-bound", "latency", "The store", 1.9
    ),
    "each slow for a cause of its own": (
        run(rank(own=20, store=80), rank(own=40, cpu=5, decode=60), rank(), rank()), "straggler", "store", "Rank 0", 1.2
    ),
    "all equal": (run(*[rank(cpu=95)] * 8), "consumer-bound", "step", "Healthy", 1.0),
    "all equal, on devices": (run(*[rank(cpu=5, uneven=3)] * 8), "consumer-bound", "step", "Healthy", 1.0),
    "all equal, with more to do for one": (
        run(rank(cpu=25), *[rank(cpu=5)] * 7), "consumer-bound", "step", "Healthy", 1.0
    ),
    "threads that wait without sleeping": (
        run(*[rank(cpu=99)] * 7, rank(own=20, cpu=20, store=80)), "straggler", "store", "Rank 7 is slow", 4.9
    ),
    "what computes then, nobody knows": (run(*[rank(cpu=99)] * 7, rank(cpu=97)), "consumer-bound", "step", "", 1.0),
    "an older record": (
        run(*[rank(cpu=0)] * 7, rank(own=20, cpu=0, store=80)), "straggler", "store", "Rank 7 is slow", 4.9
    ),
    "one waits, and one computes as long": (
        run(rank(own=20, store=75), rank(own=97, cpu=80), *[rank()] * 6), "store-bound", "latency", "The store", 1.1
    ),
    "not together": (
        run(*[rank()] * 7, rank(own=100, store=80)), "store-bound", "latency", "The store", 1.1
    ),
    "one ended early": (
        run(*[rank()] * 7, rank(own=20, store=80, steps=100)), "straggler", "store", "Rank 7 is slow", 4.9
    ),
    "one did too little": (run(*[rank()] * 7, rank(own=20, store=80, steps=3)), "consumer-bound", "step", "", 1.0),
    "some told nothing": (
        run(rank(), None, rank(), None, SLOW_STORE, None), "straggler", "store", "Rank 4 is slow", 4.9
    ),
    "only one told something": (run(None, SLOW_STORE, None), "store-bound", "latency", "The store", 4.9),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_names_who_is_waited_for(name: str) -> None:
    figures, bound, cause, starts, gain = CASES[name]
    found = judge(figures)
    assert (found.bound, found.cause) == (bound, cause), found
    assert found.statement.startswith(starts), found
    assert gain <= found.gain < 1.6 * gain, found
    assert found.evidence, found
    assert found.advice, found
    known = [number for number, one in figures.ranks.items() if one.sum("loader.batches") > 4]
    assert [one.rank for one in found.ranks] == known


def test_the_evidence_is_told_rank_by_rank() -> None:
    found = judge(CASES["a slow store, the last of 8"][0])
    assert found.evidence[0] == "rank 7: a step takes 100 ms: store 80 ms, computing 5 ms, standing still 15 ms"
    assert found.evidence[1].startswith("the other 7 ranks, at the median: a step takes 100 ms: computing 5 ms")
    assert "sleeps 80 ms longer" in found.evidence[2]
    assert any("the loop waited 80%" in one for one in found.evidence), "what limits the rank itself"
    told = found.as_dict()["ranks"]
    assert [one["store"] for one in told] == [0.0] * 7 + [0.08]


def test_advice_fits_what_the_rank_is_slow_in_even_if_it_is_slower_in_what_all_are() -> None:
    ranks = [rank(own=60, store=40)] * 3
    found = judge(run(*ranks, rank(own=5, cpu=4, store=41, decode=60)))
    assert (found.bound, found.cause) == ("straggler", "decode")
    assert "map(threads" in " ".join(found.advice)
    assert not any("headrace load" in one for one in found.advice)


def test_of_an_older_record_nothing_is_said_of_sleep() -> None:
    assert "is not seen" in judge(CASES["an older record"][0]).evidence[2]
    for cpu, told in ((0, 0), (5, 1)):
        assert sum("sleeps" in one for one in judge(run(*[rank(cpu=cpu)] * 8)).evidence) == told


def test_the_machine_is_told_where_it_differs() -> None:
    calm, busy = {"system/cpu": 40.0, "system/memory_available": 4e9}, {"system/cpu": 97.0}
    ranks = [replace(rank(node=number), means=calm) for number in range(3)]
    slow = replace(rank(own=20, decode=80, node=3), means={**calm, **busy})
    told = judge(run(*ranks, slow)).evidence
    assert "on its machine CPUs busy 97%, elsewhere 40%" in told
    one = [replace(one, node=0) for one in (*ranks, slow)]
    assert not any("on its machine" in text for text in judge(run(*one)).evidence), "all are on one"


def test_of_one_rank_only_it_is_as_before() -> None:
    figures = CASES["a slow store, the last of 8"][0]
    assert judge(figures.ranks[7]).bound == "store-bound"
    assert judge(replace(figures, ranks={})).bound not in OF_RANKS


def test_the_record_is_read_rank_by_rank_and_machines_by_their_lowest_rank() -> None:
    def point(name: str, value: float, of: int) -> Point:
        return Point(5_000_000, name, value, None, of)

    points = table([
        *(point("headrace/loader.batches", 10.0 + of, of) for of in range(4)),
        point("system/cpu", 20.0, 0), point("system/cpu", 90.0, 2), point("headrace/process.cores", 2.0, 3),
        point("headrace/fetch.requests", 1.0, 9),
    ])  # fmt: skip
    found = figures_of(points)
    assert (found.sum("loader.batches"), found.mean("system/cpu")) == (46.0, 55.0)
    assert {of: (one.sum("loader.batches"), one.node, one.mean("system/cpu")) for of, one in found.ranks.items()} == {
        0: (10.0, 0, 20.0), 1: (11.0, 0, 20.0), 2: (12.0, 2, 90.0), 3: (13.0, 2, 90.0),
    }  # fmt: skip
    assert (found.ranks[3].mean("process.cores"), found.ranks[2].mean("process.cores")) == (2.0, None)
    assert not figures_of(points, rank=1).ranks


# the step clock


def stepped(monkeypatch: pytest.MonkeyPatch, steps: list[tuple[float, float]]) -> Steps:
    """Steps of so many seconds, of which the thread computed so many."""
    clock = [1.0]
    monkeypatch.setattr(time, "thread_time", lambda: clock[0])
    monkeypatch.setattr("headrace.loader.pipeline.step_clock._queued", lambda: 0.0)
    made, now = Steps(), 100.0
    for seconds, computed in [(0.01, 0.01), *steps]:
        now += seconds
        clock[0] += computed
        made.took(seconds, now)
    return made


@pytest.mark.parametrize(
    ("steps", "cpu", "uneven"),
    [
        pytest.param([(0.1, 0.1)] * 100, 10.0, 0.0, id="computing"),
        pytest.param([(0.1, 0.01)] * 100, 1.0, 0.0, id="a device"),
        pytest.param([(0.1, 0.1), (0.1, 0.01)] * 50, 5.5, 4.5, id="in turn"),
        pytest.param([(0.1, 0.01), (0.01, 0.01)] * 500, 10.0, 2.2, id="pauses"),
        pytest.param([(0.0001, 0.0001)] * 1000, 0.1, 0.0, id="short steps"),
    ],
)
def test_standing_still_unevenly_is_told_from_a_device_and_from_pauses(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[float, float]], cpu: float, uneven: float
) -> None:
    made = stepped(monkeypatch, steps)
    assert made.own_cpu_s == pytest.approx(cpu, rel=0.5 if steps[0][0] < 0.001 else 0.01)
    assert made.uneven_s == pytest.approx(uneven, rel=0.1, abs=0.2)
