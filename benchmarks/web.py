"""The page over the bucket, looked at in a real browser: ``python benchmarks/web.py``

- *home*: a home of many runs: from the click to the first row in Debian's Chromium, with an empty cache and again;
  MLflow with as many runs in SQLite, its list of the same experiment.
- *run*: a run with one metric of very many points: to its curve; TensorBoard over an event file with the same points,
  from its start (it reads everything anew then, and keeps a sample) and once it has read it.
- *compare*: twenty runs one over the other.
- *log*: a log of very many lines: to a line near its end; then frames while one is followed that grows by 1,000 lines
  a second.
- *viewers*: requests to the store and memory of the server, with one viewer of a run and with fifty.
- *weight*: bytes of the first load of a run's page; CPU of the server for an answer.

Peers are in .tools/trackers (``scripts/framework-tools trackers``). Results go to ``benchmarks/results/web.{md,json}``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from playwright.sync_api import Browser, Page, sync_playwright

from headrace.store import Store, open_store
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.event_writer import EventWriter
from headrace.tracking.points import Point, columns
from headrace.tracking.record import Lease, RunRecord, Status
from headrace.tracking.rollups import write_rollup
from headrace.tracking.summary import Summary
from report import machine

RESULTS = Path(__file__).parent / "results"
TRACKERS = Path(__file__).resolve().parent.parent / ".tools" / "trackers" / "bin"
HOME = "home"
PIECE = 1_000_000


@dataclass
class Row:
    """`value` in `unit`; `told`: what it is measured against, and how far from there."""

    name: str
    value: float
    unit: str
    told: str = ""


@dataclass
class Bench:
    store: Store
    server: EmbeddedS3
    scratch: Path
    browser: Browser
    options: argparse.Namespace
    rows: list[Row] = field(default_factory=list)

    def row(self, name: str, value: float, unit: str, told: str = "") -> None:
        self.rows.append(Row(name, value, unit, told))
        print(f"{name:60} {value:10.3f} {unit} {told}", flush=True)

    @contextmanager
    def web(self, cache: str) -> Iterator[tuple[str, str, psutil.Process]]:
        """URL, token and process of a page over the home, with a cache folder of its own."""
        environ = {
            **os.environ, **self.server.variables(), "HEADRACE_HOME": f"{self.store.url}/{HOME}",
            "HEADRACE_CACHE_DIR": str(self.scratch / cache), "HEADRACE_CACHE_SIZE": "4GB",
        }  # fmt: skip
        command = [sys.executable, "-m", "headrace.cli", "web", "--json"]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            try:
                yield told["id"], told["url"].rpartition("token=")[2], psutil.Process(process.pid)
            finally:
                process.terminate()

    def seconds(self, url: str, wanted: str, *, turns: int = 1, before: Callable[[Page], None] | None = None) -> float:
        """Median, from going there to the element that is `wanted`."""
        found: list[float] = []
        for _ in range(turns):
            context = self.browser.new_context()
            page = context.new_page()
            if before is not None:
                before(page)
            began = time.perf_counter()
            page.goto(url, wait_until="commit", timeout=600_000)
            page.wait_for_selector(wanted, timeout=600_000, state="attached")
            found.append(time.perf_counter() - began)
            context.close()
        return median(found)


# what is looked at


def record(name: str, at: datetime) -> RunRecord:
    command = ("python", "train.py", "--lr", "0.1")
    return RunRecord(name, "bench", f"{at:%Y-%m-%dT%H:%M:%S.000Z}", command, "/work", "node-1", "ann", "0")


def put_run(store: Store, one: RunRecord, seconds: float = 600) -> None:
    ended = (datetime.fromisoformat(one.created) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    prefix = f"{HOME}/runs/{one.id}/"
    last = Status(2, "finished", ended, 1, 0)
    store.put(f"{prefix}run.json", one.as_json())
    store.put(f"{prefix}status/{last.name}", last.as_json())
    store.put(f"{prefix}lease.json", Lease(2, "finished", ended, 1, "node-1", 1, last=asdict(last)).as_json())
    loss = {"loss": {"last": random.random(), "min": 0.1, "max": 2.0, "step": 1000, "points": 1000}}
    told = Summary(ended, 5, "store-bound", "latency", "The loop waits for the store.", 1.4, 0.3, loss)
    store.put(f"{prefix}summary.json", told.as_json())


def put_points(store: Store, run: str, count: int, seed: int, scratch: Path) -> None:
    """One metric, in rollups of a million."""
    rng = np.random.default_rng(seed)
    first = 1_700_000_000_000_000
    for number, at in enumerate(range(0, count, PIECE)):
        size = min(PIECE, count - at)
        steps = np.arange(at, at + size)
        values = 2 / (1 + steps / 50_000) + rng.normal(0, 0.05, size)
        table = columns(first + steps * 10_000, ["loss"] * size, values, steps.tolist(), np.zeros(size, np.int32))
        folder = scratch / "rollup"
        write_rollup(str(folder), number, number, table)
        for path in folder.iterdir():
            store.put(f"{HOME}/runs/{run}/metrics/rollup/{path.name}", path.read_bytes())
            path.unlink()


def put_log(store: Store, run: str, lines: int) -> None:
    """Segments of 100,000 lines."""
    each = 100_000
    for number, at in enumerate(range(0, lines, each)):
        entries = [json.dumps({"format": 1, "stream": "stdout", "line": at})]
        for part in range(at, min(at + each, lines), 1000):
            some = range(part, part + 1000)
            text = "".join(f"step {line}: loss {1 / (1 + line):.6f}, 512 samples a second\n" for line in some)
            entries.append(json.dumps({"t": 1_700_000_000_000_000 + part, "text": text}))
        data = pa.BufferOutputStream()
        with pa.CompressedOutputStream(data, "zstd") as out:
            out.write("\n".join(entries).encode() + b"\n")
        store.put(f"{HOME}/runs/{run}/logs/stdout/{number:08d}.zst", data.getvalue().to_pybytes())


# the rows


def home(bench: Bench) -> None:
    count = bench.options.runs
    now = datetime.now(UTC)
    records = [
        record(f"{now - timedelta(minutes=at):%Y%m%d-%H%M%S}-bench-{at % 65536:04x}", now - timedelta(minutes=at))
        for at in range(count)
    ]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: put_run(bench.store, one), records))
    first = "table tbody tr a"
    with bench.web("cold") as (url, token, process):
        cold = bench.seconds(f"{url}/runs?token={token}", first)
        bench.row(f"home of {count:,} runs, first paint, empty cache", cold, "s", "asked: < 2 s")
        wait_until(lambda: json_of(url, token, "/api/v1/runs")["known"] >= count)
    with bench.web("cold") as (url, token, process):
        warm = bench.seconds(f"{url}/runs?token={token}", first, turns=bench.options.turns)
        peer = mlflow_home(bench, count)
        told = f"MLflow {peer:.2f} s: {warm / peer:.2f} of it (asked: ≤ 0.25)" if peer else "MLflow is not installed"
        bench.row(f"home of {count:,} runs, first paint, warm", warm, "s", told)
        bench.row("memory of the server after it (PSS)", process.memory_full_info().pss / 1e6, "MB")


def mlflow_home(bench: Bench, count: int) -> float | None:
    """First row of MLflow's list, with as many runs: made by its own server, copied by SQL."""
    if not (TRACKERS / "mlflow").exists():
        return None
    database = bench.scratch / "mlflow.sqlite"
    command = [str(TRACKERS / "mlflow"), "server", "--workers", "1", "--backend-store-uri", f"sqlite:///{database}"]
    command.append("--port")
    with peer(bench, command, "/health") as url:
        post(f"{url}/api/2.0/mlflow/runs/create", {"experiment_id": "0", "run_name": "bench", "start_time": 1})
    with sqlite3.connect(database) as base:
        cursor = base.execute("SELECT * FROM runs")
        names = [one[0] for one in cursor.description]
        first = dict(zip(names, cursor.fetchone(), strict=True))
        for at in range(count - 1):
            copy = {**first, "run_uuid": f"{at:032x}", "name": f"bench-{at}", "start_time": 1_700_000_000_000 + at}
            places = ", ".join("?" * len(copy))
            base.execute(f"INSERT INTO runs ({', '.join(copy)}) VALUES ({places})", list(copy.values()))
            put = "INSERT INTO latest_metrics (key, value, run_uuid, timestamp, step, is_nan) VALUES (?, ?, ?, 1, 1, 0)"
            base.execute(put, ("loss", random.random(), copy["run_uuid"]))
    with peer(bench, command, "/health") as url:
        return bench.seconds(f"{url}/#/experiments/0/runs", "a[href*='/runs/']", turns=bench.options.turns)


