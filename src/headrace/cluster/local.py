"""A Ray cluster whose nodes are processes of this machine: for the demo, for tests, and to try things on.

Nodes have addresses of the loopback, a token of their own lets in who has it, and all ends with whoever closes it. A
node can be killed as a machine dies.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from headrace.base.errors import TryAgainError
from headrace.base.ports import reserve_port
from headrace.base.settings import whole_environment
from headrace.tracking.samplers_job import Tree

_NET: Final = "127.0.91."
"""Each node has an address of its own. Ray takes 127.0.0.1 for a slip, and would listen to the outside."""
_HOST: Final = f"{_NET}1"
_ALL: Final = "0.0.0.0"  # noqa: S104 - nothing is bound: ports are asked for
"""Whatever address a node is told, Ray listens on all of them, or on 127.0.0.1 beside: a port must be free on each."""
_HEAD: Final = os.path.join(os.path.dirname(__file__), "local_head")
_STORE_BYTES: Final = 80_000_000
"""Ray's least is 75 MB; nothing of ours goes through its object store."""
_START_S: Final = 120.0  # seconds for a node of Ray's to start
_NICE: Final = "RAY_worker_niceness"
"""Ray's workers give way to everybody else (15): on a machine that does other work, too, they would hardly run."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One of them. `name`: of its log."""

    process: subprocess.Popen[bytes] = field(repr=False)
    name: str

    def kill(self) -> None:
        """As if its power was cut: all that runs on it ends at once."""
        if self.process.poll() is not None:
            return
        tree = Tree(self.process.pid)
        tree.sample(None)
        for pid in (*tree.members, self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def notice(self) -> None:
        """As if its machine was to be taken away in 30 seconds: it drains, and ends by itself."""
        self.process.terminate()


class LocalCluster:
    """One head without CPUs, and nodes as they are added. One thread.

    Args:
        python: the interpreter that has Ray, and headrace for the nodes; None: this one.
        variables: what the nodes have set besides this process's.
        dashboard: with Ray's page and its jobs API, at `dashboard`.

    Raises:
        TryAgainError: it does not start.
    """

    def __init__(
        self, *, python: str | None = None, variables: Mapping[str, str] | None = None, dashboard: bool = False
    ) -> None:
        self._python = python or sys.executable
        self._folder = tempfile.mkdtemp(prefix="hr-ray-")  # short: sockets lie below it
        self._token = secrets.token_hex(16)
        self._environment = {**whole_environment(), _NICE: "0", **(variables or {}), **self.variables()}
        self._gcs, self._client = reserve_port(_ALL), reserve_port(_ALL)
        self.address = f"ray://{_HOST}:{self._client}"
        self.inside = f"{_HOST}:{self._gcs}"
        """Where a process of the cluster's own machines finds it."""
        port = reserve_port(_ALL)
        self.dashboard = f"http://{_HOST}:{port}" if dashboard else ""
        shown = ["--include-dashboard=true", f"--dashboard-host={_HOST}", f"--dashboard-port={port}"]
        self.nodes: list[LocalNode] = []
        self._added = 0
        try:
            self._head = self._start(
                "head", _HOST, ["--head", f"--port={self._gcs}", f"--ray-client-server-port={self._client}",
                                "--num-cpus=0", f"--temp-dir={self._folder}",
                                *(shown if dashboard else ["--include-dashboard=false"])],
                {"PYTHONPATH": os.pathsep.join([_HEAD, *filter(None, [self._environment.get("PYTHONPATH")])])},
            )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def variables(self) -> dict[str, str]:
        """What a process needs to be let in."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token, "RAY_USAGE_STATS_ENABLED": "0"}

    def add(self, cpus: int = 1, variables: Mapping[str, str] | None = None) -> LocalNode:
        """One more node. `variables`: of this one. Raises TryAgainError: it does not start."""
        self._added += 1
        options = [f"--address={_HOST}:{self._gcs}", f"--num-cpus={cpus}"]
        self.nodes.append(self._start(f"node{self._added}", f"{_NET}{self._added + 1}", options, variables or {}))
        return self.nodes[-1]

    def kill_head(self) -> None:
        """As if the power of the head's machine was cut. The nodes are on their own."""
        self._head.kill()

    def close(self) -> None:
        """All of it is gone. Idempotent."""
        for node in [*self.nodes, *([self._head] if hasattr(self, "_head") else [])]:
            node.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, name: str, address: str, options: list[str], variables: Mapping[str, str]) -> LocalNode:
        path = os.path.join(self._folder, f"{name}.log")
        with open(path, "wb") as log:
            process = subprocess.Popen(
                [self._python, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={address}",
                 f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats", "--include-log-monitor=false",
                 f"--dashboard-agent-listen-port={reserve_port(_ALL)}", *options],
                env={**self._environment, **variables}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + _START_S
        while b"Ray runtime started" not in (told := _read(path)):
            if process.poll() is not None or time.monotonic() > until:
                LocalNode(process, name).kill()
                lines = told.decode(errors="replace").splitlines()[-5:]
                raise TryAgainError(f"Ray does not start: {' / '.join(lines)}", path=name)
            time.sleep(0.05)
        return LocalNode(process, name)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
