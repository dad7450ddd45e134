"""The real JupyterLab, from `.tools/notebooks`: started by ``headrace jupyter`` or by itself, and asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.children import running
from tests.runs_rig import RunsRig

TOOLS = Path(__file__).parent.parent / ".tools/notebooks"
PYTHON = str(TOOLS / "bin/python")
COMMAND = [PYTHON, "-m", "headrace.cli", "jupyter"]


def variables(scratch: Path) -> dict[str, str]:
    """With which Jupyter keeps to itself. Skips where it is not installed."""
    if not (TOOLS / ".headrace").exists():
        pytest.skip("JupyterLab is not installed: scripts/framework-tools notebooks")
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "JUPYTER_CONFIG_DIR": str(home / ".jupyter"), "IPYTHONDIR": str(home / ".ipython")}


@dataclass(frozen=True)
class Lab:
    """`url`: without the token; `entry`: with it."""

    url: str
    entry: str
    process: subprocess.Popen[str]

    @property
    def token(self) -> str:
        return self.entry.rpartition("token=")[2]

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        told = {"authorization": f"token {self.token}"}
        return httpx.request(method, self.url + path, headers=told, json=body, timeout=30)

    def drive(self) -> str:
        """What jupyter-fs calls the first of its drives."""
        return str(self.ask("GET", "/jupyterfs/resources").json()[0]["drive"])

    def at(self, path: str) -> str:
        """Of a path in the drive."""
        return f"/api/contents/{self.drive()}:{path}"

    def model(self, path: str, query: str = "") -> dict[str, Any]:
        answer = self.ask("GET", self.at(path) + query)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def lab(rig: RunsRig, *options: str, more: Mapping[str, str] | None = None) -> Iterator[Lab]:
    """``headrace jupyter``, until Ctrl-C."""
    environ = {**rig.environment, **(more or {})}
    with running(
        [*COMMAND, "--json", *options], env=environ, cwd=rig.work, stdout=subprocess.PIPE, text=True
    ) as process:
        told = told_by(process)
        yield Lab(told["id"], told["url"], process)
        process.send_signal(signal.SIGINT)
        process.wait(20)


def told_by(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The first JSON object that a command prints."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            break
    return json.loads("".join(lines))


@contextmanager
def plain_lab(rig: RunsRig, port: int, base: str, *, token: str) -> Iterator[Lab]:
    """JupyterLab by itself, as its own settings say; `base`: as a hub puts before every path."""
    argv = [PYTHON, "-m", "jupyterlab", "--no-browser", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    argv += [f"--ServerApp.base_url={base}/"]
    argv += ["--allow-root"] if os.geteuid() == 0 else []
    environ = {**rig.environment, "JUPYTER_TOKEN": token}
    with running(argv, env=environ, cwd=rig.work, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}{base}"
        yield Lab(url, f"{url}/lab?token={token}", process)
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def run(
    rig: RunsRig, *options: str, code: int = 0, python: Sequence[str] = COMMAND
) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    ended = subprocess.run(
        [*python, *options], env=rig.environment, cwd=rig.work, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
    return ended
