"""Points as plain Python, and processes that log."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parent.parent
Row = tuple[str, int | None, int, str]
"""Name, step, rank, and the value as text, because NaN equals nothing."""


def rows(table: Any) -> list[Row]:
    """Of a table of points, sorted."""
    columns = (table.column(name).to_pylist() for name in ("name", "step", "rank", "value"))
    return ordered((name, step, rank, repr(value)) for name, step, rank, value in zip(*columns, strict=True))


def ordered(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row[0], row[1] is not None, row[1] or 0, *row[2:]))


def merged(segments: Path) -> list[Row]:
    """Of all segments in a folder."""
    tables = [pq.ParquetFile(path).read() for path in sorted(segments.glob("*.parquet"))]
    return ordered(row for table in tables for row in rows(table))


def python(code: str, *arguments: str, **variables: str) -> list[str]:
    """The arguments of Popen for a script, with headrace to import."""
    return ["env", f"PYTHONPATH={ROOT / 'src'}:{ROOT}", *(f"{name}={value}" for name, value in variables.items()),
            sys.executable, "-c", code, *arguments]  # fmt: skip


def ran(code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A script, to its end, which must be a good one."""
    ended = subprocess.run(
        python(code, *arguments, **variables), capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended
