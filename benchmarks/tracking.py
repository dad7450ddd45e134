"""What tracking costs a training loop: ``python benchmarks/tracking.py``

- *calls*: calls a second of `hr.log`, from one thread and from four, by what is logged; the files are written
  meanwhile, as they always are. The median of the repetitions.

Results go to ``benchmarks/results/tracking.{md,json}``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from report import machine

RESULTS = Path(__file__).parent / "results"
CALLS = 200_000
KINDS = {
    "one float": "{'loss': 0.5}",
    "two floats": "{'loss': 0.5, 'lr': 1e-3}",
    "ten floats": "{f'metric-{n}': 0.5 for n in range(10)}",
    "a NumPy scalar": "{'loss': np.float32(0.5)}",
    "a PyTorch scalar": "{'loss': torch.tensor(0.5)}",
}
CODE = """
import sys, threading, time
import numpy as np
if "torch" in sys.argv[1]:
    import torch
import headrace as hr
values, threads, calls = eval(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
hr.log({"warm": 0.0})
time.sleep(2)  # the thread that writes has imported what it needs
def work():
    for step in range(calls // threads):
        hr.log(values, step=step)
crew = [threading.Thread(target=work) for _ in range(threads)]
began = time.perf_counter()
[one.start() for one in crew]
[one.join() for one in crew]
print(time.perf_counter() - began)
"""


@dataclass(frozen=True)
class Row:
    """Calls a second of one kind, from so many threads."""

    kind: str
    threads: int
    calls: float
    microseconds: float


def measured(kind: str, threads: int, repetitions: int) -> Row:
    seconds: list[float] = []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory(prefix="headrace-bench-") as spool:
            command = [sys.executable, "-c", CODE, KINDS[kind], str(threads), str(CALLS)]
            variables = {**os.environ, "HEADRACE_SPOOL": spool}
            ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        seconds.append(float(ended.stdout))
    return Row(kind, threads, CALLS / median(seconds), median(seconds) / CALLS * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    rows = [measured(kind, threads, options.repetitions) for kind in KINDS for threads in (1, 4)]
    here = machine()
    lines = [f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}.", ""]
    lines += ["| logged | threads | calls/s | µs a call |", "|---|---|---|---|"]
    lines += [f"| {row.kind} | {row.threads} | {row.calls:,.0f} | {row.microseconds:.2f} |" for row in rows]
    print("\n".join(lines))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "tracking.md").write_text("\n".join(["# Calls a second of `hr.log`", "", *lines, ""]))
    (RESULTS / "tracking.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
