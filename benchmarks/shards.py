"""The benchmark of shards: ``python benchmarks/shards.py``. Contenders and method as in ``benchmarks/loader.py``.

Results go to ``benchmarks/results/shards/``.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import data
import report
from job import Job
from loader import CACHE, DATA, RESULTS, Bench, how_long, repeat
from rows import Contender, Requirement, Row, ours
from servers import StaticServer

_BATCH = {"large": 4, "tenk": 64}


class ShardBench(Bench):
    """Batches as large as the samples suggest."""

    def job(self, contender: Contender, row: Row, cache: Path) -> Job:
        return dataclasses.replace(super().job(contender, row, cache), batch=_BATCH[row.dataset])


def _row(number: int, title: str, dataset: str) -> Row:
    ordered = {order: f"headrace, {order}" for order in ("sequential", "blocked", "global")}
    contenders = [
        *(ours(name, "headrace_shards", options={"order": order}, kept=True) for order, name in ordered.items()),
        Contender("webdataset, in process", "webdataset_shards"),
        Contender("webdataset, DataLoader, 2 workers", "webdataset_shards", options={"workers": 2}),
    ]
    of, inside, workers = ordered["blocked"], contenders[3].name, contenders[4].name
    requirements = [
        Requirement("≥ 4x webdataset in DataLoader workers", "ratio", 4.0, of, (workers,)),
        Requirement("≥ 2x webdataset in process", "ratio", 2.0, of, (inside,)),
    ]
    if dataset == "large":
        contenders.append(Contender("wrk (C) over single objects", "wrk"))
        requirements.append(Requirement("≥ 80 % of the C client's byte rate", "ratio", 0.8, of, (contenders[5].name,)))
    text, told = "global shuffle ≥ 60 % of the blocked rate", dataset != "large"
    requirements.append(Requirement(text, "ratio", 0.6, ordered["global"], (of,), reported=told))
    return Row(number, title, dataset, tuple(contenders), tuple(requirements))


ROWS = (
    _row(1, "Tar shards, samples of 4.2 MB", "large"),
    _row(2, "Tar shards, samples of 10 kB", "tenk"),
    Row(3, "Index of tar shards, samples of 4.2 MB", "large", (ours("headrace, index", "shards_index"),), ()),
    Row(4, "Index of tar shards, samples of 10 kB", "tenk", (ours("headrace, index", "shards_index"),), ()),
)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rows", default="1,2,3,4", help="which rows, comma-separated (default: all)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, interleaved (default: 3)")
    parser.add_argument("--window", type=float, default=4.0, help="seconds measured each time (default: 4)")
    options = parser.parse_args(given)
    wanted = {int(number) for number in options.rows.split(",")}
    DATA.mkdir(exist_ok=True)
    root = DATA / "shards"
    data.warm(data.prepare_shards(root))
    scratch = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    done: list[report.RowResult] = []
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        stack.callback(shutil.rmtree, CACHE, ignore_errors=True)
        static = stack.enter_context(StaticServer(root, scratch / "nginx"))
        bench: Any = ShardBench(root, static, None, 1.0, options.window, 120.0)
        for row in (one for one in ROWS if one.number in wanted):
            results = repeat(bench, row, row.contenders, options.repeat)
            done.append(report.RowResult.of(row, results, how_long(row.contenders, options.repeat, options.window)))
    print(report.write(RESULTS / "shards", done))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
