"""Every benchmark that the Makefile offers starts: most of them run rarely, and what they share with others changes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OFFERED = re.findall(r"python (benchmarks/\w+\.py) \$\(ARGS\)", (ROOT / "Makefile").read_text())


def test_there_are_some() -> None:
    assert "benchmarks/why.py" in OFFERED


@pytest.mark.parametrize("program", OFFERED)
def test_it_tells_how_it_is_used(program: str) -> None:
    told = subprocess.run(
        [sys.executable, program, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith(f"usage: {Path(program).name}")
