"""JupyterLab over the namespace, from its start to its end; nothing of it stays.

What Jupyter writes while it runs (its token, its kernels' keys) is in a folder that goes with it. Its own settings, and
the working folder that it shows beside the namespace, are the user's.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.settings import whole_environment
from headrace.tracking.program import Command, Program, address, choose_port
from headrace.web.jupyter.configured import Shown, write
from headrace.web.jupyter.proxied import FOLDER
from headrace.web.private_socket import folder_for_sockets

_USUAL_PORT: Final = 8888  # Jupyter's own
_KERNEL_S: Final = 0.4
"""Seconds that a kernel has to end in order, of the two that Ctrl-C leaves for all."""
_END_S: Final = 1.0  # seconds to end in order; then by signals


@dataclass(frozen=True, slots=True)
class Running:
    """`url`: without the token, which Jupyter has chosen; `entry`: with it; `shown`: what its file browser shows."""

    program: Program
    url: str
    token: str
    shown: Shown

    @property
    def entry(self) -> str:
        """What is opened first."""
        return f"{self.url}/lab" + (f"?token={self.token}" if self.token else "")

    def wait(self) -> None:
        """Until somebody shuts it down in the browser. Raises TryAgainError: it failed."""
        while not self.program.ended:
            time.sleep(0.2)
        if self.program.code:
            self.program.check()

    def shut_down(self) -> None:
        """Have it end, kernels first: a signal would not do once it has started a server that it is a proxy for."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}/api/shutdown", b"", headers, method="POST")  # noqa: S310
        with suppress(OSError), urllib.request.urlopen(request, timeout=_END_S):  # noqa: S310 - loopback
            until = time.monotonic() + _END_S
            while not self.program.ended and time.monotonic() < until:
                time.sleep(0.02)


@contextmanager
def running_lab(shown: Shown, host: str = "127.0.0.1", port: int = 0) -> Generator[Running]:
    """JupyterLab, running. `port` 0: 8888, or a free one. Main thread.

    Raises:
        InputError: the port is taken. TryAgainError: it ended at once. DeadlineError.
    """
    chosen = choose_port(host, port, _USUAL_PORT)
    scratch = tempfile.mkdtemp(prefix="headrace-jupyter-", dir=folder_for_sockets())
    try:
        environ = _environ(whole_environment(), scratch)
        write(shown, scratch, _server(host, chosen))
        url = address(host, chosen)
        argv = [sys.executable, "-m", "jupyterlab", "--no-browser"]
        log = os.path.join(scratch, "jupyter.log")
        command = Command(argv, environ, os.getcwd(), log, f"{url}/api", [scratch])
        with Program(command) as program:
            running = Running(program, url, _token(environ["JUPYTER_RUNTIME_DIR"], program.pid), shown)
            try:
                yield running
            finally:
                running.shut_down()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _environ(ours: Mapping[str, str], scratch: str) -> dict[str, str]:
    runtime = os.path.join(scratch, "runtime")
    os.mkdir(runtime, 0o700)
    folders = os.pathsep.join(filter(None, (scratch, ours.get("JUPYTER_CONFIG_PATH"))))
    return {**ours, "JUPYTER_CONFIG_PATH": folders, "JUPYTER_RUNTIME_DIR": runtime, FOLDER: scratch}


def _server(host: str, port: int) -> dict[str, Any]:
    """How this one server listens, and ends."""
    root = os.geteuid() == 0  # in a container there is nobody else
    return {
        "ServerApp": {"ip": host, "port": port, "port_retries": 0, "base_url": "/", "allow_root": root},
        "KernelManager": {"shutdown_wait_time": _KERNEL_S},
    }


def _token(runtime: str, pid: int | None) -> str:
    """The one that Jupyter chose; empty where its settings want a password instead."""
    with open(os.path.join(runtime, f"jpserver-{pid}.json"), encoding="utf-8") as file:
        return str(json.load(file)["token"])
