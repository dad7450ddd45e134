"""When is ``where="process"`` worth it?  ``python benchmarks/process.py``

A training step of 0, 1, 5 or 20 ms of pure Python, which holds the GIL, on samples of 110 kB and 4.2 MB: the pipeline
in threads of the same process against the pipeline in a child process. Reads from the static server, cache off. Every
figure comes from a process of its own, repetitions interleaved. Results go to ``benchmarks/results/process.{md,json}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import data
from job import Job, Result
from loader import DATA, RESULTS
from peers.headrace_step import work
from report import machine
from rows import NO_CACHE
from runner import PeerError, run
from servers import StaticServer

WHERE = ("thread", "process")
NOTABLE = 1.05
"""One is called faster when its median is by this factor and its slowest repetition beats the other's fastest."""

LEGEND = (
    "The loop takes a batch and then runs a step of pure Python, which holds the GIL. Nothing is decoded, nothing "
    "cached. *Step* is what it takes undisturbed; *at most* is the rate of such steps alone. *Step took*, *waited* "
    "(for one batch; both are means) and CPU (of all the client's processes, the step's included) are with the loader "
    "running. Memory is the highest of any moment, both processes. Medians; in brackets the slowest and the fastest "
    f"repetition. *Faster*: its median by {NOTABLE - 1:.0%} or more, and its slowest repetition before the other's "
    "fastest.\n"
)
COLUMNS = (
    "samples", "step ms", "at most samples/s", "where", "samples/s", "step took ms", "waited ms", "CPU us a sample",
    "peak memory MB", "faster",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Samples and how many make a batch."""

    title: str
    dataset: str
    batch: int


# four of the small ones make the many, tiny batches in which a hand-over between processes costs most
CASES = (
    Case("110 kB, batch 4", "small", 4),
    Case("110 kB, batch 64", "small", 64),
    Case("4.2 MB, batch 4", "large", 4),
)


@dataclass(frozen=True)
class Cell:
    """One line of the table: one step over one kind of samples, both ways; every repetition.

    `step_ms`: what the step takes while nothing else runs.
    """

    case: Case
    step_ms: float
    runs: Mapping[str, list[Result]]

    def rate(self, where: str) -> float:
        """Samples a second, median."""
        return median(one.rate for one in self.runs[where])

    @property
    def ceiling(self) -> float:
        """Samples a second of the step alone, if batches cost nothing."""
        return self.case.batch / self.step_ms * 1e3 if self.step_ms else float("inf")

    @property
    def faster(self) -> str:
        """``"process"``, ``"thread"``, ``"alike"``; ``"once"`` or ``""``: one run of each at most, or none."""
        times = min(len(self.runs[where]) for where in WHERE)
        if times < 2:
            return "once" if times else ""
        for one, other in (WHERE, WHERE[::-1]):
            apart = min(run.rate for run in self.runs[one]) > max(run.rate for run in self.runs[other])
            if apart and self.rate(one) >= NOTABLE * self.rate(other):
                return one
        return "alike"


def turns_a_ms() -> int:
    """Turns of the empty loop in a millisecond of this machine, undisturbed: the best of many short tries."""
    turns = 20_000
    best = float("inf")
    for _ in range(100):
        began = time.perf_counter()
        work(turns)
        best = min(best, time.perf_counter() - began)
    return round(turns / best / 1e3)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, interleaved (default: 3)")
    parser.add_argument("--window", type=float, default=3.0, help="seconds measured each time (default: 3)")
    parser.add_argument("--steps", default="0,1,5,20", help="milliseconds of Python a batch (default: 0,1,5,20)")
    parser.add_argument("--only", default="", help="only samples whose title contains this, such as 4.2")
    parser.add_argument("--quick", action="store_true", help="one repetition of 0.3 s; writes below benchmarks/data/")
    parser.add_argument("--out", type=Path, help="folder for the results (default: benchmarks/results)")
    return parser.parse_args(given)


def measure(cells: Sequence[Cell], common: Job, times: int, turns: int) -> None:
    """Fill in the cells with `times` runs of `common`, altered for each. What fails is told and stays empty."""
    for turn in range(times):
        for cell in cells:
            for where in WHERE:
                options = {"where": where, "turns": round(cell.step_ms * turns)}
                job = replace(common, dataset=cell.case.dataset, batch=cell.case.batch, options=options)
                label = f"  {turn + 1}/{times}  {cell.case.title}, {cell.step_ms:g} ms, {where}"
                try:
                    result = run(job, timeout_s=60.0)
                except PeerError as error:
                    print(f"{label}: FAILED\n{error}", file=sys.stderr, flush=True)
                    continue
                cell.runs[where].append(result)
                print(f"{label:45s} {result.rate:10,.0f} samples/s", flush=True)


def markdown(cells: Sequence[Cell], measured: str) -> str:
    """What was measured, what follows, the table."""
    here = machine()
    about = (
        f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}, nginx "
        f"{here['nginx']}; client and server share the cores, over loopback. headrace "
        f"{here['packages'].get('headrace', '')}. {measured}.\n"
    )
    out = [
        '# When is `where="process"` worth it?\n',
        about,
        LEGEND,
        *verdicts(cells),
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|---|",
    ]
    out += [_line(cell, where) for cell in cells for where in WHERE]
    return "\n".join(out) + "\n"


def verdicts(cells: Sequence[Cell]) -> list[str]:
    """One sentence for each kind of samples, from the figures."""
    out: list[str] = []
    for case in dict.fromkeys(cell.case for cell in cells):
        mine = [cell for cell in cells if cell.case == case]
        said = [
            f"{name} with steps of {_and([f'{cell.step_ms:g}' for cell in found])} ms"
            for kind, name in (("process", "the process is faster"), ("thread", "threads are faster"),
                               ("alike", "no clear difference"), ("once", "one repetition, no verdict"),
                               ("", "not measured"))
            if (found := [cell for cell in mine if cell.faster == kind])
        ]  # fmt: skip
        out.append(f"- **{case.title}**: {'; '.join(said)}.")
    return out


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _line(cell: Cell, where: str) -> str:
    ceiling = f"{cell.ceiling:,.0f}" if cell.step_ms else ""
    head = f"| {cell.case.title} | {cell.step_ms:g} | {ceiling} | {where} "
    runs = cell.runs[where]
    if not runs:
        return head + "| not measured | | | | | |"
    rates = [one.rate for one in runs]
    step, wait = (median(one.extra[name] for one in runs) for name in ("step_ms", "wait_ms"))
    cpu, memory = median(one.cpu_us for one in runs), median(one.rss for one in runs)
    return (
        f"{head}| {median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f}) | {step:.2f} | {wait:.2f} | {cpu:,.0f} "
        f"| {memory / 1e6:,.0f} | {'yes' if cell.faster == where else ''} |"
    )


def main(given: Sequence[str]) -> int:
    options = arguments(given)
    steps = [float(text) for text in options.steps.split(",")]
    times, warm_s, window_s = (1, 0.1, 0.3) if options.quick else (options.repeat, 1.0, options.window)
    out = options.out or (DATA / "quick" if options.quick else RESULTS)
    cells = [
        Cell(case, step, {where: [] for where in WHERE})
        for case in CASES
        if options.only in case.title
        for step in steps
    ]
    DATA.mkdir(exist_ok=True)
    data.warm(data.prepare(DATA / "objects"))
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        turns = turns_a_ms()
        with StaticServer(DATA / "objects", scratch / "nginx") as server:
            env = {**NO_CACHE, "HEADRACE_CACHE_DIR": str(scratch / "cache")}  # listings are kept there all the same
            root = str(DATA / "objects")
            common = Job("headrace_step", server.plain, root, "", warm_s=warm_s, window_s=window_s, env=env)
            measure(cells, common, times, turns)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    measured = f"Measured {now}, {times} repetition{'' if times == 1 else 's'} of {window_s:g} s"
    text = markdown(cells, measured)
    out.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(), "measured": measured, "turns_a_ms": turns, "cells": [asdict(one) for one in cells]}
    (out / "process.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "process.md").write_text(text)
    print(text)
    return 0 if all(cell.faster for cell in cells) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
