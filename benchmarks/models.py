"""Models behind HTTP: ``python benchmarks/models.py``

- *small*: one ONNX model of 330 kB, asked in JSON over 1, 16 and 64 connections: processor time of the server a
  request, p50 and p99; Triton's Python backend, Ray Serve with HAProxy, LitServe, and the bare runtime beside it.
  *slow*: the same with a model that takes about a millisecond.
- *swaps*: an alias that moves to and fro under load: failures, p99 during swaps and beside them; and what a swap costs.
- *cold*: a start on a node without a cache until the first answer, against s5cmd and ONNX Runtime alone.
- *idle*: requests to the store a day.

Peers run in ``.tools/servers`` and ``.tools/ray`` (``scripts/framework-tools servers``), each as its docstring says;
one that is not there is left out, and named. Server and client share the cores. Results:
``benchmarks/results/models.{md,json}``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import headrace.models as models
from headrace.base.ports import reserve_port
from headrace.base.settings import Settings
from headrace.models import Registry
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store.embedded import EmbeddedS3
from loader import RESULTS
from memory import ballast
from models_client import Load, ask, cpu_of, quantile, request
from report import machine

HERE = Path(__file__).parent
TOOLS = HERE.parent / ".tools"
INPUT = 64
CONNECTIONS = (1, 16, 64)
HEADERS = {"Content-Type": "application/json"}
COLUMNS = {"requests_s": 0, "cpu_us": 0, "p50_ms": 2, "p99_ms": 2, "failed": 0}
"""Of the table, and how many digits follow the point."""
PRICE = 0.0004 / 1000
"""Dollars a GET, S3 Standard in us-east-1."""


@dataclass
class Place:
    """A home in SeaweedFS and a node's cache, below `scratch`."""

    server: EmbeddedS3
    scratch: Path

    def __post_init__(self) -> None:
        self.settings = Settings.load(environ=self.own)
        self.registry = Registry(namespace := Namespace.load(self.settings), Home.of(namespace, self.settings))

    @property
    def own(self) -> dict[str, str]:
        return {"HEADRACE_HOME": "s3://models/home", "HEADRACE_CACHE_DIR": str(self.scratch / "cache")}

    def publish(self, folder: Path, name: str) -> int:
        return models.publish(str(folder), name, registry=self.registry).number

    def point(self, what: str, number: int) -> None:
        models.alias(what, number, registry=self.registry)

    @contextmanager
    def serving(self, *arguments: str, interval: str = "5s") -> Iterator[Served]:
        command = [sys.executable, "-m", "headrace.cli", "serve", "--json", "--interval", interval, *arguments]
        begun = time.perf_counter()
        with subprocess.Popen(command, env={**os.environ, **self.own}, stdout=subprocess.PIPE, text=True) as process:
            lines: list[str] = []
            for line in process.stdout or ():
                lines.append(line)
                if line == "}\n":
                    break
            try:
                yield Served(json.loads("".join(lines))["url"], process.pid, begun)
            finally:
                process.terminate()
                process.wait()


@dataclass(frozen=True)
class Served:
    """A server. `begun`: when its process was started."""

    url: str
    pid: int
    begun: float

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str) -> tuple[int, bytes]:
        return fetched(self.url + path)

    def wait(self, path: str, seconds: float = 300) -> None:
        """Until it answers 200."""
        wait(self.url + path, seconds)

    def metric(self, name: str) -> float:
        lines = self.get("/metrics")[1].decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + "{", name + " ")))


def fetched(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, HEADERS), timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def wait(url: str, seconds: float, body: bytes | None = None) -> None:
    until = time.monotonic() + seconds
    while fetched(url, body)[0] != 200:
        if time.monotonic() > until:
            raise SystemExit(f"{url} did not answer within {seconds:.0f} s")
        time.sleep(0.05)


def network(folder: Path, widths: list[int], seed: int = 0) -> Path:
    """A chain of dense layers of these widths, its weights beside it where they are large."""
    chance = np.random.default_rng(seed)
    nodes, weights, last = [], [], "x"
    for index, (before, after) in enumerate(pairwise(widths)):
        values = (chance.standard_normal((before, after)) / before**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{index}"))
        final = index == len(widths) - 2
        nodes.append(helper.make_node("MatMul", [last, f"w{index}"], ["y" if final else f"m{index}"]))
        if not final:
            nodes.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"]))
            last = f"r{index}"
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", widths[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", widths[-1]])], weights,
    )  # fmt: skip
    folder.mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    large = sum(before * after for before, after in pairwise(widths)) > 1_000_000
    onnx.save(model, folder / "model.onnx", save_as_external_data=large, location="model.onnx.data")
    return folder


