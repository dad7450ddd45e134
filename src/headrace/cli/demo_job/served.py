"""The demonstration's server: two versions of a model, asked over both protocols, swapped under load and back."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from headrace.base.errors import InternalError
from headrace.cli.demo_job.mounted import headrace
from headrace.cli.demo_job.plan import Plan
from headrace.cli.demo_job.rehearsal import Performed

_HOME: Final = "s3://demo/home"
_WAIT_S: Final = 60.0  # seconds for a server to start, or to load a version
_CLIENTS: Final = 4  # threads that ask without a pause: enough for requests to meet a swap


def publish_and_serve(plan: Plan, performed: Performed, folder: Path, environment: Mapping[str, str]) -> None:
    """Publish, serve, ask, promote under load, roll back.

    Raises:
        InternalError: any of that failed, or a request did.
    """
    told = _published(plan, performed, folder, environment)
    half, whole = told["numbers"]
    headrace(["models", "alias", f"digits@prod={half}"], folder, environment)
    with _serving(folder, environment) as server:
        click.echo(f"   {server.url}")
        _show(server, told)
        with _Load(server, told["images"][0]) as load:
            for words, number in (
                (["promote", f"digits@{whole}", "prod"], whole),
                (["rollback", "digits@prod"], half),
            ):
                headrace(["models", *words], folder, environment)
                server.wait(number)
                load.more()
        click.echo(f"   under load meanwhile: {load.told}")
        if load.failed:
            raise InternalError(f"{load.failed} requests failed while versions were swapped")


def _published(plan: Plan, performed: Performed, folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    runs = f"{_HOME}/runs"
    checkpoints = _headrace_json(["ls", f"{runs}/{performed.stopped}/checkpoints"], folder, environment)
    newest = max(str(one["path"]) for one in checkpoints).rstrip("/")
    weights = [f"{newest}/state.pt", f"{runs}/{performed.resumed}/outputs/weights.pt"]
    command = [sys.executable, "-m", "headrace.cli.demo_job.export", *plan.flags(), "--test", plan.test, *weights]
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, text=True, check=False, timeout=300
    )
    if done.returncode != 0:
        raise InternalError("the models could not be published")
    return json.loads(done.stdout.splitlines()[-1])


def _headrace_json(words: list[str], folder: Path, environment: Mapping[str, str]) -> Any:
    command = [sys.executable, "-m", "headrace", *words, "--json"]
    done = subprocess.run(command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, check=False, timeout=60)
    if done.returncode != 0:
        raise InternalError(f"headrace {' '.join(words)} failed")
    return json.loads(done.stdout)


class _Server:
    """What is asked of it. `url`: its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> http.client.HTTPConnection:
        """A connection for many requests."""
        return http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=30)

    def ask(self, path: str, body: object = None, over: http.client.HTTPConnection | None = None) -> tuple[int, Any]:
        """Status and answer."""
        connection = over or self.connect()
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        data = answer.read()
        return answer.status, json.loads(data) if data[:1] in (b"{", b"[") else None

    def wait(self, number: int | None = None) -> None:
        """Until it is ready, or answers with that version. Raises InternalError."""
        path = "/v2/health/ready" if number is None else f"/v2/models/digits/versions/{number}/ready"
        until = time.monotonic() + _WAIT_S
        while self.ask(path)[0] != 200:
            if time.monotonic() > until:
                raise InternalError("the model is not served", path=self.url)
            time.sleep(0.1)


@contextmanager
def _serving(folder: Path, environment: Mapping[str, str]) -> Generator[_Server]:
    command = [sys.executable, "-m", "headrace", "serve", "digits@prod", "--interval", "0.5s", "--json"]
    with subprocess.Popen(command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if line == "}\n":
                    break
            if not lines:
                raise InternalError("headrace serve did not start")
            server = _Server(json.loads("".join(lines))["url"])
            server.wait()
            yield server
        finally:
            process.send_signal(signal.SIGTERM)


def _show(server: _Server, told: Mapping[str, Any]) -> None:
    images, labels = told["images"], told["labels"]
    _, row = server.ask("/v1/models/digits:predict", {"instances": images[:1]})
    click.echo(f"   TensorFlow Serving's REST: the first is a {_best(row['predictions'])[0]}; it is a {labels[0]}")
    shape = [len(images), len(images[0]), len(images[0][0]), len(images[0][0][0])]
    for number in told["numbers"][:1]:
        tensor = {"name": "input", "datatype": "FP32", "shape": shape, "data": images}
        status, answer = server.ask("/v2/models/digits/infer", {"inputs": [tensor]})
        if status != 200:
            raise InternalError(f"version {number} does not answer: {answer}")
        (output,) = answer["outputs"]
        width = output["shape"][1]
        rows = [output["data"][at : at + width] for at in range(0, len(output["data"]), width)]
        right = sum(found == label for found, label in zip(_best(rows), labels, strict=True))
        told_share = f"{right} of {len(labels)} held-out samples right"
        click.echo(f"   the Open Inference Protocol: version {answer['model_version']}, {told_share}")


def _best(rows: list[list[float]]) -> list[int]:
    return [max(range(len(row)), key=row.__getitem__) for row in rows]


class _Load:
    """Clients that ask as fast as they are answered."""

    def __init__(self, server: _Server, image: Any) -> None:
        self._server = server
        shape = [1, len(image), len(image[0]), len(image[0][0])]
        self._body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": shape, "data": image}]}
        self._over = threading.Event()
        self._found: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._run) for _ in range(_CLIENTS)]

    def __enter__(self) -> _Load:
        for one in self._threads:
            one.start()
        self.more()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for one in self._threads:
            one.join()

    @property
    def failed(self) -> int:
        """Requests without an answer of a model."""
        return sum(count for name, count in self._found.items() if not name.isdigit())

    @property
    def told(self) -> str:
        """In words."""
        each = ", ".join(f"version {name}: {count:,}" for name, count in sorted(self._found.items()) if name.isdigit())
        return f"{sum(self._found.values()):,} requests, {self.failed} failed ({each})"

    def more(self) -> None:
        """Wait for some hundred answers more."""
        until, wanted = time.monotonic() + _WAIT_S, sum(self._found.values()) + 200
        while sum(self._found.values()) < wanted and time.monotonic() < until:
            time.sleep(0.05)

    def _run(self) -> None:
        connection = self._server.connect()
        while not self._over.is_set():
            try:
                status, answer = self._server.ask("/v2/models/digits/infer", self._body, connection)
                self._found[answer["model_version"] if status == 200 else f"status {status}"] += 1
            except (OSError, http.client.HTTPException) as error:
                self._found[type(error).__name__] += 1
                return
