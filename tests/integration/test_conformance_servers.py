"""The conformance suite on real servers and emulators: their differences are named here, nowhere assumed."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.store import open_store
from headrace.testing.conformance import RemoteConformance, StoreConformance
from headrace.testing.conformance.refusals import WRONG_SECRET
from headrace.testing.servers.process import free_port

from .test_conformance_local import FILES, OBSTORE

pytestmark = pytest.mark.server
BUCKET = "conformance"


class S3(RemoteConformance):
    """Over an S3 server: the subclass gives `server`."""

    @pytest.fixture(scope="class")
    def url(self, server):
        return server.create_bucket(BUCKET)

    @pytest.fixture
    def store(self, server, url):
        with_store = open_store(f"{url}/below", server.options())
        yield with_store
        with_store.close()

    @pytest.fixture
    def absent(self, server):
        return open_store("s3://there-is-no-such-bucket", server.options())

    @pytest.fixture
    def intruder(self, server, url):
        return open_store(url, dataclasses.replace(server.options(), secret_access_key=WRONG_SECRET))

    @pytest.fixture
    def unreachable(self, server):
        nobody = f"http://127.0.0.1:{free_port()}"
        return open_store("s3://any", dataclasses.replace(server.options(), endpoint=nobody, timeout_s=1.0))


class TestSeaweedFS(S3):
    # A file system inside: no empty, "." or ".." names, and a backslash is a slash.
    unsupported = frozenset({"single-dot", "double-dot", "double-slash", "trailing-slash", "backslash"})
    sorted_listing = False  # folder by folder: what is below a/ comes before a-b
    keeps_empty_folders = True  # for a while, until its own cleaner comes by

    @pytest.fixture(scope="class")
    def server(self, seaweedfs):
        return seaweedfs


class TestCephRGW(S3):
    @pytest.fixture(scope="class")
    def server(self, rgw):
        return rgw


class TestAzurite(StoreConformance):
    unsupported = OBSTORE | {"backslash"}  # the server takes it for a slash
    sorted_listing = False  # it sorts by UTF-16 code units

    @pytest.fixture
    def store(self, azurite):
        return open_store(azurite.create_bucket(BUCKET) + "/below", azurite.options())


class TestFakeGCS(StoreConformance):
    unsupported = OBSTORE

    @pytest.fixture
    def store(self, gcs):
        return open_store(gcs.create_bucket(BUCKET) + "/below", gcs.options())


class TestSftp(StoreConformance):
    unsupported = FILES
    keeps_empty_folders = True
    many = 300  # a listing is a walk, a folder at a time

    @pytest.fixture
    def store(self, sftp):
        with_store = open_store(sftp.create_bucket(BUCKET), sftp.options())
        yield with_store
        with_store.close()

    def test_a_lost_connection_is_opened_anew(self, store, sftp):
        """Each connection has a process of its own on the server's side."""
        store.put("kept", b"hello")
        sftp.drop_connections()
        assert bytes(store.get("kept").data) == b"hello"
        sftp.drop_connections()
        store.put("after", b"again")
        assert bytes(store.get("after").data) == b"again"