def bodies() -> tuple[bytes, bytes]:
    """One row, in TensorFlow Serving's form and in v2's."""
    row = [round(float(value), 4) for value in np.random.default_rng(1).random(INPUT)]
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, INPUT], "data": row}
    return json.dumps({"instances": [row]}).encode(), json.dumps({"inputs": [tensor]}).encode()


# Small and slow models


def told(load: Load) -> dict[str, Any]:
    return {
        "requests_s": load.rate, "cpu_us": load.cpu_us, "p50_ms": load.quantile(0.5) * 1e3,
        "p99_ms": load.quantile(0.99) * 1e3, "failed": load.failed,
    }  # fmt: skip


def small(place: Place, name: str, folder: Path, seconds: float, only: str) -> dict[str, Any]:
    """Each contender in turn, over each number of connections."""
    rows, tensors = bodies()
    place.point(f"{name}@prod", place.publish(folder, name))
    found: dict[str, Any] = {"bare runtime, one row at a time": bare(folder / "model.onnx", seconds)}
    with place.serving(f"{name}@prod", "--threads", "1") as served:
        served.wait("/v2/health/ready")
        for form, path, body in (("TensorFlow Serving's REST", f"/v1/models/{name}:predict", rows),
                                 ("v2", f"/v2/models/{name}/infer", tensors)):  # fmt: skip
            found[f"headrace serve, {form}"] = over(served.port, request(path, body), served.pid, seconds)
    contenders = {
        "Triton's Python backend": ("serve_triton.py", "/v2/models/small/infer", tensors, {}),
        "Ray Serve with HAProxy": ("serve_ray.py", "/", rows, {"RAY_SERVE_ENABLE_HA_PROXY": "1"}),
        "LitServe": ("serve_litserve.py", "/predict", rows, {}),
    }
    for contender, (script, path, body, variables) in contenders.items():
        if only in contender:
            found[contender] = peer(script, folder / "model.onnx", path, body, variables, seconds)
    return found


def over(port: int, message: bytes, pid: int, seconds: float) -> dict[str, Any]:
    return {str(one): told(ask(port, message, connections=one, seconds=seconds, pid=pid)) for one in CONNECTIONS}


def bare(model: Path, seconds: float) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    row = np.random.default_rng(1).random((1, INPUT), np.float32)
    begun, cpu, count = time.perf_counter(), time.process_time(), 0
    while (spent := time.perf_counter() - begun) < seconds:
        session.run(None, {"x": row})
        count += 1
    return {"1": {"requests_s": count / spent, "cpu_us": (time.process_time() - cpu) / count * 1e6}}


