"""S3 beyond the conformance suite, on SeaweedFS: conditions probed, credentials renewed, connections lost, listings."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    CredentialsError,
    DeadlineError,
    InputError,
    NotFoundError,
    TryAgainError,
    UnsupportedError,
)
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.store import Store, metered, open_store, probe
from headrace.store.embedded import EmbeddedS3
from tests.children import running

pytestmark = pytest.mark.server


@pytest.fixture
def store(seaweedfs: EmbeddedS3) -> Iterator[Store]:
    seaweedfs.create_bucket("store-s3")
    opened = open_store(f"s3://store-s3/{time.monotonic_ns()}", seaweedfs.options())
    yield opened
    opened.close()


def test_the_probe_says_what_this_server_does(store: Store) -> None:
    seen = probe(store)
    assert (seen.has_etag, seen.create_only_put, seen.conditional_put, seen.conditional_get) == (True, True, True, True)
    assert seen.exact_keys is False
    assert seen.start_after is False  # it goes folder by folder
    assert store.capabilities == seen
    assert list(store.list()) == []
    assert store.list_folder().folders == ()


def test_keys_that_the_server_would_mix_up_are_refused(store: Store) -> None:
    store.put("a/b", b"1")
    for key in ("a//b", "a/./b", "a/x/../b", "a\\b", "a/b/"):
        with pytest.raises(UnsupportedError):
            store.put(key, b"2")
        with pytest.raises(UnsupportedError):
            store.copy("a/b", key)
    for key in ("a//b", "a\\b"):
        with pytest.raises(UnsupportedError):
            store.get(key)
        with pytest.raises(UnsupportedError):
            store.delete([key])
    assert bytes(store.get("a/b").data) == b"1"


def test_start_after_is_exact_in_any_order_of_the_server(store: Store) -> None:
    names = ["a", "a-b", "a/x", "a/y/z", "a.b/c", "a0", "b-1/x", "b/1", "b", "é/1", "é-"]
    for name in names:
        store.put(name, b"")
    for after in [*names, "a/", "a-", "b-", "0", "~"]:
        for prefix in ("", "a", "a/", "b"):
            found = [one.key for page in store.list(prefix, start_after=after) for one in page]
            assert sorted(found) == sorted(name for name in names if name > after and name.startswith(prefix)), after


def test_a_condition_lost_in_a_retry_is_recognised(seaweedfs: EmbeddedS3, store: Store) -> None:
    """The server writes, the answer is lost, the client asks again: that is no one else's object."""
    probe(store)
    with Cutter(seaweedfs.endpoint, cut={b"PUT "}) as cutter:
        options = dataclasses.replace(seaweedfs.options(), endpoint=cutter.endpoint)
        behind = open_store(store.url, options)
        behind.record(store.capabilities)
        assert behind.put("claim", b"mine", create=True).key == "claim"
        assert cutter.cuts == 1
        with pytest.raises(AlreadyExistsError):
            behind.put("claim", b"other", create=True)
        behind.close()


def test_a_lost_connection_is_tried_again(seaweedfs: EmbeddedS3, store: Store) -> None:
    store.put("x", b"hello")
    with Cutter(seaweedfs.endpoint, cut={b"GET ", b"HEAD", b"DELE"}) as cutter:
        behind = open_store(store.url, dataclasses.replace(seaweedfs.options(), endpoint=cutter.endpoint))
        assert bytes(behind.get("x").data) == b"hello"
        assert behind.head("x").size == 5
        behind.delete(["x"])
        assert cutter.cuts == 3
        behind.close()


def test_nothing_waits_for_ever(seaweedfs: EmbeddedS3) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = dataclasses.replace(seaweedfs.options(), endpoint=endpoint, timeout_s=1.5)
        began = time.monotonic()
        with pytest.raises(DeadlineError):
            open_store("s3://any", options).get("x")
        assert time.monotonic() - began < 4


def test_errors_name_the_fault(seaweedfs: EmbeddedS3, store: Store) -> None:
    options = seaweedfs.options()
    with pytest.raises(NotFoundError, match="no such bucket"):
        open_store("s3://absent-bucket", options).head("x")
    with pytest.raises(CredentialsError, match="unknown access key"):
        open_store(store.url, dataclasses.replace(options, access_key_id="NOBODY")).head("x")
    with pytest.raises(CredentialsError, match="does not match"):
        open_store(store.url, dataclasses.replace(options, secret_access_key="wrong")).get("x")
    tls = seaweedfs.endpoint.replace("http:", "https:")
    with pytest.raises(TryAgainError, match="https://"):
        open_store(store.url, dataclasses.replace(options, endpoint=tls, retries=0)).get("x")
    store.put("x", b"12345")
    with pytest.raises(InputError, match="ends at 5"):
        store.get("x", 6)
    with pytest.raises(ChangedError):
        store.get("x", if_match="0")


