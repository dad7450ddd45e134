"""Polars reads and writes the namespace by fsspec. In a child: it is installed beside TensorFlow and JAX."""

from __future__ import annotations

from pathlib import Path

from tests.frameworks_kit import outcomes


def test_polars(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(f'[mounts."/tables"]\nurl = "file://{tmp_path}/tables"\n')
    found = outcomes("tests.integration.polars_checks", {"HEADRACE_CACHE_SIZE": "0"}, tmp_path)
    assert found == {"check_polars": None}, found["check_polars"]
