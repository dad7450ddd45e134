"""What it costs to be a run: ``python benchmarks/runs.py``

Against SeaweedFS on the same machine, over loopback:

- *overhead*: how much longer a loop of 1 ms steps takes under ``headrace run`` with `hr.log` at each step, a line of
  output at each tenth, samplers and all, than by itself; repetitions interleaved.
- *hour*: what a job costs that writes 200 lines and logs 100 values a second: bytes, requests and money, from a few
  minutes of it; and the memory of its runner.
- *behind*: how long a line takes from its writing to a follower elsewhere, who has only the bucket.

Results go to ``benchmarks/results/runs.{md,json}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from headrace.store import open_store
from headrace.store.embedded import EmbeddedS3
from loader import DATA, RESULTS
from report import machine

BUCKET = "runs"
HEADRACE = [sys.executable, "-m", "headrace.cli"]
PUT_USD, GET_USD = 0.005 / 1000, 0.0004 / 1000
WARNING = (
    "Server, runner and job share the cores. A step of the loop sleeps 0.8 ms, as one that waits for a GPU does, and "
    "computes the rest. Prices are examples: 0.005 US$ for 1,000 PUT, 0.0004 for 1,000 GET."
)
LOOP = """
import sys, time
steps, logs = int(sys.argv[1]), sys.argv[2] == "log"
if logs:
    import headrace as hr
    hr.log({"warm": 1.0})
    time.sleep(2)
took, began = [], time.perf_counter()
for step in range(steps):
    at = time.perf_counter()
    until = time.perf_counter() + 0.001
    time.sleep(0.0008)
    while time.perf_counter() < until:
        pass
    if logs:
        hr.log({"loss": 1.0 / (step + 1)}, step=step)
        if step % 10 == 0:
            print("step", step, flush=True)
    took.append(time.perf_counter() - at)
