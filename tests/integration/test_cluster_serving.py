"""Models served on a real Ray cluster: ``headrace serve`` processes that are placed, replaced, scaled and drained."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from headrace.base.errors import HeadraceError, NotFoundError
from headrace.base.ports import reserve_port
from headrace.cluster.serving import ServiceTold, read_listing, ready_urls
from headrace.testing.servers import EmbeddedS3
from tests.children import running
from tests.cluster_rig import PYTHON, SharedCluster
from tests.left import MARK
from tests.serving_rig import WIDTH, ServingRig, request, until

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
TOKEN = secrets.token_urlsafe(24)
LOOK_S = 0.3
"""How often a client looks who is to be asked; servers that leave linger for longer."""
SERVE = "--cpus 0.4 --target 4 --down-after 3s --linger 3s --interval 0.2s --window 100ms".split()  # noqa: SIM905
"""The window has each request wait, so that as many are under way as there are clients."""
NGINX = """
worker_processes 1;
error_log {folder}/error.log;
pid {folder}/pid;
events {{}}
http {{
    access_log off;
    upstream lin {{ include {folder}/lin.conf; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://lin; }}
    }}
}}
"""


class Clients:
    """Who asks the servers that the home tells of, each in turn, again as soon as it is answered."""

    def __init__(self, service: Service, count: int, url: str | None = None) -> None:
        """`url`: the only one that is asked."""
        self._service, self._over, self._only = service, threading.Event(), url
        self.urls = service.urls() if url is None else [url]
        self.answers, self.failed = Counter[str](), list[tuple[str, str]]()
        self.versions = set[str]()
        self._threads = [threading.Thread(target=self._look)]
        self._threads += [threading.Thread(target=self._ask, args=(number,)) for number in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        self.more()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def more(self, count: int = 20) -> None:
        """Until so many more are answered."""
        wanted = self.answers.total() + count
        until(lambda: self.answers.total() >= wanted)

    def _look(self) -> None:
        while self._only is None and not self._over.wait(LOOK_S):
            self.urls = self._service.urls() or self.urls

    def _ask(self, number: int) -> None:
        while not self._over.is_set():
            number += 1
            url = self.urls[number % len(self.urls)]
            try:
                self.versions = {*self.versions, self._service.version(url)}
                self.answers[url] += 1
            except (OSError, AssertionError) as error:
                self.failed.append((url, str(error)))


class Service:
    """One that is started by a command and followed."""

    def __init__(self, rig: ServingRig, cluster: SharedCluster, folder: Path) -> None:
        self.rig, self._cluster = rig, cluster
        self.name = f"lin-{secrets.token_hex(3)}"
        self.output = folder / "output"

    @property
    def environment(self) -> dict[str, str]:
        return {**self.rig.environment, **self._cluster.variables}

    def words(self, *arguments: str) -> list[str]:
        return [PYTHON, "-m", "headrace.cli", "serve", "--on", self._cluster.address, *arguments]

    def command(self, *arguments: str, code: int = 0) -> str:
        ended = subprocess.run(
            self.words(*arguments), env=self.environment, capture_output=True, text=True, timeout=90, check=False
        )
        assert ended.returncode == code, (ended.stdout, ended.stderr)
        return ended.stdout or ended.stderr

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
        """Ctrl-C at the end, which it is to end by."""
        with self.output.open("wb") as output:
            words = self.words("lin@prod", "--name", self.name, *SERVE, *arguments)
            with running(words, env=self.environment, stdout=output, stderr=output) as process:
                try:
                    until(lambda: "(Ctrl-C stops it)" in self.said(), 120)
                    yield process
                finally:
                    process.send_signal(signal.SIGINT)
                    code = process.wait(40)
                    print(self.said())
                    assert code == 0
        assert self.processes() == [], "nothing is left of it"
        with pytest.raises(NotFoundError):
            self.told()

    def told(self) -> ServiceTold:
        return read_listing(self.rig.registry.home, self.name)

    def urls(self) -> list[str]:
        try:
            return ready_urls(self.rig.registry.home, self.name)
        except HeadraceError:
            return []

    def said(self) -> str:
        return self.output.read_text()

    def version(self, url: str) -> str:
        """Of the model that answers there."""
        connection = HTTPConnection(url.removeprefix("http://"), timeout=20)
        body = json.dumps(request([1.0] * WIDTH))
        try:
            connection.request("POST", "/v2/models/lin/infer", body, {"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            told = answer.read()
            assert answer.status == 200, (answer.status, told)
            return json.loads(told)["model_version"]
        finally:
            connection.close()

    def processes(self) -> list[int]:
        """Of its servers, and of what they started."""
        mine, not_of_the_test = f"HEADRACE_SERVE_TOKEN={TOKEN}".encode(), b"HEADRACE_SERVE_RIG"
        return [pid for pid, told in _environments() if mine in told and not_of_the_test not in told]

    def keeper(self) -> int:
        """The process that keeps it, on the head of this run's cluster."""
        mark = f"{MARK}={os.environ[MARK]}".encode()
        (pid,) = (pid for pid, told in _environments() if mark in told and "ray::Keeper" in _command(pid))
        return pid


