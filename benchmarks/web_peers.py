"""MLflow, TensorBoard and trackio over the same runs: data, servers, where they show what, and the first sign of it.

Programs are in .tools/trackers and .tools/trackio (``scripts/framework-tools trackers``, ``… trackio``). What takes
long to make is made once, below ``benchmarks/data/web``. What a program has no other way to be given is said at it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from headrace.base.ports import reserve_port
from web_bench import DATA, Bench, get, wait_until
from web_records import write_events

TOOLS = Path(__file__).resolve().parent.parent / ".tools"
FILL = Path(__file__).with_name("web_fill.py")
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
"""Nothing is sent anywhere; MLflow's four processes for jobs, which no page of these needs, stay away."""


@dataclass(frozen=True)
class Size:
    """So many runs, each with so many metrics of so many points."""

    runs: int
    metrics: int
    points: int

    @property
    def name(self) -> str:
        return f"{self.runs}x{self.metrics}x{self.points}"

    def __str__(self) -> str:
        return f"{self.runs:,} runs × {self.metrics} metrics × {self.points:,} points"


def have(program: str) -> bool:
    """Whether it is installed; says what to run where it is not."""
    found = _program(program).exists()
    if not found:
        group = "trackio" if program == "trackio" else "trackers"
        print(f"{program} is left out: scripts/framework-tools {group}", flush=True)
    return found


def _program(name: str) -> Path:
    return TOOLS / ("trackio" if name == "trackio" else "trackers") / "bin" / name


def _filled(program: str, size: Size) -> Path:
    """MLflow's database, or trackio's folder: made once."""
    place = DATA / f"{program}-{size.name}"
    if not place.exists():
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        what = part / "runs.sqlite" if program == "mlflow" else part
        command = [_program(program).with_name("python"), FILL, program, what, size.runs, size.metrics, size.points]
        subprocess.run([str(one) for one in command], check=True, env={**os.environ, **QUIET})
        part.rename(place)
    return place


@contextmanager
def mlflow(bench: Bench, size: Size) -> Iterator[str]:
    """MLflow over SQLite, one worker."""
    database = _filled("mlflow", size) / "runs.sqlite"
    command = ["server", "--workers", "1", "--backend-store-uri", f"sqlite:///{database}", "--port", "{port}"]
    with _server(bench, "mlflow", command, "/health") as url:
        yield url


MLFLOW_ROW = "a[href*='/experiments/0/runs/']"
MLFLOW_CURVE = ".js-plotly-plot .scatterlayer .trace path"


def mlflow_runs(url: str) -> str:
    """Its list of runs."""
    return f"{url}/#/experiments/0/runs"


def mlflow_metric(url: str, runs: int) -> str:
    """Its page of one metric of many runs."""
    ids = _ids(url, runs)
    query = {"runs": json.dumps(ids), "metric": '"loss"', "experiments": '["0"]', "plot_metric_keys": '["loss"]'}
    return f"{url}/#/metric?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}"


def mlflow_charts(url: str) -> str:
    """Its charts of an experiment: of as many runs as it shows unasked."""
    return f"{url}/#/experiments/0/runs?compareRunsMode=CHART"


def _ids(url: str, runs: int) -> list[str]:
    body = json.dumps({"experiment_ids": ["0"], "max_results": runs}).encode()
    told = get(f"{url}/api/2.0/mlflow/runs/search", body=body)
    return [one["info"]["run_id"] for one in json.loads(told)["runs"]]


TENSORBOARD_CURVE = "tb-card-view svg, card-view path, scalar-card .series-view, tb-line-chart, line-chart"


def events(size: Size) -> Path:
    """Event files of so many runs, made once."""
    place = DATA / f"events-{size.name}"
    if not place.exists():
        part = place.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        names = ["loss", *(f"metric-{at}" for at in range(1, size.metrics))]
        for at in range(size.runs):
            write_events(part, f"run-{at:02}", size.points, at, names)
        part.rename(place)
    return place


@contextmanager
def tensorboard(bench: Bench, size: Size) -> Iterator[str]:
    """TensorBoard over event files, once it has read them all to their last step."""
    folder = events(size)
    command = ["--logdir", str(folder), "--host", "127.0.0.1", "--port", "{port}"]
    with _server(bench, "tensorboard", command, "/") as url:
        for at in range(size.runs):
            asked = f"{url}/data/plugin/scalars/scalars?tag=loss&run=run-{at:02}"
            last = f"TensorBoard to read run {at + 1} of {size.runs}"
            wait_until(last, lambda asked=asked: json.loads(get(asked))[-1][1] >= size.points - 1, 900)
        yield url


@contextmanager
def trackio(bench: Bench, size: Size) -> Iterator[str]:
    """trackio over its SQLite file: a row a step, its metrics one JSON text."""
    folder = _filled("trackio", size)
    with _server(bench, "trackio", ["show", "--project", "bench"], "/", TRACKIO_DIR=str(folder)) as url:
        yield f"{url}/?project=bench"


TRACKIO_CURVE = "canvas, svg.marks"


@contextmanager
def _server(bench: Bench, program: str, arguments: list[str], ready: str, **more: str) -> Iterator[str]:
    """A server of somebody else's on a free port, once it answers, and its end."""
    port = reserve_port("127.0.0.1")
    environ = {**os.environ, **QUIET, "GRADIO_SERVER_PORT": str(port), **more}
    command = [str(_program(program)), *(one.format(port=port) for one in arguments)]
    log = bench.scratch / f"{program}.log"
    with open(log, "wb") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, env=environ, cwd=bench.scratch, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        if process.poll() is not None:
            raise SystemExit(f"{program} ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
        return bool(get(f"{url}{ready}", seconds=10))

    try:
        wait_until(f"{program} to answer", answers, 240)
        yield url
    finally:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            child.kill()
        process.kill()
        process.wait()