def peer(
    script: str, model: Path, path: str, body: bytes, variables: dict[str, str], seconds: float
) -> dict[str, Any] | str:
    """Its figures, or why there are none."""
    group = "ray" if script == "serve_ray.py" else "servers"
    python = TOOLS / group / "bin/python"
    if not python.exists():
        return f"not installed: scripts/framework-tools {group}"
    port = reserve_port()
    environment = {**os.environ, **variables, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [python, HERE / "peers" / script, model, str(port)]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            until = time.monotonic() + 120
            while fetched(f"http://127.0.0.1:{port}{path}", body)[0] != 200:
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    lines = [line for line in log.read().splitlines() if len(line) > 8][-3:]
                    return f"did not start: {_plain(lines[-1]) if lines else 'no answer'}"
                time.sleep(0.2)
            return over(port, request(path, body), process.pid, seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                pass
            with suppress(ProcessLookupError):  # what it leaves behind
                os.killpg(process.pid, signal.SIGKILL)


# Swaps


def swaps(place: Place, name: str, count: int) -> dict[str, Any]:
    """Under load, then at rest. The two versions are there: 1 and 2."""
    place.point(f"{name}@prod", 1)
    _, tensors = bodies()
    with place.serving(f"{name}@prod", interval="0.2s") as served:
        served.wait("/v2/health/ready")
        spans: list[tuple[float, float]] = []
        over_all = threading.Event()

        def turn() -> None:
            for index in range(count):
                time.sleep(0.3)
                spans.append(swap(place, served, name, 2 - index % 2))
            time.sleep(0.5)
            over_all.set()

        threading.Thread(target=turn).start()
        message = request(f"/v2/models/{name}/infer", tensors)
        load = ask(served.port, message, connections=16, seconds=0, pid=served.pid, over=over_all.is_set)
        within = [wait for wait, end in zip(load.waits, load.ends, strict=True) if inside(end, spans)]
        beside = [wait for wait, end in zip(load.waits, load.ends, strict=True) if not inside(end, spans)]
        time.sleep(5)  # what is made behind the last swap is made
        rest = cpu_of(served.pid)
        time.sleep(5)
        idle = (cpu_of(served.pid) - rest) / 5
        at_once, behind = 0.0, 0.0
        few = max(2, count // 10)
        for index in range(few):
            before, begun = cpu_of(served.pid), time.perf_counter()
            swap(place, served, name, 2 - (count + index) % 2)
            between = cpu_of(served.pid)
            at_once += between - before
            time.sleep(4)  # a prepacked session is made
            behind += cpu_of(served.pid) - between - idle * (time.perf_counter() - begun)
    return {
        "swaps": count, "requests": load.requests, "failed": load.failed, "p99_before_ms": quantile(beside, 0.99) * 1e3,
        "p99_during_ms": quantile(within, 0.99) * 1e3, "max_ms": max(load.waits) * 1e3, "requests_during": len(within),
        "cpu_a_swap_ms": at_once / few * 1e3, "cpu_behind_ms": behind / few * 1e3,
    }  # fmt: skip


def swap(place: Place, served: Served, name: str, number: int) -> tuple[float, float]:
    """When the alias was moved, and when the version answered."""
    begun = time.perf_counter()
    place.point(f"{name}@prod", number)
    served.wait(f"/v2/models/{name}/versions/{number}/ready")
    return begun, time.perf_counter()


def inside(moment: float, spans: list[tuple[float, float]]) -> bool:
    return any(begun <= moment <= end + 0.1 for begun, end in spans)


# A start on an empty node, and a server that nobody asks


def _plain(line: str) -> str:
    """Without colours, and without folders of this machine."""
    return re.sub(r"\x1b\[[0-9;]*m|[^\s\"']*/", "", line)[-200:]


def cold(place: Place, name: str, repeat: int) -> dict[str, Any]:
    _, tensors = bodies()
    ours: list[float] = []
    theirs: list[tuple[float, float]] = []
    with ballast(place.scratch / "ballast") as full:
        for _ in range(repeat):
            shutil.rmtree(place.scratch / "cache", ignore_errors=True)
            full.fill()
            with place.serving(f"{name}@prod") as served:
                wait(f"{served.url}/v2/models/{name}/infer", 600, tensors)
                ours.append(time.perf_counter() - served.begun)
            full.fill()
            theirs.append(by_hand(place, name))
    return {"headrace_s": ours, "s5cmd_s": [one for one, _ in theirs], "load_s": [one for _, one in theirs]}


def by_hand(place: Place, name: str) -> tuple[float, float]:
    """s5cmd's seconds, and those of ONNX Runtime, mapped, to its first answer."""
    target = place.scratch / "by-hand"
    shutil.rmtree(target, ignore_errors=True)
    begun = time.perf_counter()
    number = place.registry.pointer(name).aliases["prod"]
    s5cmd = shutil.which("s5cmd", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    command = [s5cmd, "--endpoint-url", place.server.endpoint, "--log", "error", "cp", "-c", "16",
               f"s3://models/home/models/{name}/{number}/*", f"{target}/"]  # fmt: skip
    subprocess.run([str(one) for one in command], env=os.environ, check=True)
    copied = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(str(target / "model.onnx"), options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.ones((1, INPUT), np.float32)})
    return copied - begun, time.perf_counter() - copied


def idle(place: Place, name: str, seconds: float) -> dict[str, Any]:
    with place.serving(f"{name}@prod") as served:
        served.wait("/v2/health/ready")
        metric = "headrace_serving_pointer_requests_total"
        before, cpu, begun = served.metric(metric), cpu_of(served.pid), time.perf_counter()
        time.sleep(seconds)
        spent = time.perf_counter() - begun
        day = (served.metric(metric) - before) / spent * 86400
        cpu = (cpu_of(served.pid) - cpu) / spent
        return {"requests_a_day": day, "dollars_a_month": day * 30 * PRICE, "cpu_ms_s": cpu * 1e3}


# The report


def report(found: dict[str, Any]) -> str:
    cores = f"{machine()['cores']} cores ({machine()['cpu']}); client and servers share them."
    lines = ["# Models behind HTTP", "", cores, ""]
    for row, title in (("small", "One ONNX model of 330 kB"), ("slow", "One that takes about a millisecond")):
        if row in found:
            lines += [f"## {title}, JSON", "", *_table(found[row]), ""]
    for row in ("swaps", "swaps-large"):
        if row in found:
            lines += [f"## {row}", "", *_pairs(found[row]), ""]
    for row in ("cold", "idle"):
        if row in found:
            lines += [f"## {row}", "", *_pairs(found[row]), ""]
    return "\n".join(lines)


def _table(rows: dict[str, Any]) -> list[str]:
    lines = [
        "| server | connections | requests/s | CPU µs a request | p50 ms | p99 ms | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, figures in rows.items():
        if isinstance(figures, str):
            lines.append(f"| {name} | {figures} |||||")
            continue
        for connections, one in figures.items():
            cells = [f"{one[key]:,.{digits}f}" if key in one else "–" for key, digits in COLUMNS.items()]
            lines.append(f"| {name} | {connections} | {' | '.join(cells)} |")
    return lines


def _pairs(figures: dict[str, Any]) -> list[str]:
    def cell(value: Any) -> str:
        return ", ".join(f"{one:,.2f}" for one in value) if isinstance(value, list) else f"{value:,.2f}"

    return ["| | |", "|---|---|", *(f"| {name} | {cell(value)} |" for name, value in figures.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="small,slow,swaps,swaps-large,cold,idle")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--swaps", type=int, default=100)
    parser.add_argument("--large", type=int, default=1000, help="MB of the large model")
    parser.add_argument("--repeat", type=int, default=3, help="of cold starts")
    parser.add_argument("--only", default="", help="peers whose name holds this")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    rows = chosen.rows.split(",")
    scratch = Path(tempfile.mkdtemp(prefix="headrace-models-"))
    found: dict[str, Any] = {}
    try:
        with EmbeddedS3(scratch / "server") as server:
            server.create_bucket("models")
            os.environ.update(server.variables())
            place = Place(server, scratch)
            run(place, rows, chosen, found)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = report(found)
    print(text)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "models.md").write_text(text)
    (chosen.out / "models.json").write_text(json.dumps(found, indent=1) + "\n")


def run(place: Place, rows: list[str], chosen: argparse.Namespace, found: dict[str, Any]) -> None:
    """The rows that were asked for."""
    quick = [network(place.scratch / f"quick-{seed}", [INPUT, 256, 256, 10], seed) for seed in (1, 2)]
    if "small" in rows:
        found["small"] = small(place, "small", quick[0], chosen.seconds, chosen.only)
    if "slow" in rows:
        deep = network(place.scratch / "slow", [INPUT, *[1024] * 7, 10])
        found["slow"] = small(place, "slow", deep, chosen.seconds, chosen.only)
    if "swaps" in rows or "idle" in rows:
        for folder in quick:
            place.publish(folder, "swapped")
        place.point("swapped@prod", 1)
    if "swaps" in rows:
        found["swaps"] = swaps(place, "swapped", chosen.swaps)
    if "idle" in rows:
        found["idle"] = idle(place, "swapped", max(30.0, chosen.seconds))
    if "swaps-large" in rows or "cold" in rows:
        layers = max(1, chosen.large // 64)
        for seed in (1, 2):
            place.publish(network(place.scratch / f"large-{seed}", [INPUT, *[4096] * (layers + 1), 10], seed), "large")
            shutil.rmtree(place.scratch / f"large-{seed}")
        place.point("large@prod", 1)
    if "cold" in rows:
        found["cold"] = cold(place, "large", chosen.repeat)
    if "swaps-large" in rows:
        found["swaps-large"] = swaps(place, "large", chosen.swaps)


if __name__ == "__main__":
    main()