print("took", sorted(took)[steps // 2], time.perf_counter() - began, flush=True)
"""
WRITES = """
import sys, time
import headrace as hr
seconds = float(sys.argv[1])
began, line = time.time(), 0
while time.time() - began < seconds:
    for _ in range(20):
        line += 1
        print(f"{line:08d} epoch 1 step {line} loss {1 / line:.6f} some words that a training loop writes", flush=True)
    hr.log({f"metric/{number}": float(line) for number in range(10)}, step=line)
    time.sleep(max(0.0, began + line / 200 - time.time()))
"""
STAMPS = """
import time
for _ in range(40):
    print(time.time(), flush=True)
    time.sleep(1)
"""


@dataclass(frozen=True)
class Place:
    """A server, and a folder to work in."""

    server: EmbeddedS3
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """For every command."""
        return {
            **os.environ,
            **self.server.variables(),
            "HEADRACE_HOME": f"s3://{BUCKET}/home",
            "HEADRACE_RUN_STATE": str(self.folder / "state"),
        }

    def run(self, name: str, text: str, *arguments: str) -> subprocess.Popen[str]:
        """A program under ``headrace run``."""
        (self.folder / f"{name}.py").write_text(text)
        command = [*HEADRACE, "run", "-q", "--id", name, "--no-code", "--", sys.executable, f"{name}.py", *arguments]
        return subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=subprocess.PIPE, text=True)

    def sizes(self, name: str) -> dict[str, int]:
        """Objects of a run, by their names below it."""
        store, prefix = open_store(f"s3://{BUCKET}", self.server.options()), f"home/runs/{name}/"
        return {info.key.removeprefix(prefix): info.size for page in store.list(prefix) for info in page}


def overhead(place: Place, steps: int, repetitions: int) -> dict[str, Any]:
    """Median seconds of a step and seconds of the whole loop, by itself and in a run; in turns, each first as often."""
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "inside": []}
    (place.folder / "loop.py").write_text(LOOP)

    def alone() -> None:
        command = [sys.executable, "loop.py", str(steps), "alone"]
        out = subprocess.run(command, cwd=place.folder, capture_output=True, text=True, check=True).stdout
        found["alone"].append(_pair(out))

    def inside() -> None:
        out, _ = place.run(f"loop-{len(found['inside'])}", LOOP, str(steps), "log").communicate()
        found["inside"].append(_pair(out))

    for number in range(repetitions):
        for one in (alone, inside) if number % 2 else (inside, alone):
            one()
    pairs = list(zip(found["inside"], found["alone"], strict=True))
    by_step, by_loop = (sorted(one[at] / other[at] - 1 for one, other in pairs) for at in (0, 1))
    return {"steps": steps, **found, "by_step": by_step, "by_loop": by_loop}


def _pair(out: str) -> tuple[float, float]:
    step, whole = map(float, out.split()[-2:])
    return step, whole


def hour(place: Place, seconds: float) -> dict[str, Any]:
    """Bytes and requests of a job that writes evenly, as of an hour; and its runner's memory."""
    process = place.run("hour", WRITES, str(seconds))
    runner, memory = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            memory = max(memory, runner.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        try:
            process.communicate(timeout=0.5)
        except subprocess.TimeoutExpired:
            continue
    sizes = place.sizes("hour")
    segments = {name: size for name, size in sizes.items() if name.startswith(("logs/", "metrics/"))}
    scale = 3600 / seconds
    puts, gets = len(segments) * scale + 3600 / 15, 3600 / 5
    return {
        "seconds": seconds, "bytes": sum(segments.values()), "segments": len(segments), "memory": memory,
        "hour_bytes": sum(segments.values()) * scale, "hour_puts": puts, "hour_gets": gets,
        "hour_usd": puts * PUT_USD + gets * GET_USD,
    }  # fmt: skip


def behind(place: Place) -> dict[str, Any]:
    """Seconds from a line's writing to its appearance at a follower."""
    process = place.run("behind", STAMPS)
    time.sleep(3)
    follower = subprocess.Popen(
        [*HEADRACE, "logs", "-f", "behind"], env=place.environment, stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    lags = [time.time() - float(line) for line in follower.stdout]
    process.communicate()
    follower.wait()
    late = lags[5:]  # those before it began to follow
    return {"lines": len(late), "median_s": median(late), "worst_s": max(late)}


def main() -> None:
    """All of them; prints and writes a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="runs-", dir=DATA) as folder, EmbeddedS3(f"{folder}/s3") as server:
        server.create_bucket(BUCKET)
        place = Place(server, Path(folder))
        found = {
            "overhead": overhead(place, options.steps, options.repetitions),
            "hour": hour(place, options.seconds),
            "behind": behind(place),
        }
    text = _text(found)
    print(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "runs.md").write_text(text + "\n")
    (RESULTS / "runs.json").write_text(json.dumps({"machine": machine(), "results": found}, indent=1) + "\n")


def _text(found: dict[str, Any]) -> str:
    one, two, three = found["overhead"], found["hour"], found["behind"]
    here, today = machine(), datetime.datetime.now(datetime.UTC).date()
    told = {
        name: f"{median(found):+.1%} (pairs from {found[0]:+.1%} to {found[-1]:+.1%})"
        for name, found in (("step", one["by_step"]), ("loop", one["by_loop"]))
    }
    pairs = f"{len(one['by_step'])} pairs of {one['steps']:,} steps"
    loop = f"median step {told['step']}; whole loop {told['loop']}; {pairs}"
    money = f"{two['hour_usd']:.3f} US$"
    hour = f"{two['hour_bytes'] / 1e6:.1f} MB, {two['hour_puts']:,.0f} PUT, {two['hour_gets']:,.0f} GET"
    return "\n".join(
        [
            "# Runs",
            "",
            f"{today}, {here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}.",
            WARNING,
            "",
            "| asked | measured |",
            "|---|---|",
            f"| a loop of 1 ms steps takes less than 2 % longer | {loop} |",
            f"| runner memory under 200 MB | {two['memory'] / 1e6:.0f} MB |",
            f"| 200 lines and 100 values a second for an hour, of {two['seconds']:.0f} s | {hour}, {money} |",
            f"| a follower less than 10 s behind | {three['median_s']:.1f} s, at worst {three['worst_s']:.1f} s |",
        ]
    )


if __name__ == "__main__":
    main()
