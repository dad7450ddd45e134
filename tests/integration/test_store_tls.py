"""Stores inside TLS: which authorities are trusted, and sessions that are resumed. The server's TLS is OpenSSL's."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from headrace.base.errors import UnreachableError
from headrace.base.metrics import Metrics
from headrace.base.settings import FetchSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.store import StoreOptions, open_store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Objects

CONTENT = {"bucket/k": bytes(range(256)) * 100, "k": b"hello"}


def context_of(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """One that nobody trusts yet; its certificate is ``ca.pem``."""
    for variable in ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return authority


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[FaultServer]:
    with FaultServer(Objects(CONTENT), tls=context_of(authority)) as server:
        yield server


def fetcher() -> Fetcher:
    return Fetcher(Settings(fetch=FetchSettings(retries=1)), None, Metrics())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_are_resumed_by_every_way_to_read(
    authority: trustme.CA, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """The first connection of the process to that server shakes hands in full; no other does."""
    context = context_of(authority)
    context.minimum_version = context.maximum_version = version
    options = StoreOptions(ca_file=str(tmp_path / "ca.pem"))
    with FaultServer(Objects(CONTENT), tls=context) as server, closing(fetcher()) as reader:
        url = f"https://127.0.0.1:{server.port}"
        store = open_store(url, options)
        assert bytes(store.get("k").data) == b"hello"
        assert bytes(reader.get(Read(store, "k")).data) == b"hello"
        [straight] = reader.straights(1)
        assert bytes(straight.get(Read(store, "k", start=0, stop=5)).data) == b"hello"
        straight.close()
        assert bytes(open_store(url, options).get("k").data) == b"hello"
        stats = context.session_stats()
        assert (stats["accept_good"], stats["hits"]) == (4, 3)


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "SSL_CERT_FILE"])
@pytest.mark.parametrize("scheme", ["https", "s3"])
def test_authorities_that_a_variable_names_are_trusted(
    server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, variable: str
) -> None:
    url = "s3://bucket" if scheme == "s3" else f"{server.endpoint}/"
    endpoint = server.endpoint if scheme == "s3" else None
    options = StoreOptions(endpoint=endpoint, anonymous=scheme == "s3", retries=0)
    with closing(fetcher()) as reader:
        store = open_store(url, options)
        with pytest.raises(UnreachableError, match="is not trusted"):
            store.get("k")
        with pytest.raises(UnreachableError, match="is not trusted"):
            reader.get(Read(store, "k"))
        monkeypatch.setenv(variable, str(tmp_path / "ca.pem"))
        store = open_store(url, options)
        assert bytes(store.get("k").data) == bytes(reader.get(Read(store, "k")).data)
        assert len(store.get("k").data) > 0


def test_a_file_of_authorities_is_read_again_once_it_has_changed(server: FaultServer, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    trustme.CA().cert_pem.write_to_path(str(bundle))
    options = StoreOptions(ca_file=str(bundle), retries=0)
    with pytest.raises(UnreachableError, match="is not trusted"):
        open_store(server.endpoint, options).get("k")
    bundle.write_bytes(bundle.read_bytes() + (tmp_path / "ca.pem").read_bytes())
    assert bytes(open_store(server.endpoint, options).get("k").data) == b"hello"
