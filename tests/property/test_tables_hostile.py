"""Nothing that a table holds ends the process: damaged tables by the thousand, and encrypted ones."""

from __future__ import annotations

import base64
import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import headrace as hr
from headrace.base.errors import UnsupportedError


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_tables_are_refused_or_read(kind: str, seed: int) -> None:
    """In a process of its own, which says last which of them ended it."""
    argv = [sys.executable, "-m", "tests.property.tables_hostile", kind, str(seed), "600"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    least = 20 if kind == "stream" else 100  # whose end is no footer, where damage shows at once
    assert least < int(done.stdout) < 600


class _Keys(pe.KmsClient):
    def wrap_key(self, key_bytes: Any, master_key_identifier: Any) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: Any, master_key_identifier: Any) -> bytes:
        return base64.b64decode(wrapped_key)


def _encrypted(path: Path, *, plaintext_footer: bool) -> None:
    table = pa.table({"x": range(100), "y": [float(number) for number in range(100)]})
    config = pe.EncryptionConfiguration(
        footer_key="f", column_keys={"k": ["x"]}, plaintext_footer=plaintext_footer,
        cache_lifetime=datetime.timedelta(minutes=5),
    )  # fmt: skip
    factory = pe.CryptoFactory(lambda _: _Keys())
    keys = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
    with pq.ParquetWriter(path, table.schema, encryption_properties=keys) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("plaintext_footer", [True, False])
@pytest.mark.parametrize("asked", [{}, {"columns": ["y"]}, {"where": [("x", "<", 5)]}], ids=["all", "columns", "where"])
def test_encrypted_columns_are_refused_by_name(tmp_path: Path, plaintext_footer: bool, asked: dict[str, Any]) -> None:
    _encrypted(tmp_path / "a.parquet", plaintext_footer=plaintext_footer)
    for target in (tmp_path, tmp_path / "a.parquet"):
        with pytest.raises(UnsupportedError, match="encrypted") as refused:
            hr.Dataset.open(target, **asked)
        assert "a.parquet" in str(refused.value)
        assert "without modular encryption" in (refused.value.hint or "")
