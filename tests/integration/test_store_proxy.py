"""A store behind a proxy, as ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY`` say. The proxy is a real one.

The store's host is written ``0.0.0.0``: it is reached on this machine, and no rule for loopback exempts it.
"""

from __future__ import annotations

import dataclasses
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from headrace.base.errors import CredentialsError, DeniedError, HeadraceError, SettingError, UnreachableError
from headrace.base.metrics import Metrics
from headrace.base.settings import FetchSettings, Settings
from headrace.checkup.reach import check_clock
from headrace.fetch import Fetcher, Read
from headrace.store import Store, StoreOptions, open_store
from headrace.store.embedded import EmbeddedS3
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.servers import Nginx, Tinyproxy

pytestmark = pytest.mark.server

_VARIABLES = [name for one in ("https_proxy", "http_proxy", "all_proxy", "no_proxy") for name in (one, one.upper())]


@pytest.fixture(scope="module")
def proxy() -> Iterator[Tinyproxy]:
    with Tinyproxy() as server:
        yield server


@pytest.fixture(scope="module")
def locked_proxy() -> Iterator[Tinyproxy]:
    with Tinyproxy(login=("ann", "secret")) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def options(seaweedfs: EmbeddedS3, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreOptions]:
    """The shared store, by plain HTTP or (`https`) behind a certificate for ``0.0.0.0``."""
    seaweedfs.create_bucket("proxied")
    to = urlsplit(seaweedfs.endpoint)
    if request.param == "http":
        yield dataclasses.replace(seaweedfs.options(), endpoint=f"http://0.0.0.0:{to.port}", retries=1)
        return
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("0.0.0.0").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with FaultServer(Upstream("127.0.0.1", to.port or 0), tls=context) as server:
        endpoint, ca = f"https://0.0.0.0:{server.port}", str(tmp_path / "ca.pem")
        yield dataclasses.replace(seaweedfs.options(), endpoint=endpoint, ca_file=ca, retries=1)


def fetcher() -> Fetcher:
    return Fetcher(Settings(fetch=FetchSettings(retries=1)), None, Metrics())


def read_all(store: Store, key: str) -> bytes:
    """By the mass of GETs, and one by one."""
    with closing(fetcher()) as reader:
        together = bytes(reader.get(Read(store, key)).data)
        [straight] = reader.straights(1)
        assert bytes(straight.get(Read(store, key, start=0, stop=len(together))).data) == together
        straight.close()
    return together


@pytest.mark.parametrize("options", ["http", "https"], indirect=True)
@pytest.mark.parametrize("spelling", [str.upper, str.lower])
def test_a_store_is_read_written_and_listed_through_the_proxy(
    options: StoreOptions, proxy: Tinyproxy, monkeypatch: pytest.MonkeyPatch, spelling: object
) -> None:
    assert callable(spelling)
    scheme = urlsplit(options.endpoint or "").scheme
    monkeypatch.setenv(spelling(f"{scheme}_proxy"), proxy.endpoint)
    before = len(proxy.requests)
    store = open_store(f"s3://proxied/{scheme}", options)
    key, data = "a b/é+.bin", bytes(range(256)) * 1000
    store.put(key, data)
    assert read_all(store, key) == data
    assert bytes(store.get(key, 3, 7).data) == data[3:7]
    assert [one.key for page in store.list() for one in page] == [key]
    assert [found.status for found in check_clock(store)] == ["ok"]
    store.close()
    asked = proxy.requests[before:]
    assert asked
    assert all(line.startswith("CONNECT 0.0.0.0:") == (scheme == "https") for line in asked)


