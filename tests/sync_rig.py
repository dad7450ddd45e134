"""``headrace sync`` of a folder into a bucket, in a process of its own that can be killed and started again."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.base.errors import HeadraceError
from headrace.base.ports import reserve_port
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
    _store: Store | None = field(default=None, init=False, repr=False)

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
            "HEADRACE_RUN_STATE": str(self.scratch / "runs"),
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
        if self._store is None:
            self._store = open_store(f"s3://{self.bucket}", self.server.options())
        return self._store

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


class Relay:
    """A port that leads to a server while it is open: the way to a shared server that is away for one test only.

    `url`: of the port, which refuses connections before `open` and after `close`. `turned_away`: how many came while
    it was cut.
    """

    def __init__(self, url: str) -> None:
        self._to = int(url.rpartition(":")[2])
        self.port = reserve_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.turned_away = 0
        self._lock = threading.Lock()
        self._cut = False
        self._listener: socket.socket | None = None
        self._passing: set[socket.socket] = set()

    def open(self) -> None:
        """Let through what comes."""
        with self._lock:
            self._cut = False
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End what passes, and everything that comes from now on, without an answer."""
        with self._lock:
            self._cut = True
            passing, self._passing = self._passing, set()
        for one in passing:
            _end(one)

    def close(self) -> None:
        """The same, and connections are refused. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                here, _ = listener.accept()
                self._pass(here)

    def _pass(self, here: socket.socket) -> None:
        with self._lock:
            if self._cut:
                self.turned_away += 1
                here.close()
                return
            there = socket.create_connection(("127.0.0.1", self._to))
            self._passing |= {here, there}
        for one, other in ((here, there), (there, here)):
            threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for each in (one, other):
            _end(each)
        with self._lock:
            self._passing.discard(one)
        one.close()


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def wait_for(true: Callable[[], object], timeout_s: float = 30, every_s: float = 0.05) -> bool:
    """Whether it becomes true in time; asked so often, which is for what is dear to ask."""
    until = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(every_s)
    return True