def run(bench: Bench) -> None:
    points = bench.options.points
    put_run(bench.store, record("long", datetime.now(UTC)))
    put_points(bench.store, "long", points, 1, bench.scratch)
    curve = "svg.chart polyline"
    with bench.web("run") as (url, token, process):
        cold = bench.seconds(f"{url}/runs/long?token={token}", curve)
        peer = tensorboard(bench, points)
        told = f"TensorBoard {peer[0]:.2f} s: {cold / peer[0]:.3f} of it (asked: ≤ 0.25)" if peer else ""
        bench.row(f"run with a metric of {points:,} points, empty cache", cold, "s", told)
        warm = bench.seconds(f"{url}/runs/long?token={token}", curve, turns=bench.options.turns)
        told = f"TensorBoard {peer[1]:.2f} s: {warm / peer[1]:.2f} of it" if peer else ""
        bench.row("the same, warm", warm, "s", told)
        before = sum(process.cpu_times()[:2])
        for at in (one * points // 40 for one in range(20)):
            json_of(url, token, f"/api/v1/runs/long/metrics?since={at}&until={points - at}")
        spent = (sum(process.cpu_times()[:2]) - before) / 20 * 1e3
        bench.row("CPU of the server for a zoomed curve", spent, "ms", "asked: < 50")
        bench.row("memory of the server after it (PSS)", process.memory_full_info().pss / 1e6, "MB", "asked: < 120")


def tensorboard(bench: Bench, points: int) -> tuple[float, float] | None:
    """From its start to its chart, and again."""
    if not (TRACKERS / "tensorboard").exists():
        return None
    folder = bench.scratch / "events" / "long"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    writer = EventWriter(str(folder / "events.out.tfevents.1.bench"))
    for at in range(0, points, 200_000):
        steps = range(at, min(at + 200_000, points))
        values = (2 / (1 + np.arange(at, at + len(steps)) / 50_000) + rng.normal(0, 0.05, len(steps))).tolist()
        first = 1_700_000_000_000_000
        writer.add([Point(first + step * 10_000, "loss", one, step) for step, one in zip(steps, values, strict=True)])
    began = time.perf_counter()
    command = [str(TRACKERS / "tensorboard"), "--logdir", str(folder.parent), "--host", "127.0.0.1", "--port"]
    with peer(bench, command, "/") as url:
        def whole() -> bool:
            told = json.loads(get(f"{url}/data/plugin/scalars/scalars?tag=loss&run=long"))
            return told[-1][1] >= points - 1
        wait_until(whole, 900)
        line = "tb-card-view svg, card-view path, scalar-card .series-view, tb-line-chart, line-chart"
        shown = bench.seconds(f"{url}/#timeseries", line)
        cold = time.perf_counter() - began
        return cold, bench.seconds(f"{url}/#timeseries", line, turns=bench.options.turns) if shown else 0.0


def compare(bench: Bench) -> None:
    each = bench.options.compared // 20
    names = [f"one-{at:02}" for at in range(20)]
    for at, name in enumerate(names):
        put_run(bench.store, record(name, datetime.now(UTC)))
        put_points(bench.store, name, each, at, bench.scratch)
    query = "&".join(f"run={name}" for name in names)
    with bench.web("compare") as (url, token, process):
        cold = bench.seconds(f"{url}/compare?{query}&token={token}", "svg.chart polyline.c0")
        bench.row(f"20 runs compared, {each * 20:,} points, empty cache", cold, "s", "no peer was asked")
        warm = bench.seconds(f"{url}/compare?{query}&token={token}", "svg.chart polyline.c0", turns=bench.options.turns)
        bench.row("the same, warm", warm, "s")
        before = sum(process.cpu_times()[:2])
        for _ in range(10):
            json_of(url, token, f"/api/v1/compare?{query}")
        bench.row("CPU of the server for it", (sum(process.cpu_times()[:2]) - before) / 10 * 1e3, "ms", "asked: < 50")
        bench.row("memory of the server after it (PSS)", process.memory_full_info().pss / 1e6, "MB", "asked: < 120")


def log(bench: Bench) -> None:
    lines = bench.options.lines
    put_run(bench.store, record("talks", datetime.now(UTC)))
    put_log(bench.store, "talks", lines)
    with bench.web("log") as (url, token, _):
        bench.seconds(f"{url}/runs/talks/log?token={token}", "#lines li")
        times: list[float] = []
        for at in range(bench.options.turns):
            line = lines * 9 // 10 + at * 1013
            path = f"/runs/talks/log?stream=stdout&start={line - 5}&token={token}#L{line}"
            times.append(bench.seconds(url + path, f"#L{line}"))
        bench.row(f"log of {lines:,} lines: to a line near its end", median(times) * 1e3, "ms", "asked: < 300")
    followed(bench)


def followed(bench: Bench) -> None:
    """A run that writes 1,000 lines a second, looked at: the longest frame, and the heap."""
    seconds = bench.options.followed
    code = (
        "import time\nbegan = time.monotonic()\n"
        f"for at in range({seconds + 20}):\n"
        "    print('\\n'.join(f'{time.time():.3f} step {at * 1000 + n}' for n in range(1000)), flush=True)\n"
        "    time.sleep(max(0, began + at + 1 - time.monotonic()))\n"
    )
    environ = {
        **os.environ, **bench.server.variables(), "HEADRACE_HOME": f"{bench.store.url}/{HOME}",
        "HEADRACE_RUN_STATE": str(bench.scratch / "state"), "HEADRACE_CACHE_SIZE": "0",
    }  # fmt: skip
    (bench.scratch / "work").mkdir()
    job = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "run", "-q", "--id", "live", "--", sys.executable, "-c", code],
        env=environ, cwd=bench.scratch / "work", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    with bench.web("live") as (url, token, _):
        wait_until(lambda: json_of(url, token, "/api/v1/runs/live/log").get("total", 0) > 0)
        context = bench.browser.new_context()
        page = context.new_page()
        page.goto(f"{url}/runs/live/log?token={token}")
        page.evaluate("""() => {
            let before = performance.now(); window.frames_ = [];
            const look = (now) => { window.frames_.push(now - before); before = now; requestAnimationFrame(look); };
            requestAnimationFrame(look);
        }""")
        time.sleep(seconds)
        frames = page.evaluate("window.frames_.slice(2)")
        behind = json_of(url, token, "/api/v1/runs/live/log")["total"] - int(page.evaluate(
            "document.querySelector('#lines li:last-child').dataset.number"
        ))  # fmt: skip
        heap = context.new_cdp_session(page).send("Runtime.getHeapUsage")["usedSize"]
        told = "asked: ≤ 50, on an idle core"
        bench.row(f"followed for {seconds} s at 1,000 lines/s: longest frame", max(frames), "ms", told)
        bench.row("frames over 50 ms", 100 * sum(one > 50 for one in frames) / len(frames), "%")
        bench.row("lines that it is behind at the end", behind, "lines")
        bench.row("heap of the page", heap / 1e6, "MB", "asked: < 40")
        context.close()
    job.terminate()
    job.wait(60)


