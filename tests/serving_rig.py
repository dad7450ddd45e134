"""Models made of a matrix, a home they are published in, servers here or as commands, and a client that never stops."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import headrace.models as models
from headrace.base.settings import Settings
from headrace.models import Registry
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.serving import Options, Route, Server
from tests.children import running
from tests.mount_rig import wait_for

WIDTH = 4
COMMAND = [sys.executable, "-m", "headrace.cli"]


def linear(folder: Path, scale: float, *, width: int = WIDTH, warmup: Sequence[Mapping[str, Any]] = ()) -> Path:
    """A model that gives `scale` times the sum of its row, in two columns."""
    weights = np.full((width, 2), scale, np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return saved(folder, graph, warmup)


def saved(folder: Path, graph: onnx.GraphProto, warmup: Sequence[Mapping[str, Any]] = ()) -> Path:
    """A folder with a graph as ``model.onnx``, and recorded requests."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "model.onnx"
    )
    if warmup:
        (folder / "warmup.jsonl").write_text("".join(json.dumps(one) + "\n" for one in warmup))
    return folder


def request(row: Sequence[float], name: str = "x") -> dict[str, Any]:
    """A request of v2, of one row."""
    return {"inputs": [{"name": name, "datatype": "FP32", "shape": [1, len(row)], "data": list(row)}]}


@dataclass
class ServingRig:
    """A home and a node's cache. `home`: a URL; None: a folder of this machine."""

    folder: Path
    home: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = Settings.load(environ=self.own)
        self.namespace = Namespace.load(self.settings)
        self.registry = Registry(self.namespace, Home.of(self.namespace, self.settings))

    @property
    def own(self) -> dict[str, str]:
        home = self.home or f"file://{self.folder}/home"
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        return {"HEADRACE_HOME": home, "HEADRACE_CACHE_DIR": str(self.folder / "cache"), **self.variables}

    @property
    def environment(self) -> dict[str, str]:
        """Of its commands."""
        return {**os.environ, **self.own}

    @property
    def work(self) -> Path:
        """Where they are given."""
        return self.folder

    def publish(self, source: Path, name: str = "lin", **how: Any) -> int:
        return models.publish(str(source), name, registry=self.registry, **how).number

    def linear(self, scale: float, name: str = "lin", **how: Any) -> int:
        """Publish one that multiplies so."""
        return self.publish(linear(self.folder / f"made-{scale}", scale, **how), name)

    def point(self, what: str, number: int) -> None:
        models.alias(what, number, registry=self.registry)

    @contextmanager
    def serving(self, *routes: str, ready: bool = True, **how: Any) -> Iterator[Asked]:
        """A server in this process, once it is ready."""
        options = Options(tuple(map(Route.parse, routes)), **{"interval": 0.05, **how})
        with Server(options, self.registry) as server:
            asked = Asked(server.url, options.token, server)
            if ready:
                assert wait_for(asked.ready, 120), asked.get("/metrics").text
            yield asked

    @contextmanager
    def command(self, *arguments: str) -> Iterator[Asked]:
        """``headrace serve`` as a process."""
        command = [*COMMAND, "serve", "--json", "--interval", "0.1s", *arguments]
        with running(command, env=self.environment, cwd=self.work, stdout=subprocess.PIPE, text=True) as process:
            lines: list[str] = []
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if line == "}\n":
                    break
            told = json.loads("".join(lines))
            token = told.get("token") or self.variables.get("HEADRACE_SERVE_TOKEN")
            asked = Asked(told["url"], token, process=process, told=told)
            assert wait_for(asked.ready, 60)
            yield asked
            process.send_signal(signal.SIGTERM)


@dataclass
class Asked:
    """A server, asked as anybody asks it."""

    url: str
    token: str | None = None
    server: Server | None = None
    process: subprocess.Popen[str] | None = None
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=self._with(headers), timeout=30)

    def post(self, path: str, body: Any = b"", **headers: str) -> httpx.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(self.url + path, content=data, headers=self._with(headers), timeout=60)

    def ready(self) -> bool:
        try:
            return self.get("/v2/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def predict(self, rows: Any, model: str = "lin") -> Any:
        answer = self.post(f"/v1/models/{model}:predict", {"instances": rows})
        assert answer.status_code == 200, answer.text
        return answer.json()["predictions"]

    def version(self, model: str = "lin") -> str:
        """Of the answer to a request by v2."""
        answer = self.post(f"/v2/models/{model}/infer", request([1.0] * WIDTH))
        assert answer.status_code == 200, answer.text
        return answer.json()["model_version"]

    def serves(self, number: int, model: str = "lin") -> bool:
        """Whether it comes to answer with that version."""
        return wait_for(lambda: self.get(f"/v2/models/{model}/versions/{number}/ready").status_code == 200, 30)

    def states(self, model: str = "lin") -> dict[int, tuple[str, str]]:
        told = self.get(f"/v1/models/{model}").json()["model_version_status"]
        return {int(one["version"]): (one["state"], one["status"]["error_message"]) for one in told}

    def metric(self, name: str, **labels: str) -> float:
        """Added up over what has these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = self.get("/metrics").text.splitlines()
        rows = [
            line for line in lines if line.startswith((name + "{", name + " ")) and all(one in line for one in wanted)
        ]
        return sum(float(line.rpartition(" ")[2]) for line in rows)

    def _with(self, headers: Mapping[str, str]) -> dict[str, str]:
        own = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return {**own, **{name.replace("_", "-"): value for name, value in headers.items()}}


class Asking:
    """Clients that ask again as soon as they are answered, driven by events, until `stop`."""

    def __init__(self, port: int, body: bytes, *, path: str = "/v2/models/lin/infer", clients: int = 8) -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n"
        self._request = head.encode() + body
        self._port, self._clients = port, clients
        self.answers: list[tuple[int, bytes]] = []
        self.broken: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Asking:
        self._thread.start()
        assert wait_for(lambda: len(self.answers) > self._clients, 30)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def more(self, count: int = 50) -> None:
        """Wait until so many more are answered."""
        wanted = len(self.answers) + count
        assert wait_for(lambda: len(self.answers) >= wanted or bool(self.broken), 30)

    @property
    def failed(self) -> list[tuple[int, bytes]]:
        return [one for one in self.answers if one[0] != 200]

    def _run(self) -> None:
        chosen = selectors.DefaultSelector()
        for _ in range(self._clients):
            client = socket.create_connection(("127.0.0.1", self._port))
            chosen.register(client, selectors.EVENT_READ, bytearray())
            client.sendall(self._request)
        while not self._over.is_set() and chosen.get_map():
            for key, _ in chosen.select(0.1):
                client: Any = key.fileobj
                if not self._heard(client, key.data):
                    chosen.unregister(client)
                    client.close()
        for key in list(chosen.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        chosen.close()

    def _heard(self, client: socket.socket, data: bytearray) -> bool:
        try:
            piece = client.recv(1 << 16)
        except OSError as error:
            self.broken.append(str(error))
            return False
        if not piece:
            self.broken.append("closed")
            return False
        data += piece
        head, found, body = bytes(data).partition(b"\r\n\r\n")
        if found:
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            if len(body) >= length:
                self.answers.append((int(head[9:12]), body))
                data.clear()
                client.sendall(self._request)
        return True


def until(check: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for it, or fail."""
    begun = time.monotonic()
    assert wait_for(check, seconds), f"not within {time.monotonic() - begun:.0f} s"
