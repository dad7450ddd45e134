"""One replica of a service: an actor on a node that starts one ``headrace serve``, watches it, and passes its lines on.

The actor outlives who keeps the service, which finds it again by its name. When it is killed, a guard beside the server
ends that.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from signal import SIGKILL, SIGTERM
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.base.locks import try_lock
from headrace.base.places import make_folder
from headrace.base.ports import reserve_port
from headrace.base.settings import Settings, environment, whole_environment
from headrace.cluster.connection import ray_module
from headrace.cluster.serving.figures import ask_figures, ask_ready
from headrace.cluster.serving.spec import ServiceSpec
from headrace.cluster.serving.told import Figures, Phase, Seen
from headrace.cluster.submission import Reach
from headrace.jobs import Exit
from headrace.jobs.environment.described import Invocation
from headrace.jobs.process import Process
from headrace.tracking.samplers_job import Tree

_LOOK_S: Final = 0.5  # seconds between looks at the server
_ASK_S: Final = 3.0  # seconds for its answer
_KEPT: Final = 1000
"""Lines that wait to be asked for; then the oldest go."""
_LOCK: Final = "lock"
_HINT: Final = "(Ctrl-C stops it)"
"""What a server says to who stands before it."""


class Replica:
    """One of them; it starts when it is made. Any thread, as Ray calls.

    Args:
        spec: of the service.
        reach: how it reaches the stores; its variables hold the token.
        name: of this one: the service's, and a number.
        generation: see `Seen`.
    """

    def __init__(self, spec: ServiceSpec, reach: Reach, name: str, generation: int) -> None:
        logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)
        self._spec, self._reach, self._name, self._generation = spec, reach, name, generation
        ray: Any = ray_module()
        self._host: str = ray.util.get_node_ip_address()
        self._node_id: str = ray.get_runtime_context().get_node_id()
        self._port, self._grpc = 0, spec.grpc_port
        self._lock = threading.Lock()
        self._lines: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._count, self._rests = 0, dict[str, bytes]()
        self._phase: Phase = "starting"
        self._why, self._answered = "its server is being started", time.monotonic()
        self._figures: Figures | None = None
        self._process: Process | None = None
        self._over = threading.Event()
        self._folder, self._held = "", -1
        self._thread = threading.Thread(target=self._run, name="headrace-replica", daemon=True)
        self._thread.start()

    def look(self, after: int) -> Seen:
        """How it is, and what it wrote after line `after`. Never waits."""
        with self._lock:
            lines = tuple(line for number, line in self._lines if number > after)
            place = f"[{self._host}]" if ":" in self._host else self._host
            return Seen(
                self._generation, socket.gethostname(), self._node_id, f"http://{place}:{self._port}",
                f"{place}:{self._grpc}" if self._grpc is not None else None,
                self._process.pid if self._process is not None else 0, self._phase,
                time.monotonic() - self._answered, self._why, self._figures, lines, self._count,
            )  # fmt: skip

    def leave(self) -> None:
        """Have the server drain and end; asked again, it does not linger before that."""
        with self._lock:
            process = self._process
            if self._phase != "ended":
                self._phase, self._why = "leaving", ""
        self._over.set()
        if process is not None:
            process.signal(SIGTERM)

    def close(self) -> None:
        """End it now, and leave nothing. Idempotent."""
        self._over.set()
        if self._process is not None:
            _kill(self._process.pid)
            self._process.signal(SIGKILL)
        self._thread.join()

    # its own thread

    def _run(self) -> None:
        try:
            self._start()
            self._watch()
        except HeadraceError as error:
            self._ended(str(error))
        except Exception as error:
            self._ended(f"{type(error).__name__}: {error}")
        finally:
            os.chdir("/")
            if self._held >= 0:
                shutil.rmtree(self._folder, ignore_errors=True)
                os.close(self._held)

    def _start(self) -> None:
        root = make_folder(os.path.join(Settings.load().cache.dir, "serving", "replicas"), "HEADRACE_CACHE_DIR")
        sweep(root)
        self._folder = os.path.join(root, f"{self._name}-{os.getpid()}")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._held = try_lock(os.path.join(self._folder, _LOCK)) or -1
        self._reach.apply(self._folder)
        port = self._spec.port or reserve_port(self._host)
        grpc = reserve_port(self._host) if self._spec.grpc_port == 0 else self._spec.grpc_port
        words = self._spec.words(self._host, port, grpc)
        command = Invocation((sys.executable, "-m", "headrace.cli", *words), whole_environment(), self._folder)
        process = Process(command, self._wrote)
        with self._lock:
            self._process, self._port, self._grpc = process, port, grpc
            self._answered, self._why = time.monotonic(), "its server does not answer yet"
        if self._over.is_set():
            process.signal(SIGTERM)

    def _watch(self) -> None:
        assert self._process is not None
        reading, writing = os.pipe()
        ended: Exit | None = None
        try:
            while ended is None:
                self._ask()
                ended = self._process.wait(_LOOK_S, reading)
        finally:
            os.close(reading)
            os.close(writing)
        self._process.signal(SIGKILL)  # what it may have left
        self._process.close()
        self._ended(str(ended))

    def _ask(self) -> None:
        """Have its state known. What ends now answers no more: that is not told of."""
        ready = ask_ready(self._host, self._port, _ASK_S)
        figures = None
        if ready is not None:
            figures = ask_figures(self._host, self._port, _ASK_S, environment("HEADRACE_SERVE_TOKEN") or None)
        with self._lock:
            self._figures = figures or self._figures
            if ready is not None:
                self._answered = time.monotonic()
            if self._phase == "leaving":
                return
            if ready:
                self._phase, self._why = "ready", ""
            elif self._phase == "ready" or ready is not None:
                self._phase = "starting" if self._phase == "starting" else "unready"
                self._why = "its server does not answer" if ready is None else "its models are not all loaded"

    def _ended(self, why: str) -> None:
        with self._lock:
            for stream in list(self._rests):
                self._add(self._rests.pop(stream))
            self._phase, self._why = "ended", why

    def _wrote(self, stream: str, data: bytes) -> None:
        with self._lock:
            *whole, rest = (self._rests.pop(stream, b"") + data).split(b"\n")
            for line in whole:
                self._add(line)
            self._rests[stream] = rest

    def _add(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text and text != _HINT:
            self._count += 1
            self._lines.append((self._count, text))


def _kill(pid: int) -> None:
    """It and all it has started: one that hangs does not end with its parent."""
    tree = Tree(pid)
    tree.sample(None)
    for one in tree.members:
        with suppress(ProcessLookupError):
            os.kill(one, SIGKILL)


def sweep(root: str) -> None:
    """What replicas that were killed with their node's Ray have left here: settings, which may be secret."""
    for name in os.listdir(root):
        with suppress(OSError):
            lock = try_lock(os.path.join(root, name, _LOCK), make=False)
            if lock is not None:
                shutil.rmtree(os.path.join(root, name), ignore_errors=True)
                os.close(lock)