@pytest.mark.parametrize("options", ["http", "https"], indirect=True)
@pytest.mark.parametrize(
    "variables",
    [
        {"no_proxy": "0.0.0.0"},
        {"NO_PROXY": "example.com, 0.0.0.0"},
        {"NO_PROXY": "example.com, 0.0.0.0/8"},
        {"NO_PROXY": "*"},
        {"HTTP_PROXY": "", "HTTPS_PROXY": "", "ALL_PROXY": ""},
    ],
)
def test_hosts_that_are_excepted_are_reached_directly(
    options: StoreOptions, proxy: Tinyproxy, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in ({"HTTP_PROXY": proxy.endpoint, "HTTPS_PROXY": proxy.endpoint} | variables).items():
        monkeypatch.setenv(name, value)
    before = len(proxy.requests)
    store = open_store("s3://proxied/excepted", options)
    store.put("k", b"x")
    assert read_all(store, "k") == b"x"
    assert proxy.requests[before:] == []


def test_loopback_is_never_asked_for_by_a_proxy(seaweedfs: EmbeddedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    seaweedfs.create_bucket("proxied")
    port = urlsplit(seaweedfs.endpoint).port
    for host in ("127.0.0.1", "localhost"):
        store = open_store(
            "s3://proxied/here", dataclasses.replace(seaweedfs.options(), endpoint=f"http://{host}:{port}")
        )
        store.put("k", b"x")
        assert read_all(store, "k") == b"x"


@pytest.mark.parametrize("options", ["http", "https"], indirect=True)
def test_a_proxy_that_asks_for_a_password(
    options: StoreOptions, locked_proxy: Tinyproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = urlsplit(locked_proxy.endpoint).netloc
    monkeypatch.setenv("ALL_PROXY", f"http://ann:se%63ret@{where}")
    store = open_store("s3://proxied/locked", options)
    store.put("k", b"x")
    assert read_all(store, "k") == b"x"
    assert "secret" not in repr(store.wire().endpoint)  # type: ignore[union-attr]
    for wrong in (f"http://{where}", f"http://ann:wrong@{where}"):
        monkeypatch.setenv("ALL_PROXY", wrong)
        for error in errors(options):
            assert isinstance(error, CredentialsError), error
            assert "proxy" in error.reason or wrong.startswith("http://ann")  # this one answers 401 to wrong names
            assert "wrong" not in f"{error}{error.hint}"


def errors(options: StoreOptions) -> Iterator[HeadraceError]:
    """Of one request, and of the mass of GETs."""
    store = open_store("s3://proxied/locked", options)
    with pytest.raises(HeadraceError) as alone:
        store.get("k")
    yield alone.value
    with closing(fetcher()) as reader, pytest.raises(HeadraceError) as together:
        reader.get(Read(store, "k"))
    yield together.value


@pytest.mark.parametrize("options", ["https"], indirect=True)
def test_a_proxy_that_refuses_or_is_not_there_is_what_the_error_names(
    options: StoreOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Tinyproxy(refused="0[.]0") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.endpoint)
        for error in errors(options):
            assert isinstance(error, DeniedError)
            assert "the proxy 127.0.0.1:" in error.reason
            assert "NO_PROXY" in (error.hint or "")
    for error in errors(options):
        assert isinstance(error, UnreachableError)
        assert "proxy" in f"{error.reason} {error.hint}"
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    for error in errors(options):
        assert "proxy.invalid" in error.reason
        assert "HTTPS_PROXY" in (error.hint or "")


@pytest.mark.parametrize("value", ["socks5://h:1", "https://h:1", "http://", "http://h:port"])
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
def test_what_is_no_http_proxy_is_refused_by_the_variable_s_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingError, match=variable):
        open_store("s3://bucket", StoreOptions(endpoint="https://store.example"))


def test_web_servers_too(proxy: Tinyproxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a b").write_bytes(b"hello")
    with Nginx(tmp_path) as nginx:
        monkeypatch.setenv("http_proxy", proxy.endpoint)
        before = len(proxy.requests)
        store = open_store(f"http://0.0.0.0:{nginx.port}/data", StoreOptions())
        assert bytes(store.get("a b").data) == b"hello"
        assert read_all(store, "a b") == b"hello"
        assert proxy.requests[before:]


@pytest.mark.parametrize("options", ["https"], indirect=True)
def test_a_certificate_is_said_to_be_the_store_s(
    options: StoreOptions, proxy: Tinyproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy.endpoint)
    store = open_store("s3://proxied/untrusted", dataclasses.replace(options, ca_file=None))
    with pytest.raises(UnreachableError, match=r"the certificate of 0\.0\.0\.0:\d+ is not trusted"):
        store.get("k")


def test_a_host_whose_name_speaks_of_proxies_is_none() -> None:
    options = StoreOptions(endpoint="http://s3-proxy.invalid", anonymous=True, retries=0, timeout_s=5.0)
    with pytest.raises(UnreachableError) as unknown:
        open_store("s3://bucket", options).get("k")
    assert "HTTP" not in (unknown.value.hint or "")


def test_a_proxy_that_answers_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than calls may be nested."""
    answer = b"HTTP/1.1 403 Forbidden\r\nx: " + b"y" * 3000 + b"\r\n\r\n"

    def serve(listener: socket.socket) -> None:
        for _ in range(2):
            link, _ = listener.accept()
            with link, suppress(OSError):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.recv(4096)
                for at in range(len(answer)):
                    link.sendall(answer[at : at + 1])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
        store = open_store("s3://bucket", StoreOptions(endpoint="https://store.example", anonymous=True, retries=0))
        with closing(fetcher()) as reader:
            [straight] = reader.straights(1)
            with pytest.raises(DeniedError, match="does not connect to"):
                straight.get(Read(store, "k", start=0, stop=1 << 20))
            with pytest.raises(DeniedError, match="does not connect to"):
                reader.get(Read(store, "k"))
            straight.close()
        server.join(20)
        assert not server.is_alive()
