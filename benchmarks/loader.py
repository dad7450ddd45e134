"""The loader's benchmark: ``python benchmarks/loader.py``.

Every contender runs in a process of its own against the same servers and the same data, repetitions interleaved, so
that a slow minute of the machine falls on all of them. Results go to ``benchmarks/results/loader.{json,md,svg,png}``.
See ``benchmarks/README.md``.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import data
import flat
import memory
import report
from apart import apart
from job import Job, Result
from real_store import RealStore, real_store
from rows import Contender, Row, rows
from runner import PeerError, run
from servers import StaticServer

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
CACHE = DATA / "cache"
FEW_FILES = 1000
"""Caches of at most so many files are deleted as soon as they were measured."""
KEPT = DATA / "kept"
HOME = DATA / "home"
RESULTS = HERE / "results"


@dataclasses.dataclass(frozen=True)
class Bench:
    """What all contenders share."""

    root: Path
    static: StaticServer
    real: RealStore | None
    warm_s: float
    window_s: float
    timeout_s: float
    ballast: memory.Ballast
    caches: Path = CACHE

    def job(self, contender: Contender, row: Row, cache: Path) -> Job:
        env = {
            "HEADRACE_CACHE_DIR": str(KEPT if contender.kept else cache),
            "HEADRACE_HOME": f"file://{HOME}",
            **contender.env,
        }
        if contender.server == "real":
            assert self.real is not None
            endpoint = self.real.endpoint
            env |= self.real.env
        else:
            static = self.static
            named = {"latency": static.latency, "stragglers": static.stragglers, "secure": static.secure}
            endpoint = named.get(contender.server, static.plain)
        if contender.server == "secure":  # each client takes another of these
            env |= dict.fromkeys(("AWS_CA_BUNDLE", "SSL_CERT_FILE"), str(self.static.authority))
        return Job(
            contender.peer,
            endpoint,
            str(self.root),
            contender.dataset or row.dataset,
            mode=contender.mode,
            warm_s=self.warm_s * contender.patience,
            window_s=self.window_s * contender.patience,
            options=contender.options,
            env=env,
        )

    def measure(self, contender: Contender, row: Row) -> Result:
        # A folder of its own, deleted when all is over if it holds many files: see `apart`. A few large ones go at
        # once: all together would fill the disk.
        cache = apart(self.caches) / uuid.uuid4().hex
        job = self.job(contender, row, cache)
        self.ballast.fill()
        if contender.prime:
            brief: dict[str, Any] = {"mode": "epoch", "options": {**job.options, "insist": True}}
            run(dataclasses.replace(job, **({"window_s": 0.1} if contender.kept else brief)), timeout_s=self.timeout_s)
        result = run(job, timeout_s=self.timeout_s)
        if cache.exists():
            if sum(len(names) for _, _, names in os.walk(cache)) <= FEW_FILES:
                shutil.rmtree(cache)
            os.sync()  # the next one should not pay for writing it back
        return result


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", default="1,2,3,4,5,6,7,8,9", help="which rows, comma-separated (default: all)")
    parser.add_argument(
        "--repeat", type=int, default=3, help="repetitions, interleaved; the median counts (default: 3)"
    )
    parser.add_argument("--window", type=float, default=4.0, help="seconds measured each time (default: 4)")
    parser.add_argument("--only", default="", help="only contenders whose name contains this; headrace stays")
    parser.add_argument(
        "--quick", action="store_true", help="one repetition of a second; writes below benchmarks/data/"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 unless every requirement is met")
    parser.add_argument("--caches", type=Path, default=CACHE, help="where to make the caches (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder for the results (default: benchmarks/results)")
    return parser.parse_args(given)


def repeat(bench: Bench, row: Row, contenders: Sequence[Contender], times: int) -> dict[str, list[Result]]:
    """All repetitions of one row, interleaved. A contender that fails is told and left out."""
    found: dict[str, list[Result]] = {contender.name: [] for contender in contenders}
    failed: set[str] = set()
    for turn in range(times):
        for contender in contenders:
            if contender.name in failed:
                continue
            try:
                result = bench.measure(contender, row)
            except PeerError as error:
                failed.add(contender.name)
                print(f"  {contender.name}: FAILED\n{error}", file=sys.stderr, flush=True)
                continue
            found[contender.name].append(result)
            print(
                f"  row {row.number}, {turn + 1}/{times}  {contender.name:45s} {result.rate:10,.0f} {row.unit}/s"
                f"  {result.cpu_us:9,.0f} us CPU  {result.rss / 1e6:6,.0f} MB",
                flush=True,
            )
    return {name: results for name, results in found.items() if results}


def how_long(contenders: Sequence[Contender], times: int, window: float) -> str:
    """When and for how long a row was measured, with the contenders that were given longer."""
    repetitions = f"{times} repetition{'' if times == 1 else 's'}"
    text = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC, {repetitions} of {window:g} s"
    longer = [f"{one.name}: {window * one.patience:g} s" for one in contenders if one.patience != 1]
    return f"{text} ({'; '.join(longer)})" if longer else text


def main(given: Sequence[str]) -> int:
    options = arguments(given)
    signal.signal(signal.SIGTERM, _interrupt)
    wanted = {int(number) for number in options.rows.split(",")}
    chosen = [row for row in rows(quick=options.quick) if row.number in wanted]
    out = options.out or (DATA / "quick" if options.quick else RESULTS)
    DATA.mkdir(exist_ok=True)
    print("preparing the data (made once)", flush=True)
    root = DATA / "objects"
    data.warm(data.prepare(root))
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.callback(shutil.rmtree, options.caches, ignore_errors=True)
        static = stack.enter_context(StaticServer(root, scratch / "nginx"))
        ballast = stack.enter_context(memory.ballast(DATA))
        times, window = (1, 1.0) if options.quick else (options.repeat, options.window)
        bench = Bench(root, static, None, 0.3 if options.quick else 1.0, window, 120.0, ballast, options.caches)
        done: list[report.RowResult] = []
        for row in chosen:
            print(f"{row.number}. {row.title}", flush=True)
            contenders = [c for c in row.contenders if options.only in c.name or "headrace" in c.name]
            with ExitStack() as inner:
                if any(contender.server == "real" for contender in contenders):
                    # started for its own rows only: an idle server still takes some CPU
                    tiny = int(row.dataset.removeprefix("tiny-")) if row.dataset.startswith("tiny-") else 0
                    filled = real_store(DATA / "seaweedfs", root, tiny=tiny, objects=not tiny)
                    bench = dataclasses.replace(bench, real=inner.enter_context(filled))
                for contender in contenders:
                    if "rows" in contender.options:
                        flat.snapshot(HOME, root, int(contender.options["rows"]))
                results = repeat(bench, row, contenders, times)
            done.append(report.RowResult.of(row, results, how_long(contenders, times, window)))
        text = report.write(out, done)
    print(text)
    missed = any(not outcome.passed and not outcome.reported for row in done for outcome in row.outcomes)
    return 1 if missed and options.strict else 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