def viewers(bench: Bench) -> None:
    name = "seen"
    put_run(bench.store, record(name, datetime.now(UTC)))
    put_points(bench.store, name, 500_000, 3, bench.scratch)
    put_log(bench.store, name, 100_000)
    with bench.web("viewers") as (url, token, process):
        paths = [f"/runs/{name}", f"/runs/{name}/metrics", f"/api/v1/runs/{name}/log"]
        get(f"{url}{paths[0]}", token)
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(random.uniform(0.8, 1.2)):
                for path in paths:
                    with suppress(OSError):
                        get(f"{url}{path}", token)

        crew = [threading.Thread(target=look) for _ in range(50)]
        for one in crew:
            one.start()
        time.sleep(20)
        memory = process.memory_full_info().pss / 1e6
        ended.set()
        for one in crew:
            one.join()
        bench.row("memory of the server with 50 viewers of a run (PSS)", memory, "MB", "asked: < 120")
        context = bench.browser.new_context()
        page = context.new_page()
        client = context.new_cdp_session(page)
        client.send("Network.enable")
        sizes: list[float] = []
        client.on("Network.loadingFinished", lambda one: sizes.append(one["encodedDataLength"]))
        page.goto(f"{url}/runs/{name}?token={token}", wait_until="networkidle")
        light = sum(sizes)
        page.locator(".plot").first.hover()
        page.wait_for_selector(".uplot")
        page.wait_for_load_state("networkidle")
        bench.row("first load of a run's page", light / 1e3, "kB")
        bench.row("the same, with its chart looked at closer", sum(sizes) / 1e3, "kB", "asked: ≤ 120")
        context.close()


