"""Rows of the page's benchmark that have peers: many runs, a long run, runs compared, a load that all can take."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

from web_bench import Bench, cpu_ms, heap, json_of, pss, wait_until
from web_peers import (
    MLFLOW_CURVE,
    MLFLOW_ROW,
    TENSORBOARD_CURVE,
    TRACKIO_CURVE,
    Size,
    events,
    have,
    mlflow,
    mlflow_charts,
    mlflow_metric,
    mlflow_runs,
    tensorboard,
    trackio,
)
from web_records import put_points, put_run, put_runs

RUN_ROW = "table tbody tr a"
CURVE = "svg.chart polyline"
MOST = 20
"""Runs that headrace compares at once."""


def home(bench: Bench) -> None:
    """To the first row. Cold: the first look at a server that has just started, ours with an empty cache. Ours and
    MLflow's in turns: cold ones each alone, as ours reads the other runs behind its first page.
    """
    size = Size(bench.options.runs, 1, 1)
    put_runs(bench.store, size.runs)
    peer = have("mlflow")
    cold: list[float] = []
    peers: list[float] = []
    for turn in range(bench.options.cold_turns):
        with bench.web(f"cold-{turn}") as (url, token, _):
            cold.append(bench.seconds(f"{url}/runs?token={token}", RUN_ROW))
        if peer:
            with mlflow(bench, size) as url:
                peers.append(bench.seconds(mlflow_runs(url), MLFLOW_ROW))
    told = f"asked: < 2 s{beside('MLflow', cold, peers)}"
    bench.row(f"home of {size.runs:,} runs, first paint, cold", median(cold), "s", told)
    with bench.web("cold-0") as (url, token, process):
        wait_until("every run to be known", lambda: json_of(url, token, "/api/v1/runs")["known"] >= size.runs)
        address = f"{url}/runs?token={token}"
        if peer:
            with mlflow(bench, size) as theirs:
                bench.seconds(mlflow_runs(theirs), MLFLOW_ROW)
                warm, peers = in_turns(
                    bench,
                    lambda: bench.seconds(address, RUN_ROW),
                    lambda: bench.seconds(mlflow_runs(theirs), MLFLOW_ROW),
                )
        else:
            warm, peers = [bench.seconds(address, RUN_ROW, turns=bench.options.turns)], []
        told = f"asked: ≤ 0.25 of MLflow{beside('MLflow', warm, peers)}"
        bench.row(f"home of {size.runs:,} runs, first paint, warm", median(warm), "s", told)
        bench.row("memory of the server after it (PSS)", pss(process), "MB")


def in_turns(bench: Bench, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Now one, now the other."""
    found = [(ours(), theirs()) for _ in range(bench.options.turns)]
    return [a for a, _ in found], [b for _, b in found]


def beside(name: str, ours: list[float], theirs: list[float]) -> str:
    """How a peer's median compares; empty without a peer."""
    if not theirs:
        return ""
    return f"; {name} {median(theirs):.2f} s: {median(ours) / median(theirs):.3f} of it"


