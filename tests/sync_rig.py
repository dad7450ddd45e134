"""``headrace sync`` of a folder into a bucket, in a process of its own that can be killed and started again."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.store import Store, open_store
from headrace.testing.servers import EmbeddedS3

COMMAND = [sys.executable, "-m", "headrace.cli"]


@dataclass
class Rig:
    """A folder `out`, a bucket, and what this machine remembers of the two."""

    server: EmbeddedS3
    scratch: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    bucket: str = field(default_factory=lambda: f"sync-{secrets.token_hex(4)}")
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        self.server.create_bucket(self.bucket)
        self.folder.mkdir()

    @property
    def folder(self) -> Path:
        return self.scratch / "out"

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/runs/one"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.server.variables(),
            "HEADRACE_CACHE_SIZE": "0",
            "HEADRACE_SYNC_STATE": str(self.scratch / "state"),
            **self.variables,
        }

    def run(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """One command, to its end."""
        return subprocess.run(
            [*COMMAND, "sync", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def once(self, *arguments: str) -> dict[str, Any]:
        """Send what is there; the report."""
        ended = self.run(str(self.folder), self.url, "--once", "--json", *arguments)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def start(self, *arguments: str) -> None:
        """Follow the folder, until `stop` or `kill`."""
        command = [*COMMAND, "sync", str(self.folder), self.url, "--json", *arguments]
        self.process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert "follows" in line, line + self.process.stderr.read()

    def stop(self, number: int = signal.SIGTERM, timeout: float = 90) -> tuple[int, dict[str, Any], str]:
        """Signal it; its exit code, report and messages."""
        assert self.process is not None
        self.process.send_signal(number)
        told, said = self.process.communicate(timeout=timeout)
        code, self.process = self.process.returncode, None
        return code, json.loads(told) if told else {}, said

    def kill(self) -> None:
        """As a crash of the machine would, for this process."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate(timeout=30)
        self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.kill()

    def store(self) -> Store:
        return open_store(f"s3://{self.bucket}", self.server.options())

    def names(self) -> list[str]:
        """What is there, below the URL."""
        return [info.key.removeprefix("runs/one/") for page in self.store().list("runs/one/") for info in page]

    def objects(self) -> dict[str, bytes]:
        """The same with what it holds."""
        store = self.store()
        return {name: bytes(store.get(f"runs/one/{name}").data) for name in self.names()}

    def has(self, name: str, body: bytes | None = None) -> bool:
        """Whether an object is there, with these bytes."""
        try:
            found = bytes(self.store().get(f"runs/one/{name}").data)
        except HeadraceError:
            return False
        return body is None or found == body

    def status(self) -> list[dict[str, Any]]:
        """What ``--status`` says."""
        return json.loads(self.run("--status", "--json").stdout)


def wait_for(true: Callable[[], object], timeout_s: float = 30) -> bool:
    """Whether it becomes true in time."""
    until = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
