"""``headrace run`` and what reads its runs, as commands in processes of their own, over a real S3 server."""

from __future__ import annotations

import json
import os
import pty
import secrets
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.base.errors import NotFoundError
from headrace.store import Store, open_store
from headrace.testing.servers import EmbeddedS3
from tests.cli_forks import FORKS

COMMAND = [sys.executable, "-m", "headrace.cli"]
Ended = subprocess.CompletedProcess[str]
_SEEN: set[str] = set()
"""Commands that this process has run."""


@dataclass
class RunsRig:
    """A home in a bucket, a folder to work in, and a state folder; `variables` are added to every command's."""

    server: EmbeddedS3
    scratch: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    bucket: str = field(default_factory=lambda: f"runs-{secrets.token_hex(4)}")
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    python: str = sys.executable
    """Of the commands."""
    _store: Store | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.server.create_bucket(self.bucket)
        self.work.mkdir(parents=True, exist_ok=True)

    @property
    def work(self) -> Path:
        return self.scratch / "work"

    @property
    def state(self) -> Path:
        """Where runs of this machine lie until they are in the bucket."""
        return self.scratch / "runs"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.server.variables(),
            "HEADRACE_CACHE_SIZE": "0",
            "HEADRACE_HOME": f"s3://{self.bucket}/home",
            "HEADRACE_RUN_STATE": str(self.state),
            "HEADRACE_RUN_CACHE": str(self.scratch / "kept"),
            "HEADRACE_SYNC_STATE": str(self.scratch / "sync"),
            **self.variables,
        }

    def headrace(self, *arguments: str, code: int = 0, timeout: float = 90) -> Ended:
        """One command, to its end, which has to be `code`."""
        command = [self.python, *COMMAND[1:], *arguments]
        if self._can_be_a_fork(arguments[0]):
            ended = Ended(command, *FORKS.run(arguments, self.work, self.environment, timeout))
        else:
            ended = subprocess.run(
                command, env=self.environment, cwd=self.work, capture_output=True, text=True, timeout=timeout,
                check=False, stdin=subprocess.DEVNULL, errors="surrogateescape",
            )  # fmt: skip
        assert ended.returncode == code, (ended.returncode, ended.stdout, ended.stderr)
        return ended

    def _can_be_a_fork(self, command: str) -> bool:
        """Each process that runs tests sees the first of each command as a program of its own."""
        if self.python != sys.executable or any(name.startswith(("PYTHON", "LD_")) for name in self.variables):
            return False
        known = command in _SEEN
        _SEEN.add(command)
        return known

    def at_a_terminal(
        self, *arguments: str, answers: Mapping[bytes, bytes], size: tuple[int, int] | None = None, timeout: float = 90
    ) -> tuple[bytes, int]:
        """A command at a terminal of its own, of `size` rows and columns. Each answer is typed once, when its question
        is seen. Returns what was seen, and the code; a command that takes longer is killed.
        """
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.work)
            os.execve(self.python, [self.python, *COMMAND[1:], *arguments], self.environment)
        if size is not None:
            termios.tcsetwinsize(terminal, size)
        seen, waiting, until = b"", dict(answers), time.monotonic() + timeout
        while time.monotonic() < until:
            ready, _, _ = select.select([terminal], [], [], 0.1)
            try:
                seen += os.read(terminal, 4096) if ready else b""
            except OSError:
                break
            for question in [one for one in waiting if one in seen][:1]:
                os.write(terminal, waiting.pop(question))
        else:
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(terminal)
        return seen, code

    def json(self, *arguments: str) -> Any:
        """What a command says with ``--json``."""
        return json.loads(self.headrace(*arguments, "--json").stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that goes on; killed at the end of the test."""
        process = subprocess.Popen(
            [self.python, *COMMAND[1:], *arguments], env=self.environment, cwd=self.work, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def script(self, text: str, name: str = "train.py") -> str:
        """A program in the working folder."""
        (self.work / name).write_text(textwrap.dedent(text))
        return name

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)

    # what is in the bucket

    def store(self) -> Store:
        if self._store is None:
            self._store = open_store(f"s3://{self.bucket}", self.server.options())
        return self._store

    def names(self, run: str) -> list[str]:
        """Everything of a run, below its folder."""
        prefix = f"home/runs/{run}/"
        return sorted(info.key.removeprefix(prefix) for page in self.store().list(prefix) for info in page)

    def read(self, run: str, name: str) -> bytes | None:
        try:
            return bytes(self.store().get(f"home/runs/{run}/{name}").data)
        except NotFoundError:
            return None

    def ids(self) -> list[str]:
        """Of all runs, the newest first. The ids that are made tell the second; of one second the records know."""
        folders = self.store().list_folder("home/runs/").folders
        ids = [one.rstrip("/").rpartition("/")[2] for one in folders]
        of_a_second = Counter(one[:15] for one in ids)

        def begun(run: str) -> tuple[str, str]:
            record = json.loads(self.read(run, "run.json") or b"{}") if of_a_second[run[:15]] > 1 else {}
            return run[:15], record.get("created", "")

        return sorted(sorted(ids), key=begun, reverse=True)

    def states(self, run: str) -> list[str]:
        """Its transitions."""
        return [name[13:-5] for name in self.names(run) if name.startswith("status/")]

    def only(self) -> str:
        """The id of the only run."""
        (run,) = self.ids()
        return run
