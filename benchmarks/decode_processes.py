"""A decoder of plain Python, which holds the GIL, on two cores: ``python benchmarks/decode_processes.py``

20 ms of Python a sample, small local files. Worker processes (``map(f, processes=2)``) against threads, and against
PyTorch's DataLoader, Grain's `mp_prefetch` and litdata's StreamingDataLoader with two workers each. Every figure comes
from a process of its own, repetitions interleaved; a contender that is not installed is left out. Nothing may be left
in /dev/shm. Results go to ``benchmarks/results/decode-processes.{md,json}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from peers.decode_python import CONTENDERS, prepare

HERE = Path(__file__).parent
TOOLS = HERE.parent / ".tools/loaders/bin/python"
OURS, THREADS, *OTHERS = CONTENDERS
COUNT, SIZE, BATCH = 512, 10_000, 8
TIMEOUT_S = 120.0
LEGEND = (
    "Batches of 8 samples; a sample is a file of 10 kB that becomes an array of 48 KiB behind 20 ms of pure Python "
    "(measured alone, before the run). *First batch*: from opening the data set on, workers' start included. CPU: all "
    "processes of the contender, for a sample. Medians; in brackets the slowest and the fastest repetition.\n"
)


@dataclass
class Row:
    """One contender's repetitions, or why there are none."""

    name: str
    rates: list[float] = field(default_factory=list[float])
    first_s: list[float] = field(default_factory=list[float])
    cpu_ms: list[float] = field(default_factory=list[float])
    wrong: str = ""


def turns_for(seconds: float) -> int:
    """Turns of an empty loop that take so long here, undisturbed: the best of some tries."""
    turns, best = 200_000, float("inf")
    for _ in range(30):
        began = time.perf_counter()
        for _ in range(turns):
            pass
        best = min(best, time.perf_counter() - began)
    return round(turns * seconds / best)


def cpu_of_group() -> float:
    """Seconds of CPU of this process and of those below it."""
    import psutil

    me = psutil.Process()
    times = [one.cpu_times() for one in [me, *me.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def measure(name: str, folder: str, turns: int, warm_s: float, window_s: float) -> Mapping[str, float]:
    """In a process of its own."""
    opened = time.perf_counter()
    batches = CONTENDERS[name](folder, BATCH, turns)
    next(batches)
    first_s = time.perf_counter() - opened
    until = time.perf_counter() + warm_s
    while time.perf_counter() < until:
        next(batches)
    began, count, cpu = time.perf_counter(), 0, cpu_of_group()
    while time.perf_counter() - began < window_s:
        count += len(next(batches)["image"])
    seconds, cpu = time.perf_counter() - began, cpu_of_group() - cpu
    return {"rate": count / seconds, "first_s": first_s, "cpu_ms": cpu / count * 1e3}


def run(row: Row, told: Sequence[Any]) -> None:
    python = str(TOOLS) if TOOLS.exists() else sys.executable
    path = f"{HERE}:{HERE.parent / 'src'}"
    child = subprocess.Popen(
        [python, __file__, "--child", json.dumps([row.name, *told])], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(told[0])},
    )  # fmt: skip
    try:
        out, errors = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        out, errors = "", "no result in time"
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    found = [line for line in out.splitlines() if line.startswith('{"rate"')]
    if not found:
        row.wrong = (errors.strip().splitlines() or ["nothing said"])[-1][:200]
        return
    made = json.loads(found[-1])
    row.rates.append(made["rate"])
    row.first_s.append(made["first_s"])
    row.cpu_ms.append(made["cpu_ms"])


def markdown(rows: Sequence[Row], measured: str) -> str:
    lines = ["# A decoder of plain Python", "", LEGEND, measured, ""]
    lines += ["| contender | samples/s | first batch | CPU a sample | headrace, processes=2 |", "|---|--:|--:|--:|--:|"]
    ours = next((median(row.rates) for row in rows if row.name == OURS and row.rates), 0.0)
    for row in rows:
        if not row.rates:
            lines.append(f"| {row.name} | not measured: {row.wrong} | | | |")
            continue
        rate = median(row.rates)
        lines.append(
            f"| {row.name} | {rate:.1f} ({min(row.rates):.1f} to {max(row.rates):.1f}) | {median(row.first_s):.2f} s "
            f"| {median(row.cpu_ms):.1f} ms | {ours / rate:.2f}× |"
        )
    return "\n".join(lines) + "\n"


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, interleaved (default: 3)")
    parser.add_argument("--window", type=float, default=6.0, help="seconds measured each time (default: 6)")
    parser.add_argument("--only", default="", help="only contenders whose name contains this")
    parser.add_argument("--quick", action="store_true", help="one repetition of 1 s; writes below benchmarks/data/")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.child:
        print(json.dumps(measure(*json.loads(options.child))), flush=True)
        os._exit(0)  # a contender's workers are killed with its group
    from report import machine

    repeat, window_s, warm_s = (1, 1.0, 0.5) if options.quick else (options.repeat, options.window, 2.0)
    rows = [Row(name) for name in CONTENDERS if options.only in name]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        prepare(folder, COUNT, SIZE)
        before = set(os.listdir("/dev/shm"))
        turns = turns_for(0.02)
        for _ in range(repeat):
            for row in rows:
                run(row, (folder, turns, warm_s, window_s))
                if row.name == OURS and (left := set(os.listdir("/dev/shm")) - before):
                    row.wrong = f"left in /dev/shm: {', '.join(sorted(left))}"
                before = set(os.listdir("/dev/shm"))
    here = machine()
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    text = markdown(
        rows, f"Measured {now}, {repeat} repetitions of {window_s:g} s, {here['cores']} cores ({here['cpu']})."
    )
    out = HERE / ("data/quick" if options.quick else "results")
    out.mkdir(parents=True, exist_ok=True)
    (out / "decode-processes.md").write_text(text)
    (out / "decode-processes.json").write_text(json.dumps([vars(row) for row in rows], indent=1) + "\n")
    print(text)
    medians = {row.name: median(row.rates) for row in rows if row.rates}
    return 0 if all(medians.get(OURS, 0) >= medians.get(name, 0) for name in OTHERS) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
