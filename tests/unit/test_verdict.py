"""The verdict as a function of figures: every class and cause, at their borders, and with figures missing."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.base.causes import Action
from headrace.base.figures import LATENCIES, STAGE, Figures, Latency, latency_class
from headrace.base.metrics import Metrics
from headrace.base.verdict import CLASSES, judge, with_end
from headrace.loader.pipeline.step_clock import Clock, Steps
from headrace.tracking.figures import figures_of
from headrace.tracking.points import Point, table
from headrace.tracking.segments import Merger
from tests.metrics_kit import ran

MANY = {"loader.batches": 1000.0, "loader.epochs": 1.0, "loader.samples": 1e4, "loader.elapsed_s": 100.0}


def late(seconds: float, count: float = 1000.0) -> dict[str, float]:
    return {LATENCIES[latency_class(seconds)]: count, "fetch.waiting_s": seconds * count}


def loop(own: float = 50.0, store: float = 0.0, decode: float = 0.0, batch: float = 0.0, **more: float) -> Figures:
    """Seconds of 100; the others by name, `__` for a dot."""
    waits = {"loader.wait_store_s": store, "loader.wait_decode_s": decode, "loader.wait_batch_s": batch}
    given = {name.replace("__", "."): value for name, value in more.items()}
    return Figures(
        {**MANY, "loader.own_s": own, "loader.wait_s": store + decode + batch, **waits, **given}, seconds=100.0
    )


def of_store(size: float, *latencies: dict[str, float], **more: float) -> Figures:
    made = loop(store=50.0, fetch__requests=1000, fetch__bytes=1000 * size, **more)
    return Figures({**made.sums, **{name: value for one in latencies for name, value in one.items()}}, seconds=100.0)


def on(figures: Figures, **means: float) -> Figures:
    """On so many cores: `cores` of the machine, `may` be used, `used` by the job, `cpu` percent of the machine."""
    given = {f"system/cpu/{core}": 0.0 for core in range(int(means.get("cores", 0)))}
    names = {"may": "system/cpus", "used": "job/cpu", "cpu": "system/cpu"}
    for short, name in names.items():
        if short in means:
            given[name] = means[short] * (100 if short == "used" else 1)
    return Figures(figures.sums, given, figures.seconds)


def decoders(count: float, computing: float, queued: float, late: float, **more: float) -> Figures:
    """So many threads, always at work; shares of their time, and of the times that the lock was asked for."""
    busy = 100 * count
    return loop(
        own=10, decode=90, loader__decode_room_s=busy, loader__decode_busy_s=busy,
        loader__decode_cpu_s=computing * busy, loader__decode_queued_s=queued * busy,
        loader__lock_asked=100, loader__lock_late=100 * late, **more,
    )  # fmt: skip


DECODING = loop(decode=50.0, loader__decode_room_s=400.0, loader__decode_busy_s=390.0)


@pytest.mark.parametrize(
    ("figures", "bound", "cause"),
    [
        pytest.param(Figures(), "not enough data", "nothing", id="nothing"),
        pytest.param(loop(store=50, loader__batches=4), "not enough data", "few", id="three after the first"),
        pytest.param(loop(store=50, loader__batches=5), "store-bound", "latency", id="four after the first"),
        pytest.param(loop(own=96, store=4), "consumer-bound", "step", id="waits 4 %"),
        pytest.param(loop(own=94, store=6), "store-bound", "latency", id="waits 6 %"),
        pytest.param(loop(own=96, loader__stall_s=4, loader__stalls=1), "consumer-bound", "step", id="writes 4 %"),
        pytest.param(loop(own=96, loader__stall_s=6, loader__stalls=1), "write-bound", "checkpoints", id="writes 6 %"),
        pytest.param(loop(own=96, loader__long_s=60), "consumer-bound", "step", id="long steps that write nothing"),
        pytest.param(loop(own=60, store=40, loader__stall_s=39), "store-bound", "latency", id="waits more than writes"),
        pytest.param(loop(own=60, store=40, loader__stall_s=41), "write-bound", "checkpoints", id="writes more"),
        pytest.param(
            loop(own=80, store=20, loader__first_wait_s=19, loader__first_store_s=19), "consumer-bound", "step",
            id="the first batch is not the rest",
        ),
        pytest.param(
            loop(own=70, store=30, loader__epochs=9, loader__first_wait_s=29, loader__first_store_s=29), "store-bound",
            "latency", id="the first batches of many short epochs are",
        ),
        pytest.param(of_store(1000, late(0.002)), "request-bound", "small", id="small, near"),
        pytest.param(of_store(1000, late(0.15)), "store-bound", "latency", id="small, far"),
        pytest.param(
            of_store(1000, late(0.002, 15), late(0.05)), "request-bound", "small", id="near, most queue"
        ),
        pytest.param(
            of_store(1000, late(0.03, 15), late(0.15)), "request-bound", "small", id="not near, most queue"
        ),
        pytest.param(
            of_store(1000, late(0.03, 15), late(0.05)), "store-bound", "latency", id="small, far, some are quicker"
        ),
        pytest.param(
            of_store(1000, late(0.002, 5), late(0.15)), "store-bound", "latency", id="small, far, but for a few"
        ),
        pytest.param(of_store(200_000, late(0.002)), "store-bound", "latency", id="no longer small"),
        pytest.param(of_store(4e6, late(0.002), fetch__receiving_s=40), "store-bound", "bandwidth", id="large"),
        pytest.param(of_store(4e6, late(0.4)), "store-bound", "bandwidth", id="large, first byte not told"),
        pytest.param(
            of_store(1000, late(0.002), {LATENCIES[latency_class(1.0)]: 10}), "store-bound", "stragglers",
            id="stragglers",
        ),
        pytest.param(
            on(of_store(1000, late(0.002), {LATENCIES[latency_class(1.0)]: 10}), cores=2, may=2, used=0.5),
            "store-bound", "stragglers", id="stragglers beside an idle processor",
        ),
        pytest.param(
            on(of_store(1000, late(0.002), {LATENCIES[latency_class(1.0)]: 10}), cores=2, may=2, used=0.9),
            "request-bound", "small", id="small answers that a busy process looks at late",
        ),
        pytest.param(
            on(of_store(200_000, late(0.002), {LATENCIES[latency_class(1.0)]: 10}), cores=16, may=16, used=9),
            "store-bound", "stragglers", id="stragglers beside decoding",
        ),
        pytest.param(
            of_store(1000, late(0.012), {LATENCIES[latency_class(0.2)]: 170}), "request-bound", "small",
            id="every seventh answer late: a queue",
        ),
        pytest.param(
            of_store(1000, late(0.005), {LATENCIES[latency_class(0.08)]: 120, LATENCIES[latency_class(3.0)]: 30}),
            "store-bound", "stragglers", id="stragglers beside a queue",
        ),
        pytest.param(
            of_store(1000, late(0.002), {LATENCIES[latency_class(0.03)]: 300}), "request-bound", "small",
            id="some a bit later are none",
        ),
        pytest.param(of_store(1000, late(0.002), fetch__retries=60), "store-bound", "errors", id="6 % failed"),
        pytest.param(of_store(1000, late(0.002), fetch__retries=40), "request-bound", "small", id="4 % failed"),
        pytest.param(
            loop(store=50, cache__hit=1000, cache__bytes_read=1e6), "request-bound", "small", id="small, in the cache"
        ),
        pytest.param(
            loop(store=50, cache__hit=1000, cache__bytes_read=1e9), "store-bound", "cache", id="large, in the cache"
        ),
        pytest.param(on(DECODING, cores=16, may=2, used=1.9), "decode-bound", "cores", id="2 of 16 cores"),
        pytest.param(on(DECODING, cores=2, may=2, used=1.9), "decode-bound", "cpu", id="2 of 2 cores"),
        pytest.param(on(DECODING, cores=16, may=16, used=4), "decode-bound", "threads", id="4 threads, 16 cores"),
        pytest.param(on(DECODING, cores=16, may=16, used=1.05), "decode-bound", "gil", id="one core of 16"),
        pytest.param(on(DECODING, cores=4, may=4, used=2, cpu=97), "decode-bound", "neighbours", id="others"),
        pytest.param(DECODING, "decode-bound", "threads", id="cores not known"),
        pytest.param(loop(batch=50), "decode-bound", "batching", id="batching"),
    ],
)
def test_it_names_class_and_cause(figures: Figures, bound: str, cause: str) -> None:
    found = judge(figures)
    assert (found.bound, found.cause) == (bound, cause), found
    assert found.bound == "not enough data" or (found.evidence and found.advice), found
    assert str(found).startswith(found.statement)


def mounted(waited: float, size: float = 20_000, seconds: float = 0.15, **more: float) -> Figures:
    """Of a program that reads files of a mount for 100 s, without the loader."""
    counted = {"seconds": 100.0, "mount.waited_s": waited, "mount.opened": 1000.0, "fetch.requests": 1000.0,
               "fetch.bytes": 1000 * size, **late(seconds)}  # fmt: skip
    given = {name.replace("__", "."): value for name, value in more.items()}
    return Figures({f"mounts/{name}": value for name, value in {**counted, **given}.items()})


def gpu(figures: Figures, percent: float) -> Figures:
    return Figures(figures.sums, {**figures.means, "system/gpu/0/utilization": percent})


@pytest.mark.parametrize(
    ("figures", "bound", "cause"),
    [
        pytest.param(mounted(60), "store-bound", "latency", id="far"),
        pytest.param(mounted(60, 1000, 0.002), "request-bound", "small", id="small"),
        pytest.param(mounted(60, 4e6, 0.01, fetch__receiving_s=90), "store-bound", "bandwidth", id="large"),
        pytest.param(mounted(11), "store-bound", "latency", id="11 %"),
        pytest.param(mounted(9), "consumer-bound", "step", id="9 %"),
        pytest.param(on(mounted(10), cores=16, may=2, used=1.9), "decode-bound", "cpu", id="all cores"),
        pytest.param(on(mounted(20), cores=16, may=2, used=1.0), "store-bound", "latency", id="not all cores"),
        pytest.param(gpu(mounted(60), 95), "consumer-bound", "step", id="others wait for it, the GPU does not"),
        pytest.param(gpu(mounted(60), 40), "store-bound", "latency", id="the GPU waits too"),
        pytest.param(mounted(0, mount__opened=0, fetch__requests=0), "not enough data", "nothing", id="unread"),
    ],
)
def test_without_a_step_clock_the_mounts_tell(figures: Figures, bound: str, cause: str) -> None:
    found = judge(figures)
    assert (found.bound, found.cause) == (bound, cause), found
    both = judge(Figures({**figures.sums, **loop(own=50, decode=50).sums}))
    assert both.bound == "decode-bound", "a loop that tells of itself is believed"


@pytest.mark.parametrize(
    ("figures", "cause", "action", "value", "gain"),
    [
        pytest.param(
            on(decoders(2, 0.01, 0.01, 0.0), cores=16, may=16, used=0.1, cpu=1), "waits", "threads", 16, 8, id="asleep"
        ),
        pytest.param(
            on(decoders(2, 0.01, 0.01, 0.0), cores=2, may=2, used=0.1, cpu=100), "waits", "threads", 15, 7.5,
            id="asleep, and others compute",
        ),
        pytest.param(
            on(decoders(2, 0.25, 0.0, 0.1), cores=2, may=2, used=0.5, cpu=25), "waits", "threads", 8, 4,
            id="half asleep, until the cores are used",
        ),
        pytest.param(
            on(decoders(4, 0.1, 0.0, 0.4), cores=16, may=16, used=0.4, cpu=3), "waits", "threads", 10, 2.5,
            id="asleep, until the lock is what they wait for",
        ),
        pytest.param(
            on(decoders(2, 0.49, 0.0, 0.95), cores=2, may=2, used=1.0, cpu=50), "gil", "processes", 2, 2,
            id="the lock",
        ),
        pytest.param(
            on(decoders(8, 0.12, 0.0, 0.95), cores=4, may=4, used=1.0, cpu=25), "gil", "processes", 4, 4.2,
            id="the lock, as many as there are cores",
        ),
        pytest.param(
            on(decoders(2, 0.35, 0.25, 0.95), cores=2, may=2, used=0.7, cpu=100), "gil", "processes", 2, 1.9,
            id="the lock, and others compute",
        ),
        pytest.param(
            on(decoders(2, 0.5, 0.5, 0.0), cores=2, may=2, used=1.0, cpu=100), "neighbours", "alone", 0, 2,
            id="others compute",
        ),
        pytest.param(
            on(decoders(4, 0.49, 0.5, 0.0), cores=2, may=2, used=2.0, cpu=100), "cpu", "lighten", 0.5, 2,
            id="more threads than cores, alone",
        ),
        pytest.param(
            on(decoders(2, 0.99, 0.0, 0.0), cores=16, may=2, used=2.0, cpu=13), "cores", "cores", 16, 8, id="two of 16"
        ),
        pytest.param(
            on(decoders(1, 0.99, 0.0, 0.0), cores=4, may=4, used=1.0, cpu=25), "threads", "threads", 5, 4,
            id="one thread",
        ),
        pytest.param(
            on(decoders(1, 0.99, 0.0, 0.0, loader__decode_workers_s=100.0), cores=4, may=4, used=1.0, cpu=25),
            "threads", "processes", 5, 4, id="one worker process",
        ),
        pytest.param(
            on(decoders(8, 0.2, 0.7, 0.7), cores=2, may=2, used=1.9, cpu=97), "cpu", "lighten", 0.5, 2,
            id="who has the lock waits for a core",
        ),
    ],
)  # fmt: skip
def test_what_decoding_waits_for(figures: Figures, cause: str, action: str, value: float, gain: float) -> None:
    found = judge(figures)
    assert (found.bound, found.cause) == ("decode-bound", cause), found
    assert found.action == Action(action, value)
    assert found.gain == pytest.approx(gain, rel=0.1)


def test_the_slowest_stages_are_named() -> None:
    stages = {"map(decode)": 80.0, "map(augment)": 15.0, "filter(keep)": 5.0}
    told = {f"{STAGE}{name}/busy_s": seconds for name, seconds in stages.items()}
    figures = decoders(1, 0.99, 0.0, 0.0)
    found = judge(Figures({**figures.sums, **told}, figures.means, figures.seconds))
    assert "of decoding, map(decode) takes 80%, map(augment) takes 15%, filter(keep) takes 5%" in found.evidence


def test_stages_work_side_by_side_and_pauses_stop_all() -> None:
    assert judge(loop(own=50, store=50)).gain == pytest.approx(2), "then the loop's own time is the limit"
    busy = loop(own=10, store=90, loader__decode_busy_s=40.0, loader__decode_room_s=100.0)
    assert judge(busy).gain == pytest.approx(2.5), "then decoding is"
    hedged = of_store(1000, late(0.002), {LATENCIES[latency_class(1.0)]: 10}, fetch__hedges=5)
    assert judge(hedged).action == Action("hedge", 2)
    assert judge(hedged).gain == pytest.approx(100 / (50 + 50 * 0.2), rel=0.1)


def test_what_there_is_to_gain_follows_from_the_figures() -> None:
    assert judge(loop(own=50, store=50)).gain == pytest.approx(2)
    assert judge(loop(own=90, loader__stall_s=45, loader__stalls=3)).gain == pytest.approx(2)
    assert judge(on(DECODING, cores=16, may=2, used=2)).gain == pytest.approx(2), "16 for 2 cores: the loop is left"
    assert judge(on(DECODING, cores=3, may=2, used=2)).gain == pytest.approx(1.5), "3 for 2"
    assert judge(loop(own=0, store=100)).gain == pytest.approx(100), "bounded"
    assert "more than 10 times" in judge(loop(own=0, store=100)).gain_text
    packed = judge(of_store(1000, late(0.002), fetch__receiving_s=0.5)).gain
    assert packed == pytest.approx(2), "a fifth was receiving, which packing does not spare: less than the loop's own"
    assert judge(loop(own=96, store=4)).gain == 1


def test_any_figures_give_some_verdict() -> None:
    names = [*MANY, "loader.own_s", "loader.wait_s", "fetch.requests", "fetch.bytes", "cache.hit", "loader.stall_s",
             *(f"loader.{kind}_{one}_s" for kind in ("wait", "first") for one in ("store", "decode", "batch")),
             "loader.decode_room_s", "process.cpu_s", "fetch.receiving_s", *LATENCIES]  # fmt: skip
    rng = random.Random(1)
    for _ in range(2000):
        sums = {name: rng.choice((0.0, 1e-9, 1.0, 1e3, 1e12)) for name in rng.sample(names, rng.randrange(len(names)))}
        found = judge(Figures(sums, {"system/cpus": rng.choice((0.5, 2.0))}, rng.choice((0.0, 10.0))))
        assert found.bound in (*CLASSES, "not enough data")
        assert 1 <= found.gain <= 100


def test_latencies_are_known_to_a_factor_of_two() -> None:
    for seconds in (0.0, 0.0001, 0.001, 0.0165, 0.3, 40.0):
        told = Latency.of({LATENCIES[latency_class(seconds)]: 10})
        assert told.median / 2 <= max(seconds, 0.0000625) <= told.median * 2, seconds
    assert latency_class(1e6) == len(LATENCIES) - 1
    assert Latency.of({}).count == 0


# the step clock


def steps_of(tmp_path: Path, *, wrote: int, filled: float = 0.0) -> Steps:
    """Thirty steps of 10 ms, one of 0.5 s in which so many bytes were written, thirty more."""
    total = [0.0]
    steps, now = Steps(lambda: total[0]), 0.0
    for number in range(61):
        took = 0.5 if number == 30 else 0.01
        if number == 30:
            (tmp_path / "model").write_bytes(bytes(wrote))
            total[0] += filled
        now += took
        steps.took(took, now)
    return steps


def test_a_long_step_that_writes_is_a_stall(tmp_path: Path) -> None:
    wrote = steps_of(tmp_path, wrote=3 << 20)
    assert (wrote.stalls, wrote.stall_s) == (1, pytest.approx(0.49, rel=0.01))
    assert wrote.stall_bytes == pytest.approx(3 << 20, rel=0.1)
    assert wrote.own_s == pytest.approx(1.1)
    for quiet in (steps_of(tmp_path, wrote=1000), steps_of(tmp_path, wrote=3 << 20, filled=3 << 20)):
        assert (quiet.stalls, quiet.stall_s) == (0, 0), "neither a line of a log nor what the cache keeps"
        assert quiet.long_s == pytest.approx(0.49, rel=0.01)


def test_steps_that_become_longer_are_the_usual_ones_after_a_while() -> None:
    steps, now = Steps(), 0.0
    for took in (0.001,) * 50 + (0.05,) * 300:
        now += took
        steps.took(took, now)
    assert steps.long_s < 0.2 * 300 * 0.05


def test_epochs_that_are_over_still_count() -> None:
    clock = Clock()
    clock.begin(1, lambda: {"a": 2.0})
    clock.begin(2, lambda: {"a": 3.0, "b": 1.0})
    clock.end(1)
    clock.end(1)
    assert clock.told() == {"a": 5.0, "b": 1.0}


# from the record


def test_figures_are_summed_over_ranks_and_averaged_for_gauges() -> None:
    def point(at: float, name: str, value: float, rank: int = 0) -> Point:
        return Point(int(at * 1e6), name, value, None, rank)

    points = table([
        point(5, "headrace/loader.own_s", 1.0), point(10, "headrace/loader.own_s", 2.0),
        point(10, "headrace/loader.own_s", 4.0, 1), point(10, "headrace/process.seconds", 5.0),
        point(5, "system/load", 2.0), point(10, "system/load", 4.0), point(10, "system/cpus", 4.0),
        point(5, "system/cpus", 2.0), point(10, "headrace/fetch.concurrency", 16.0),
        point(10, "job/cpu", float("nan")),
    ])  # fmt: skip
    found = figures_of(points)
    assert (found.sum("loader.own_s"), found.seconds) == (7.0, 5.0)
    assert (found.mean("system/load"), found.mean("fetch.concurrency"), found.mean("job/cpu")) == (3.0, 16.0, None)
    assert found.mean("system/cpus") == 2.0, "what it was most of the time: the last is the runner's own"
    assert figures_of(points, last_s=5).sum("loader.own_s") == 6.0
    assert figures_of(points, rank=1).sum("loader.own_s") == 4.0
    assert figures_of(table([])) == Figures()


WORK = """
import os, sys, threading
import headrace as hr
from headrace.base import reporting
from headrace.base.metrics import Metrics
metrics = Metrics()
metrics.add("fetch.requests", 3)
reporting.offer(metrics, Metrics.snapshot)
if "HEADRACE_SPOOL" in os.environ:
    from headrace.tracking import reporter
    reporter._reporter.write()