# helpers


@contextmanager
def peer(bench: Bench, command: list[str], ready: str) -> Iterator[str]:
    """A server of somebody else's on a free port, and its end."""
    from headrace.base.ports import reserve_port

    port = reserve_port("127.0.0.1")
    environ = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1"}
    with open(bench.scratch / "peer.log", "wb") as said:
        process = subprocess.Popen(
            [*command, str(port)], stdout=said, stderr=said, env=environ, cwd=bench.scratch, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: get(f"{url}{ready}") is not None, 120)
        yield url
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


def get(url: str, token: str = "") -> bytes:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def post(url: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def json_of(url: str, token: str, path: str) -> dict[str, Any]:
    try:
        return json.loads(get(url + path, token))
    except urllib.error.HTTPError:
        return {}


def wait_until(true: Callable[[], bool], seconds: float = 600) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(OSError, KeyError, IndexError, json.JSONDecodeError):
            if true():
                return
        time.sleep(0.1)
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=10_000_000)
    parser.add_argument("--compared", type=int, default=100_000_000)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--followed", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="home, run, compare, log or viewers")
    options = parser.parse_args()
    rows = {"home": home, "run": run, "compare": compare, "log": log, "viewers": viewers}
    path = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch,
        EmbeddedS3() as server,
        sync_playwright() as playwright,
    ):
        server.create_bucket("bench")
        os.environ.update(server.variables())
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        bench = Bench(open_store("s3://bench"), server, Path(scratch), browser, options)
        for name, work in rows.items():
            if options.only in ("", name):
                work(bench)
        browser.close()
    here = machine()
    told = f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}"
    lines = [f"{told}; client, server and store share them.", "", "| work | value | |", "|---|---|---|"]
    lines += [f"| {one.name} | {one.value:,.3g} {one.unit} | {one.told} |" for one in bench.rows]
    name = f"web-{options.only}" if options.only else "web"
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")
    found = {"machine": here, "rows": [asdict(one) for one in bench.rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
