"""Runs the real command in a process of its own, as a shell would.

The first success of each command in a run of tests is that of a program started afresh; the others are forks of one
process (`cli_forks`), which saves half a second of processor time each.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.cli_forks import FORKS

PROGRAM = [sys.executable, "-m", "headrace.cli"]


@dataclass(frozen=True)
class Result:
    """How a command ended; `alone`: it was a program started afresh."""

    code: int
    out: str
    err: str
    alone: bool


@dataclass
class Shell:
    """A working directory with its own cache, and the variables of a store."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)
    firsts: Path | None = None
    """Where commands that have run are noted, for all processes that run tests. None: each is started afresh."""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HEADRACE_CACHE_DIR": str(self.folder / "cache"), **self.variables}

    def run(self, *arguments: str, code: int = 0, **variables: str) -> Result:
        """Run ``headrace arguments…``, and check its exit code; no end of it may be a traceback."""
        alone = code == 0 and self._is_first(arguments[0])
        result = Result(*(_alone if alone else FORKS.run)(arguments, self.folder, self.environment | variables), alone)
        assert result.code == code, result
        assert "Traceback" not in result.err, result.err
        return result

    def _is_first(self, command: str) -> bool:
        """Whether no process of this run of tests has run it."""
        if self.firsts is None:
            return True
        try:
            (self.firsts / command).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

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


def _alone(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str, str]:
    ended = subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return ended.returncode, ended.stdout, ended.stderr


def firsts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For `Shell.firsts`."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if hasattr(request.config, "workerinput") else base) / "commands-run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def shell(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in an empty folder."""
    return Shell(tmp_path, firsts=firsts(request, tmp_path_factory))


@pytest.fixture
def s3_shell(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, seaweedfs: EmbeddedS3
) -> Shell:
    """A shell whose variables reach an S3 server; a place of its own in a bucket is in ``$BUCKET``.

    The bucket is this process's: the first object of each bucket has SeaweedFS wait for a second.
    """
    place = f"{seaweedfs.create_bucket(f'cli-{os.getpid()}')}/{secrets.token_hex(6)}"
    places = {"HEADRACE_HOME": f"{place}/home", "BUCKET": place}
    return Shell(tmp_path, {**seaweedfs.variables(), **places}, firsts(request, tmp_path_factory))
