"""Does the loader find how many threads to decode on?  ``python benchmarks/decode.py``

Six decoders (1, 5 and 30 ms of CPU that releases the GIL, 5 ms that holds it, 20 ms of waiting, a mix) over a store
that is near and one that is 40 ms away: ``map(f)`` against every number of threads of a sweep by hand. What it finds in
five seconds is measured behind them. Objects of 110 kB, cache off, every figure from a process of its own, repetitions
interleaved. Results go to ``benchmarks/results/decode.{md,json}``.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median

import data
from job import Job, Result
from loader import DATA, RESULTS
from process import turns_a_ms
from report import machine
from rows import NO_CACHE
from runner import PeerError, run
from servers import StaticServer

KINDS = ("compute 1", "compute 5", "compute 30", "hold 5", "wait 20", "mix")
PLACES = ("near", "40 ms away")
SWEEP = (1, 2, 4, 8, 16, 32, 64)
SETTLED_S = 5.0
"""Seconds in which the level has to be found."""
WANTED = 0.95
"""Of the best of the sweep."""


@dataclass(frozen=True)
class Cell:
    """One decoder at one place. `runs`: by number of threads, ``auto`` among them."""

    kind: str
    place: str
    runs: dict[str, list[Result]] = field(default_factory=dict[str, list[Result]])

    def rate(self, threads: str) -> float:
        """Samples a second, median."""
        return median(one.rate for one in self.runs[threads]) if self.runs.get(threads) else 0.0

    @property
    def best(self) -> str:
        """The number of threads of the sweep that decoded most."""
        return max((one for one in self.runs if one != "auto"), key=self.rate, default="")


def rounds_a_ms() -> float:
    """Rounds of the key's derivation in a millisecond of this machine, undisturbed."""
    rounds, best = 2000, float("inf")
    for _ in range(100):
        began = time.perf_counter()
        hashlib.pbkdf2_hmac("sha256", b"key", b"salt", rounds)
        best = min(best, time.perf_counter() - began)
    return rounds / best / 1e3


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, interleaved (default: 3)")
    parser.add_argument("--window", type=float, default=3.0, help="seconds measured each time (default: 3)")
    parser.add_argument("--only", default="", help="only decoders whose name contains this, such as wait")
    parser.add_argument("--place", default="", help="only near, or only away")
    parser.add_argument("--sweep", default=",".join(map(str, SWEEP)), help="numbers of threads, with commas between")
    parser.add_argument("--quick", action="store_true", help="one repetition of 0.5 s; writes below benchmarks/data/")
    parser.add_argument("--out", type=Path, help="folder for the results (default: benchmarks/results)")
    return parser.parse_args(given)


def measure(cells: Sequence[Cell], common: Job, endpoints: dict[str, str], times: int, sweep: Sequence[str]) -> None:
    """Fill in the cells with `times` runs of `common`, altered for each. What fails is told and stays empty."""
    for turn in range(times):
        for cell in cells:
            for threads in (*sweep, "auto"):
                number = threads if threads == "auto" else int(threads)
                options = {**common.options, "kind": cell.kind, "threads": number}
                job = replace(common, endpoint=endpoints[cell.place], options=options)
                label = f"  {turn + 1}/{times}  {cell.kind}, {cell.place}, {threads}"
                try:
                    result = run(job, timeout_s=90.0)
                except PeerError as error:
                    print(f"{label}: FAILED\n{error}", file=sys.stderr, flush=True)
                    continue
                cell.runs.setdefault(threads, []).append(result)
                found = f", {result.extra['threads']:.0f} threads" if threads == "auto" else ""
                print(f"{label:40s} {result.rate:8,.0f} samples/s{found}", flush=True)


def markdown(cells: Sequence[Cell], measured: str, sweep: Sequence[str]) -> str:
    """The table."""
    here = machine()
    out = [
        "# How many threads decode\n",
        (
            f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}; client and "
            f"server share the cores, over loopback. headrace {here['packages'].get('headrace', '')}. {measured}. "
            f"Samples a second, medians; *auto* is `map(f)`, measured {SETTLED_S:g} s after its first batch.\n"
        ),
        f"| decoder, ms | store | {' | '.join(sweep)} | auto | threads found | of the best |",
        f"|---|---|{'--:|' * len(sweep)}--:|--:|--:|",
    ]
    for cell in cells:
        rates = " | ".join(f"{cell.rate(one):,.0f}" for one in sweep)
        found = median(one.extra["threads"] for one in cell.runs["auto"]) if cell.runs.get("auto") else 0
        share = cell.rate("auto") / cell.rate(cell.best) if cell.rate(cell.best) else 0.0
        verdict = "" if share >= WANTED else " **miss**"
        out.append(
            f"| {cell.kind} | {cell.place} | {rates} | {cell.rate('auto'):,.0f} | {found:.0f} | {share:.0%}{verdict} |"
        )
    return "\n".join(out) + "\n"


def main(given: Sequence[str]) -> int:
    options = arguments(given)
    sweep = options.sweep.split(",")
    times, warm_s, window_s = (1, 1.0, 0.5) if options.quick else (options.repeat, SETTLED_S, options.window)
    out = options.out or (DATA / "quick" if options.quick else RESULTS)
    cells = [
        Cell(kind, place)
        for kind in KINDS
        if options.only in kind
        for place in PLACES
        if options.place in place
    ]  # fmt: skip
    DATA.mkdir(exist_ok=True)
    data.warm(data.prepare(DATA / "objects"))
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with StaticServer(DATA / "objects", scratch / "nginx", delay_ms=(40, 40)) as server:
            env = {**NO_CACHE, "HEADRACE_CACHE_DIR": str(scratch / "cache")}  # listings are kept there all the same
            effort = {"rounds": rounds_a_ms(), "turns": turns_a_ms()}
            root = str(DATA / "objects")
            common = Job(
                "headrace_decode", "", root, "small", 16, warm_s=warm_s, window_s=window_s, env=env, options=effort
            )
            measure(cells, common, dict(zip(PLACES, (server.plain, server.latency), strict=True)), times, sweep)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    measured = f"Measured {now}, {times} repetition{'' if times == 1 else 's'} of {window_s:g} s"
    text = markdown(cells, measured, sweep)
    out.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(), "measured": measured, "cells": [asdict(one) for one in cells]}
    (out / "decode.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / "decode.md").write_text(text)
    print(text)
    return 0 if all(cell.runs.get("auto") for cell in cells) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
