"""How long the command line takes to start: ``python benchmarks/start.py``

Medians of turns, interleaved: ``headrace --help`` and ``--version``, and an interpreter that does nothing. Results go
to ``benchmarks/results/start.md``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from report import machine

RESULTS = Path(__file__).parent / "results"
PROGRAM = str(Path(sys.executable).with_name("headrace"))
COMMANDS = {
    "headrace --help": [PROGRAM, "--help"],
    "headrace --version": [PROGRAM, "--version"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    took: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.repetitions + 1):
        for name, command in COMMANDS.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took[name].append(time.perf_counter() - began)
    here = machine()
    lines = [f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}.", ""]
    lines += ["| command | median | must be |", "|---|---|---|"]
    for name, times in took.items():
        lines.append(f"| `{name}` | {median(times[1:]):.3f} s | {'< 0.3 s' if 'help' in name else ''} |")
    print("\n".join(lines))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "start.md").write_text("\n".join(["# Start", "", *lines, ""]))


if __name__ == "__main__":
    main()
