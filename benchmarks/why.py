"""Whether ``headrace why`` is right: ``python benchmarks/why.py``

Runs whose limit is constructed (`why_cases.py`), one after the other, as real runs against SeaweedFS on the same
machine, each judged from what it left in the bucket, every second one beside a neighbour (`why_neighbours.py`). Then
what was advised is done to the case (`why_advice.py`), and it is run again: the gain that came against the gain that
was said. The confusion table, and the share that is named right; held-out cases, whose parameters set no threshold, are
counted apart. ``--repetitions``: how often; ``--only``: some of them, beside the last results of the others.

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
from contextlib import ExitStack
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
from why_advice import PACKED, advised
from why_cases import DATA, Case, cases
from why_mount import missing, mounted
from why_neighbours import beside

BUCKET = "why"
WITHIN, SURE = 1.3, 10.0
SLOWER = 0.95
"""Of the steps a second before: fewer than that is slower, not noise."""
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
    neighbour: str = ""
    action: dict[str, Any] | None = None
    rate: float = 0.0
    """Steps a second."""
    followed: float = 0.0
    """Steps a second when the advice was followed; 0: it was not."""

    @property
    def right(self) -> bool:
        return self.said == self.bound

    @property
    def came(self) -> float:
        return self.followed / self.rate if self.rate else 0.0

    @property
    def foretold(self) -> bool:
        """Within a factor of 1.3; beyond ten times no more is said than that."""
        said, came = min(self.gain, SURE), min(self.came, SURE)
        return bool(self.followed) and 1 / WITHIN <= came / said <= WITHIN


def fill(store: Store, names: set[str]) -> None:
    rng = random.Random(1)
    numbered = ((name, number) for name in sorted(names) for number in range(DATA[name][0]))
    with ThreadPoolExecutor(8) as pool:
        for batch in iter(lambda: [*islice(numbered, 256)], []):
            puts = [(f"{name}/{number:05d}.bin", rng.randbytes(DATA[name][1])) for name, number in batch]
            list(pool.map(lambda put: store.put(*put), puts))


@dataclass(frozen=True)
class Bench:
    """What all runs have in common."""

    server: EmbeddedS3
    variables: dict[str, str]
    folder: Path

    def row(self, case: Case, number: int) -> Row:
        """Run it, ask why, do what is advised, and run it again."""
        said, rate = self.run(case, f"why-{number}")
        action = said["action"]
        after = advised(case, action)
        if after is not None and after.data.endswith(PACKED):
            self.pack(case.data)
        followed = 0.0 if after is None else self.run(after, f"why-{number}-followed")[1]
        return Row(
            case.name, case.held_out, case.bound, said["class"], said["cause"], said["gain"], said["evidence"],
            case.neighbour, action, rate, followed,
        )  # fmt: skip

    def run(self, case: Case, name: str) -> tuple[dict[str, Any], float]:
        """What was said of it, and its steps a second."""
        given = {"data": f"s3://{BUCKET}/{case.data}", "told": str(self.folder / f"{name}.json")}
        variables = dict(self.variables)
        with ExitStack() as stack:
            if case.mount is not None:
                warm = case.data if case.warm else ""
                point = stack.enter_context(mounted(self.server, BUCKET, case.mount, self.folder, warm))
                given["mounted"] = f"{point}/{case.data}"
            elif case.warm:
                variables |= {"HEADRACE_CACHE_SIZE": "2GB", "HEADRACE_CACHE_DIR": str(self.folder / "cache")}
                load = [*HEADRACE, "load", given["data"]]
                subprocess.run(load, env=variables, check=True, capture_output=True, timeout=120)
            stack.enter_context(beside(case.neighbour, self.server, BUCKET, self.variables, self.folder))
            said = judged(case, given, variables, self.folder, name)
        told = json.loads(Path(given["told"]).read_text())
        return said, told["steps"] / told["seconds"]

    def pack(self, data: str) -> None:
        """Shards of `data` beside it, once."""
        done = self.folder / f"{data}{PACKED}.done"
        if not done.exists():
            command = [*HEADRACE, "pack", f"s3://{BUCKET}/{data}", f"s3://{BUCKET}/{data}{PACKED}"]
            subprocess.run(command, env=self.variables, check=True, capture_output=True, timeout=120)
            done.touch()


def judged(case: Case, given: dict[str, str], variables: dict[str, str], folder: Path, name: str) -> dict[str, Any]:
    """Run it, and ask why."""
    job = json.dumps({**case.job, **given})
    command = [*HEADRACE, "run", "--name", name, *case.options, "--", sys.executable, str(JOB), job]
    work = folder / "work"  # by itself, because its tree is recorded
    work.mkdir(exist_ok=True)
    subprocess.run(command, env=variables, cwd=work, check=True, capture_output=True, timeout=120)
    told = subprocess.run([*HEADRACE, "why", name, "--json"], env=variables, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(told.stdout)
    return said


def table(rows: Sequence[Row]) -> list[str]:
    """The confusion table: a line for each class as it is, a column for each as it was said."""
    counted = Counter((row.bound, row.said) for row in rows)
    said = [*CLASSES, *([UNKNOWN] if any(row.said == UNKNOWN for row in rows) else [])]
    lines = [f"| is, and was called | {' | '.join(said)} |", "|---" * (len(said) + 1) + "|"]
    lines += [f"| {one} | {' | '.join(str(counted[one, other] or '') for other in said)} |" for one in CLASSES]
    right = sum(row.right for row in rows)
    return [*lines, "", f"{right} of {len(rows)} right, {right / len(rows):.1%}."]


def gains(rows: Sequence[Row]) -> list[str]:
    """How often the gain was foretold, and whether advice made anything slower."""
    followed = [row for row in rows if row.followed]
    if not followed:
        return ["No advice was followed."]
    near, slower = sum(row.foretold for row in followed), [row for row in followed if row.came < SLOWER]
    return [
        f"Of {len(followed)} runs whose advice was followed, {near} came within a factor of {WITHIN} of what was said "
        f"({near / len(followed):.0%}; more than {SURE:.0f} times counts as {SURE:.0f}). Slower than before: "
        + (", ".join(f"{row.case} ({row.came:.2f})" for row in slower) or "none") + ".",
    ]  # fmt: skip


def report(rows: Sequence[Row]) -> str:
    here = machine()
    lines = [f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}.", ""]
    for title, held_out in (("Cases that thresholds were looked at with", False), ("Held-out cases", True)):
        chosen = [row for row in rows if row.held_out == held_out]
        if chosen:
            lines += [f"## {title}", "", *table(chosen), ""]
    lines += ["## The gain that was said, and the gain that came", "", *gains(rows), ""]
    lines += [
        "## Every run", "",
        "| case | beside it | is | was called | cause | gain said | advice followed | gain that came |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        wrong, off = "" if row.right else " **wrong**", "" if row.foretold or not row.followed else " **off**"
        action = row.action["name"] if row.action and row.followed else ""
        came = f"{row.came:.1f}{off}" if row.followed else ""
        said = f"{row.bound} | {row.said}{wrong} | {row.cause}"
        lines.append(f"| {row.case} | {row.neighbour} | {said} | {row.gain:.1f} | {action} | {came} |")
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
        fill(open_store(f"s3://{BUCKET}", server.options()), {"small", *(case.data for case in chosen)})
        variables = {
            **os.environ, "AWS_ENDPOINT_URL_S3": server.endpoint, "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "HEADRACE_CACHE_SIZE": "0", "HEADRACE_HOME": f"s3://{BUCKET}/home",
            "HEADRACE_RUN_STATE": f"{folder}/runs", "HEADRACE_RUN_CACHE": f"{folder}/kept",
        }  # fmt: skip
        bench = Bench(server, variables, Path(folder))
        for number, case in enumerate(case for _ in range(options.repetitions) for case in chosen):
            row = bench.row(case, number)
            told = f"; {row.action['name']}: {row.gain:.2f} said, {row.came:.2f} came" if row.action else ""
            mark = "! " if not row.right else "* " if row.followed and not row.foretold else "  "
            beside = f", beside {row.neighbour}" if row.neighbour else ""
            print(f"{mark}{case.name}{beside}: {row.bound}, called {row.said} ({row.cause}){told}", flush=True)
            rows.append(row)
    rows = with_kept(rows) if options.only else rows
    text = report(rows)
    print(text)
    (RESULTS / "why.md").write_text(text)
    kept = {"machine": machine(), "rows": [asdict(row) for row in rows]}
    (RESULTS / "why.json").write_text(json.dumps(kept, indent=1))


def with_kept(rows: Sequence[Row]) -> list[Row]:
    """These, and the last results of the other cases, if they are of this machine."""
    kept = json.loads((RESULTS / "why.json").read_text()) if (RESULTS / "why.json").exists() else {}
    if kept.get("machine") != machine():
        return list(rows)
    others = [Row(**row) for row in kept["rows"]]
    new = {row.case for row in rows}
    return [*(row for row in others if row.case not in new), *rows]


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt  # so that nothing stays mounted


if __name__ == "__main__":
    main()