metrics.add("fetch.requests", 4)
if sys.argv[1:]:
    child = os.fork()
    if not child:
        own = Metrics()
        own.add("fetch.requests", 10)
        reporting.offer(own, Metrics.snapshot)
        alive = "headrace-report" in [thread.name for thread in threading.enumerate()]
        from headrace.tracking import log, reporter
        reporter._reporter.close()
        log.flush()
        os._exit(not alive)
    assert os.waitpid(child, 0)[1] == 0, "a fork has a thread of its own"
"""


@pytest.mark.parametrize(("arguments", "requests"), [((), 7), (("fork",), 17)])
def test_what_is_offered_is_written_into_the_run(tmp_path: Path, arguments: tuple[str, ...], requests: int) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    ran(WORK, *arguments, HEADRACE_SPOOL=str(spool))
    found = spooled(spool, tmp_path / "metrics")
    assert found.sum("fetch.requests") == requests
    assert found.sum("process.seconds") > 0


def test_outside_of_a_run_nothing_is_read() -> None:
    ran(WORK + "import threading; assert threading.active_count() == 1, threading.enumerate()")


def spooled(spool: Path, segments: Path) -> Figures:
    Merger(str(spool), str(segments)).collect(table([]))
    return figures_of(pa.concat_tables([pq.ParquetFile(path).read() for path in segments.glob("*.parquet")]))


def test_who_offers_is_not_kept() -> None:
    from headrace.base.reporting import Registry

    registry, metrics = Registry(), Metrics()
    metrics.add("x")
    registry.add(metrics, Metrics.snapshot)
    assert [told for _, told in registry.told()] == [{"x": 1.0}]
    del metrics
    assert registry.told() == []


OF_OTHERS = {"mounts/seconds": 60.0, "mounts/fetch.requests": 0.0}
OF_ITS_OWN = {"mounts/seconds": 60.0, "mounts/mount.opened": 400.0, "mounts/mount.waited_s": 30.0}


@pytest.mark.parametrize(
    ("sums", "failed"),
    [
        ({}, True),
        (OF_OTHERS, True),
        ({"fetch.requests": 3.0, "loader.epochs": 1.0}, True),
        ({**OF_OTHERS, "fetch.requests": 3.0}, True),
        (OF_ITS_OWN, False),
        (MANY, False),
        ({"loader.batches": 1.0}, False),
    ],
)
def test_a_run_that_did_not_finish_is_judged_only_by_what_it_had_after_its_start(
    sums: dict[str, float], failed: bool
) -> None:
    figures = Figures(sums, seconds=60.0)
    verdict = with_end(judge(figures), figures, "ended by KeyError")
    assert (verdict.bound == "failed") == failed
    if failed:
        assert "first batch: ended by KeyError" in verdict.statement
    else:
        assert verdict.evidence[0] == "the run did not finish: ended by KeyError"