def _environments() -> Iterator[tuple[int, bytes]]:
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            yield pid, Path(f"/proc/{pid}/environ").read_bytes()


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@pytest.fixture(scope="module")
def service(
    seaweedfs: EmbeddedS3, ray_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    bucket = f"serving-{secrets.token_hex(4)}"
    seaweedfs.create_bucket(bucket)
    folder = tmp_path_factory.mktemp("service")
    variables = {**seaweedfs.variables(), "HEADRACE_SERVE_TOKEN": TOKEN, "HEADRACE_SERVE_RIG": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        rig = ServingRig(folder, f"s3://{bucket}/home", variables)
        rig.point("lin@prod", rig.linear(1.0))
        rig.linear(2.0)
        yield Service(rig, ray_cluster, folder)


@pytest.fixture
def nginx(service: Service, tmp_path: Path) -> Iterator[str]:
    """Before the servers that the home tells of, as the guide has it."""
    port = reserve_port()
    (tmp_path / "nginx.conf").write_text(NGINX.format(folder=tmp_path, port=port))
    command = ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
    reload = f"sh -c 'test ! -e {tmp_path}/pid || {' '.join(command)} -s reload'"
    words = [PYTHON, "-m", "headrace.cli", "serve", "--name", service.name, "--upstreams", f"{tmp_path}/lin.conf"]
    with running([*words, "--reload", reload], env=service.environment) as follower:
        until(lambda: "127.0.0.1:9" not in _text(tmp_path / "lin.conf"), 120)
        with running([*command, "-g", "daemon off;"]) as process:
            until((tmp_path / "pid").exists)
            yield f"http://127.0.0.1:{port}"
            process.send_signal(signal.SIGQUIT)
            process.wait(20)
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(20) == 0


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else "127.0.0.1:9"


@pytest.fixture
def started(service: Service) -> Iterator[None]:
    with service.started("--replicas", "2..3"):
        yield


def test_a_service_lives_through_what_happens_to_it(service: Service, started: None, nginx: str) -> None:
    until(lambda: len(service.urls()) == 2, 60)
    with Clients(service, 3) as clients, Clients(service, 1, nginx) as proxied:
        killed = service.told().ready[0]
        assert killed.pid is not None
        os.kill(killed.pid, signal.SIGKILL)
        until(lambda: killed.url not in service.urls())
        clients.more()
        until(lambda: len(service.urls()) == 2, 40)
        assert {url for url, _ in clients.failed} <= {killed.url}, "the other one answers meanwhile"
        assert f"headrace: {killed.name} is lost: its server ended: SIGKILL" in service.said()

        clients.failed.clear()
        proxied.failed.clear()
        service.rig.point("lin@prod", 2)
        until(lambda: service.version(clients.urls[0]) == "2")
        os.kill(service.keeper(), signal.SIGKILL)
        until(lambda: "2 replicas go on under a new keeper" in service.said(), 90)
        with Clients(service, 8) as many:
            until(lambda: len(service.urls()) == 3, 60)
            three = set(service.urls())
            until(lambda: three <= set(many.answers))
        service.command("--restart", service.name)
        until(lambda: len(service.told().replicas) == 2 and three.isdisjoint(service.urls()), 90)
        clients.more()
        assert clients.failed == many.failed == proxied.failed == [], "whoever is drained has answered all"
        assert clients.versions == {"1", "2"}
    assert "3 replicas are wanted instead of 2" in service.said()
    assert "2 replicas are wanted instead of 3" in service.said()


def test_one_without_room_says_so_until_it_is_stopped(service: Service) -> None:
    name = service.name
    service.command("lin@prod", "--name", name, "--cpus", "99", "--detach")
    try:
        refused = service.command("lin@prod", "--name", name, code=5)
        assert "has a service of this name" in refused
        assert f"--stop {name}" in refused
        until(lambda: bool(service.told().replicas[0].why))
        (row,) = (one for one in json.loads(service.command("--list", "--json")) if one["service"] == name)
        assert row["state"] == "waiting"
        assert row["why"].startswith("asks for 99 CPUs on one node, and of all 3 nodes together ")
    finally:
        service.command("--stop", name)
    with pytest.raises(NotFoundError):
        service.told()
