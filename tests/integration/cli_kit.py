"""Runs the real command in a process of its own, as a shell would."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.servers import EmbeddedS3

PROGRAM = [sys.executable, "-m", "headrace.cli"]


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """A working directory with its own cache, and the variables of a store."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HEADRACE_CACHE_DIR": str(self.folder / "cache"), **self.variables}

    def run(self, *arguments: str, code: int = 0, **variables: str) -> Result:
        """Run ``headrace arguments…``, and check its exit code; no end of it may be a traceback."""
        ended = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        result = Result(ended.returncode, ended.stdout, ended.stderr)
        assert result.code == code, result
        assert "Traceback" not in result.err, result.err
        return result

    def fails(self, *arguments: str, code: int, says: str, hint: str = "", **variables: str) -> None:
        """Run a command that must fail with one message, which holds `says`, and perhaps a hint."""
        result = self.run(*arguments, code=code, **variables)
        lines = result.err.splitlines()
        assert any(line.startswith("error: ") and says in line for line in lines), result.err
        if hint:
            assert any(line.startswith("hint: ") and hint in line for line in lines), result.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run with ``--json`` and read what it prints."""
        return json.loads(self.run(*arguments, "--json", code=code).out)

    def file(self, name: str, text: str) -> Path:
        """Write a file below the working directory."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A shell in an empty folder."""
    return Shell(tmp_path)


@pytest.fixture
def s3_shell(tmp_path: Path, seaweedfs: EmbeddedS3) -> Shell:
    """A shell whose variables reach an S3 server; a bucket of its own is in ``$BUCKET``."""
    bucket = f"cli-{secrets.token_hex(4)}"
    seaweedfs.create_bucket(bucket)
    return Shell(
        tmp_path,
        {
            **seaweedfs.variables(),
            "HEADRACE_HOME": f"s3://{bucket}/home",
            "BUCKET": f"s3://{bucket}",
        },
    )
