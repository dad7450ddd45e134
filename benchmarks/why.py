"""Whether ``headrace why`` is right: ``python benchmarks/why.py``

Runs whose limit is constructed (`why_cases.py`), one after the other, as real runs against SeaweedFS on the same
machine, each judged from what it left in the bucket. The confusion table, and the share that is named right; held-out
cases, whose parameters set no threshold, are counted apart. ``--repetitions``: how often; ``--only``: some of them.

Results go to ``benchmarks/results/why.{md,json}``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from headrace.base.verdict import CLASSES, UNKNOWN
from headrace.store import Store, open_store
from headrace.store.embedded import EmbeddedS3
from loader import RESULTS
from report import machine
from why_cases import DATA, Case, cases
from why_mount import missing, mounted

BUCKET = "why"
JOB = Path(__file__).with_name("why_job.py")
HEADRACE = [sys.executable, "-m", "headrace.cli"]


@dataclass(frozen=True)
class Row:
    """One run, and what was said of it."""

    case: str
    held_out: bool
    bound: str
    said: str
    cause: str
    gain: float
    evidence: list[str]

    @property
    def right(self) -> bool:
        return self.said == self.bound


def fill(store: Store, names: set[str]) -> None:
    rng = random.Random(1)
    numbered = ((name, number) for name in sorted(names) for number in range(DATA[name][0]))
    with ThreadPoolExecutor(8) as pool:
        for batch in iter(lambda: [*islice(numbered, 256)], []):
            puts = [(f"{name}/{number:05d}.bin", rng.randbytes(DATA[name][1])) for name, number in batch]
            list(pool.map(lambda put: store.put(*put), puts))


def run(case: Case, server: EmbeddedS3, variables: dict[str, str], folder: Path, number: int) -> Row:
    data = {"data": f"s3://{BUCKET}/{case.data}"}
    if case.mount is None:
        return judged(case, data, variables, folder, number)
    with mounted(server, BUCKET, case.mount, folder) as point:
        return judged(case, {**data, "mounted": f"{point}/{case.data}"}, variables, folder, number)


def judged(case: Case, data: dict[str, str], variables: dict[str, str], folder: Path, number: int) -> Row:
    """Run it, and ask why."""
    job = json.dumps({**case.job, **data})
    name = f"why-{number}"
    command = [*HEADRACE, "run", "--name", name, *case.options, "--", sys.executable, str(JOB), job]
    work = folder / "work"  # by itself, because its tree is recorded
    work.mkdir(exist_ok=True)
    subprocess.run(command, env=variables, cwd=work, check=True, capture_output=True, timeout=120)
    told = subprocess.run([*HEADRACE, "why", name, "--json"], env=variables, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(told.stdout)
    return Row(case.name, case.held_out, case.bound, said["class"], said["cause"], said["gain"], said["evidence"])


def table(rows: Sequence[Row]) -> list[str]:
    """The confusion table: a line for each class as it is, a column for each as it was said."""
    counted = Counter((row.bound, row.said) for row in rows)
    said = [*CLASSES, *([UNKNOWN] if any(row.said == UNKNOWN for row in rows) else [])]
    lines = [f"| is, and was called | {' | '.join(said)} |", "|---" * (len(said) + 1) + "|"]
    lines += [f"| {one} | {' | '.join(str(counted[one, other] or '') for other in said)} |" for one in CLASSES]
    right = sum(row.right for row in rows)
    return [*lines, "", f"{right} of {len(rows)} right, {right / len(rows):.1%}."]


def report(rows: Sequence[Row]) -> str:
    here = machine()
    lines = [f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}.", ""]
    for title, held_out in (("Cases that thresholds were looked at with", False), ("Held-out cases", True)):
        chosen = [row for row in rows if row.held_out == held_out]
        if chosen:
            lines += [f"## {title}", "", *table(chosen), ""]
    lines += ["## Every run", "", "| case | is | was called | cause | gain at most |", "|---|---|---|---|---|"]
    for row in rows:
        wrong = "" if row.right else " **wrong**"
        lines.append(f"| {row.case} | {row.bound} | {row.said}{wrong} | {row.cause} | {row.gain:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name or class holds this")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    chosen = [case for case in cases() if options.only in case.name or options.only in case.bound]
    if reason := missing():
        print(f"{reason}: cases of a mount are left out", flush=True)
        chosen = [case for case in chosen if case.mount is None]
    rows: list[Row] = []
    with EmbeddedS3() as server, tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        server.create_bucket(BUCKET)
        fill(open_store(f"s3://{BUCKET}", server.options()), {case.data for case in chosen})
        variables = {
            **os.environ, "AWS_ENDPOINT_URL_S3": server.endpoint, "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "HEADRACE_CACHE_SIZE": "0", "HEADRACE_HOME": f"s3://{BUCKET}/home",
            "HEADRACE_RUN_STATE": f"{folder}/runs", "HEADRACE_RUN_CACHE": f"{folder}/kept",
        }  # fmt: skip
        for number, case in enumerate(case for _ in range(options.repetitions) for case in chosen):
            row = run(case, server, variables, Path(folder), number)
            print(f"{'  ' if row.right else '! '}{case.name}: {row.bound}, called {row.said} ({row.cause})", flush=True)
            rows.append(row)
    text = report(rows)
    print(text)
    if not options.only:
        (RESULTS / "why.md").write_text(text)
        kept = {"machine": machine(), "rows": [asdict(row) for row in rows]}
        (RESULTS / "why.json").write_text(json.dumps(kept, indent=1))


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # so that nothing stays mounted


if __name__ == "__main__":
    main()
