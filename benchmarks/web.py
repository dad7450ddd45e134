"""The page over the bucket, looked at in a real browser: ``python benchmarks/web.py``

- *home*: a home of many runs: from the click to the first row in Debian's Chromium, cold and warm, in turns with
  MLflow, which has as many runs in SQLite.
- *run*: a run with one metric of very many points: to its curve; TensorBoard over an event file with the same points.
- *compare*: twenty runs one over the other, TensorBoard and MLflow at the size each can take.
- *shared*: 50 runs × 10 metrics × 1,000 points: first curve and heap, TensorBoard, MLflow and trackio beside it.
- *log*: a log of very many lines: to a line near its end; then frames while one is followed that grows by 1,000 lines
  a second.
- *viewers*: requests to the store, as the store sees them, and memory of the server, with one viewer of a live run and
  with fifty; bytes of the first load of a run's page.
- *thumbnails*: sixty of them out of a snapshot of ten million objects.

Peers are in .tools/trackers and .tools/trackio (``scripts/framework-tools trackers``, and ``trackio``); nginx is
Debian's. What is made once lies in ``benchmarks/data/web``. A wait that takes longer than ``--limit`` says what it
waited for, what the browser's console said, and where a picture of its page lies. Results go to
``benchmarks/results/web-ROW.{md,json}``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from playwright.sync_api import sync_playwright

from headrace.store import open_store
from headrace.store.embedded import EmbeddedS3
from report import machine
from web_bench import Bench
from web_log import log
from web_rows import compare, home, run, shared
from web_thumbnails import thumbnails
from web_viewers import viewers

RESULTS = Path(__file__).parent / "results"
ROWS = {
    "home": home, "run": run, "compare": compare, "shared": shared, "log": log, "viewers": viewers,
    "thumbnails": thumbnails,
}  # fmt: skip


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", default="", help=f"rows, with commas between them: {', '.join(ROWS)}")
    add("--runs", type=int, default=10_000, help="of home")
    add("--points", type=int, default=10_000_000, help="of run")
    add("--compared", type=int, default=100_000_000, help="points of all runs together, ours alone")
    add("--compared-tensorboard", type=int, default=10_000_000, metavar="POINTS", help="ours and TensorBoard")
    add("--compared-mlflow", type=int, default=1_000_000, metavar="POINTS", help="ours and MLflow")
    add("--shared", type=int, nargs=3, default=(50, 10, 1000), metavar=("RUNS", "METRICS", "POINTS"))
    add("--lines", type=int, default=10_000_000, help="of log")
    add("--seconds", type=int, default=60, help="how long a log is followed, and viewers are counted")
    add("--objects", type=int, default=10_000_000, help="of thumbnails")
    add("--turns", type=int, default=5)
    add("--cold-turns", type=int, default=3, help="of home")
    add("--limit", type=int, default=120, metavar="SECONDS", help="how long a browser is waited for")
    add("--out", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args()
    options.only = [one for one in options.only.split(",") if one]
    if unknown := set(options.only) - ROWS.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    options = parsed()
    path = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-") as scratch,
        EmbeddedS3() as server,
        sync_playwright() as playwright,
    ):
        server.create_bucket("bench")
        os.environ.update(server.variables())
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for name in options.only or ROWS:
            bench = Bench(open_store("s3://bench"), server, Path(scratch), browser, options)
            ROWS[name](bench)
            write(name, bench)
        browser.close()


def write(name: str, bench: Bench) -> None:
    """A row that has ended is kept, whatever becomes of the next."""
    here = machine()
    told = f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}"
    lines = [f"{told}; client, server and store share them.", "", "| work | value | |", "|---|---|---|"]
    lines += [f"| {one.name} | {one.value:,.4g} {one.unit} | {one.told} |" for one in bench.rows]
    (bench.options.out / f"web-{name}.md").write_text("\n".join(lines) + "\n")
    found = {"machine": here, "rows": [asdict(one) for one in bench.rows]}
    (bench.options.out / f"web-{name}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