def run(bench: Bench) -> None:
    """TensorBoard's cold: from its start; it reads everything anew then, and keeps a sample."""
    points = bench.options.points
    size = Size(1, 1, points)
    put_run(bench.store, "long")
    put_points(bench.store, "long", points, 1, bench.scratch)
    peer = have("tensorboard")
    if peer:
        events(size)
    with bench.web("run") as (url, token, process):
        address = f"{url}/runs/long?token={token}"
        cold = [bench.seconds(address, CURVE)]
        warm, theirs, theirs_cold = [bench.seconds(address, CURVE, turns=bench.options.turns)], [], []
        if peer:
            began = time.perf_counter()
            with tensorboard(bench, size) as other:
                bench.seconds(f"{other}/#timeseries", TENSORBOARD_CURVE)
                theirs_cold = [time.perf_counter() - began]
                warm, theirs = in_turns(
                    bench,
                    lambda: bench.seconds(address, CURVE),
                    lambda: bench.seconds(f"{other}/#timeseries", TENSORBOARD_CURVE),
                )
        told = f"asked: ≤ 0.25 of TensorBoard{beside('TensorBoard', cold, theirs_cold)}"
        bench.row(f"run with a metric of {points:,} points, cold", cold[0], "s", told)
        bench.row("the same, warm", median(warm), "s", beside("TensorBoard", warm, theirs).lstrip("; "))
        zoomed = "/api/v1/runs/long/metrics?since={}&until={}"
        spent = cpu_ms(process, 20, lambda one: json_of(url, token, zoomed.format(one * points // 40, points - one)))
        bench.row("CPU of the server for a zoomed curve", spent, "ms", "asked: < 50")
        bench.row("memory of the server after it (PSS)", pss(process), "MB", "asked: < 120")


def compare(bench: Bench) -> None:
    """All points of ours; then ours and each peer at the size that the peer can take."""
    _compared(bench, bench.options.compared, "all", None)
    if have("tensorboard"):
        _compared(bench, bench.options.compared_tensorboard, "tb", "TensorBoard")
    if have("mlflow"):
        _compared(bench, bench.options.compared_mlflow, "ml", "MLflow")


def _compared(bench: Bench, points: int, prefix: str, peer: str | None) -> None:
    size = Size(MOST, 1, points // MOST)
    names = [f"{prefix}-{at:02}" for at in range(MOST)]
    for at, name in enumerate(names):
        put_run(bench.store, name)
        put_points(bench.store, name, size.points, at, bench.scratch)
    if peer == "TensorBoard":
        events(size)
    query = compared(names)
    curve = "svg.chart polyline.c0"
    with bench.web(f"compare-{prefix}") as (url, token, process):
        address = f"{url}/compare?{query}&token={token}"
        cold = [bench.seconds(address, curve)]
        theirs_cold: list[float] = []
        theirs: list[float] = []
        if peer is None:
            warm = [bench.seconds(address, curve, turns=bench.options.turns)]
        else:
            began = time.perf_counter()
            with _shown_by(bench, peer, size) as (where, sign):
                bench.seconds(where, sign)
                if peer == "TensorBoard":  # which reads everything anew at its start
                    theirs_cold = [time.perf_counter() - began]
                warm, theirs = in_turns(
                    bench, lambda: bench.seconds(address, curve), lambda: bench.seconds(where, sign)
                )
        told = "" if peer == "MLflow" else "asked: ≤ 0.25 of TensorBoard"
        name = f"{MOST} runs compared, {size.points * MOST:,} points"
        bench.row(f"{name}, cold", cold[0], "s", f"{told}{beside('TensorBoard', cold, theirs_cold)}")
        bench.row("the same, warm", median(warm), "s", f"{told}{beside(peer or '', warm, theirs)}".lstrip("; "))
        if peer is None:
            spent = cpu_ms(process, 10, lambda _: json_of(url, token, f"/api/v1/compare?{query}"))
            bench.row("CPU of the server for it", spent, "ms", "asked: < 50")
            bench.row("memory of the server after it (PSS)", pss(process), "MB", "asked: < 120")


@contextmanager
def _shown_by(bench: Bench, peer: str, size: Size) -> Iterator[tuple[str, str]]:
    """Where a peer shows one metric of all runs, and the first sign of it."""
    if peer == "TensorBoard":
        with tensorboard(bench, size) as url:
            yield f"{url}/#timeseries", TENSORBOARD_CURVE
    else:
        with mlflow(bench, size) as url:
            yield mlflow_metric(url, size.runs), MLFLOW_CURVE


def compared(names: list[str]) -> str:
    return urllib.parse.urlencode({"run": ",".join(names)})


def shared(bench: Bench) -> None:
    """What every tracker can take: to the first curve, and the heap of the page when it has gone quiet. Each shows as
    many of the runs as it does unasked: headrace the 20 that are asked for, MLflow its newest 10, the others all.
    """
    size = Size(*bench.options.shared)
    metrics = ["loss", *(f"metric-{at}" for at in range(1, size.metrics))]
    names = [f"shared-{at:02}" for at in range(size.runs)]
    for at, name in enumerate(names):
        put_run(bench.store, name)
        put_points(bench.store, name, size.points, at, bench.scratch, metrics)
    some = min(MOST, size.runs)
    with bench.web("shared") as (url, token, _):
        told = f"{some} of the runs compared"
        _looked_at(bench, "headrace", f"{url}/compare?{compared(names[:some])}&token={token}", CURVE, told)
    if have("tensorboard"):
        with tensorboard(bench, size) as url:
            _looked_at(bench, "TensorBoard", f"{url}/#timeseries", TENSORBOARD_CURVE, "all runs")
    if have("mlflow"):
        with mlflow(bench, size) as url:
            _looked_at(bench, "MLflow", mlflow_charts(url), MLFLOW_CURVE, "charts of its newest 10 runs")
    if have("trackio"):
        with trackio(bench, size) as url:
            _looked_at(
                bench, "trackio", url, TRACKIO_CURVE, "all runs; to its first chart, smoothed as it does unasked"
            )
    print(f"shared load: {size}", flush=True)


def _looked_at(bench: Bench, name: str, url: str, sign: str, told: str) -> None:
    """A peer that shows nothing in time is a row, not the end of the benchmark."""
    try:
        cold = bench.seconds(url, sign)
        warm = bench.seconds(url, sign, turns=bench.options.turns)
        with bench.looking() as page:
            page.goto(url, timeout=bench.options.limit * 1000)
            bench.wait_for(page, sign)
            page.wait_for_timeout(5000)
            used = heap(page)
    except TimeoutError as error:
        print(error, flush=True)
        bench.row(f"{name}: shared load", bench.options.limit, "s", f"{told}; nothing was shown by then")
        return
    bench.row(f"{name}: shared load, first curve", warm, "s", f"{told}; first look {cold:.2f} s")
    bench.row(f"{name}: shared load, heap of the page", used / 1e6, "MB")
