"""The tables of the performance page are those of the last results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_shows_the_results() -> None:
    told = subprocess.run([sys.executable, ROOT / "benchmarks" / "publish.py", "--check"], timeout=60)
    assert told.returncode == 0, "python benchmarks/publish.py copies the tables to docs/performance.md"