def test_credentials_are_renewed_after_a_refusal(
    seaweedfs: EmbeddedS3, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    form = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    file.write_text(form.format("EXPIRED", "old"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    store.put("x", b"1")
    options = dataclasses.replace(seaweedfs.options(), access_key_id=None, secret_access_key=None)
    other = open_store(store.url, options)
    wire = other.wire()
    assert wire is not None
    assert b"Credential=EXPIRED/" in wire.request("x", 0, None, None)
    file.write_text(form.format(seaweedfs.access_key, seaweedfs.secret_key))
    assert bytes(other.get("x").data) == b"1"
    assert b"Credential=EXPIRED/" not in wire.request("x", 0, None, None)


def test_metered_counts_every_call(store: Store) -> None:
    metrics = Metrics()
    counted = metered(store, metrics)
    assert counted.wire() is None
    counted.put("x", b"123")
    counted.get("x")
    with pytest.raises(NotFoundError):
        counted.get("none")
    list(counted.list())
    seen = metrics.snapshot()
    assert (seen["store.put.calls"], seen["store.put.bytes"]) == (1, 3)
    assert (seen["store.get.calls"], seen["store.get.bytes"], seen["store.get.errors"]) == (2, 3, 1)
    assert (seen["store.error.not-found"], seen["store.list.keys"]) == (1, 1)


# The server itself


def test_data_and_credentials_outlive_a_restart(tmp_path: Path) -> None:
    with EmbeddedS3(tmp_path) as first:
        url = first.create_bucket("kept")
        store = open_store(url, first.options())
        for number in range(50):
            store.put(f"a/{number}", str(number).encode())
        keys = (first.access_key, first.secret_key)
        store.close()
    with EmbeddedS3(tmp_path) as second:
        assert (second.access_key, second.secret_key) == keys
        store = open_store(url, second.options())
        assert all(bytes(store.get(f"a/{number}").data) == str(number).encode() for number in range(50))
        store.close()
    assert (tmp_path / "s3.json").stat().st_mode & 0o077 == 0


def test_the_server_dies_with_its_parent() -> None:
    """However that dies. The servers start side by side: most of it is waiting."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(_dies_with_its_parent, [signal.SIGKILL, signal.SIGTERM]))


def _dies_with_its_parent(how: signal.Signals) -> None:
    code = (
        "import sys, time; from headrace.store.embedded import EmbeddedS3\n"
        "s = EmbeddedS3().start(); print(s.pid, s.data, flush=True); time.sleep(600)"
    )
    with running([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, data = parent.stdout.readline().split()
        server = psutil.Process(int(pid))
        listening = [one.laddr for one in server.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        ports = {one.port for one in listening}
        assert {one.ip for one in listening} == {"127.0.0.1"}
        os.kill(parent.pid, how)
    psutil.wait_procs([server], timeout=10)
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    for port in ports:
        with socket.socket() as probe_socket:
            assert probe_socket.connect_ex(("127.0.0.1", port)) != 0
    left = [one for one in Path("/tmp").glob("seaweedfs-*.sock") if any(str(port) in one.name for port in ports)]
    assert left == []
    assert not Path(data).exists()


class Cutter:
    """A relay in front of a server that passes the first request of each named kind on, and drops its answer."""

    def __init__(self, endpoint: str, cut: set[bytes]) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self._server, self._cut, self.cuts = (host, int(port)), set(cut), 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Cutter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client, socket.create_connection(self._server) as server:
                self._serve(client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        """Requests of these tests fit one segment; so do their answers."""
        server.settimeout(5)
        client.settimeout(5)
        try:
            while request := client.recv(65536):
                server.sendall(request)
                answer = server.recv(65536)
                if request[:4] in self._cut:
                    self._cut.discard(request[:4])
                    self.cuts += 1
                    return
                client.sendall(answer)
        except OSError:
            return


@pytest.mark.parametrize("shift", [3600, -90_000])
def test_a_clock_that_is_far_off_is_made_up_for(
    seaweedfs: EmbeddedS3, shift: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By every way to ask, a HEAD without a body and the wire too; and once more when it is set right."""
    seaweedfs.create_bucket("store-s3")
    honest = time.time
    fetcher = Fetcher.open(Settings(cache=CacheSettings(size=0)), None, Metrics())
    ways: list[Callable[[Store], object]] = [
        lambda store: store.put("new", b"1", create=True),
        lambda store: store.head("a"),
        lambda store: store.get("a"),
        lambda store: list(store.list()),
        lambda store: fetcher.get(Read(store, "a")),
    ]
    for way in ways:
        opened = open_store(f"s3://store-s3/{time.monotonic_ns()}", seaweedfs.options())
        opened.put("a", b"1")
        for by in (shift, 0):
            monkeypatch.setattr(time, "time", lambda by=by: honest() + by)
            way(opened)
            monkeypatch.setattr(time, "time", honest)
            opened.delete(["new"])
        opened.close()
    fetcher.close()
    assert caplog.text.count("requests are dated by the store's") == len(ways)
