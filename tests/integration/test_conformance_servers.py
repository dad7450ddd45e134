"""The conformance suite on real servers and emulators: their differences are named here, nowhere assumed."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from headrace.base.errors import NameRefusedError
from headrace.base.ports import reserve_port
from headrace.store import open_store
from headrace.testing.conformance import RemoteConformance, StoreConformance
from headrace.testing.conformance.refusals import WRONG_SECRET
from headrace.testing.servers import Sftp

from .test_conformance_local import FILES, OBSTORE

pytestmark = pytest.mark.server
BUCKET = "conformance"


class S3(RemoteConformance):
    """Over an S3 server: the subclass gives `server`."""

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, server):
        return server.create_bucket(BUCKET)

    @pytest.fixture
    def store(self, server, url):
        with_store = open_store(f"{url}/below", server.options())
        yield with_store
        with_store.close()

    @pytest.fixture
    def hasty(self, server, url):
        with_store = open_store(f"{url}/below", dataclasses.replace(server.options(), retries=1))
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
        nobody = f"http://127.0.0.1:{reserve_port()}"
        return open_store("s3://any", dataclasses.replace(server.options(), endpoint=nobody, timeout_s=1.0, retries=1))


class TestSeaweedFS(S3):
    # A file system inside: no empty, "." or ".." names, and a backslash is a slash.
    unsupported = frozenset({"single-dot", "double-dot", "double-slash", "trailing-slash", "backslash"})
    sorted_listing = False  # folder by folder: what is below a/ comes before a-b
    keeps_empty_folders = True  # for a while, until its own cleaner comes by

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, seaweedfs):
        return seaweedfs


class TestCephRGW(S3):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, rgw):
        return rgw


class TestAzurite(StoreConformance):
    unsupported = OBSTORE | {"backslash"}  # the server takes it for a slash
    sorted_listing = False  # it sorts by UTF-16 code units

    @pytest.fixture
    def store(self, azurite):
        return open_store(azurite.create_bucket(BUCKET) + "/below", azurite.options())


class TestFakeGCS(StoreConformance):
    unsupported = OBSTORE
    lost_headers = frozenset({"content-disposition", "content-language", "cache-control"})  # Google keeps them

    @pytest.fixture
    def store(self, gcs):
        return open_store(gcs.create_bucket(BUCKET) + "/below", gcs.options())


class TestSftp(StoreConformance):
    unsupported = FILES
    keeps_empty_folders = True
    many = 60  # a listing is a walk, a folder at a time: the server has no pages

    @pytest.fixture
    def store(self, sftp):
        with_store = open_store(sftp.create_bucket(BUCKET), sftp.options())
        yield with_store
        with_store.close()

    def test_what_replaces_an_object_is_there_at_once_and_whole(self, sftp, store):
        """By the server's own renaming: a copy would be seen half written, and a name that is free first, without."""
        states = {bytes([number]) * 300_000 for number in range(20)}
        store.put("replaced", next(iter(states)))
        with closing(open_store(store.url, sftp.options())) as other, ThreadPoolExecutor(1) as pool:
            writing = pool.submit(lambda: [store.put("replaced", state) for state in states])
            while not writing.done():
                assert bytes(other.get("replaced").data) in states
            writing.result()

    def test_a_name_that_the_server_refuses_is_not_tried_again_and_again(self, store):
        with pytest.raises(NameRefusedError):
            store.put("x" * 5000, b"x")


class TestSftpThatFails:
    """The server is these tests' own; each connection has a process on its side."""

    @pytest.fixture
    def server(self, sftp):
        with Sftp() as own:
            yield own

    def test_a_lost_connection_is_opened_anew(self, server):
        with closing(open_store(server.create_bucket(BUCKET), server.options())) as store:
            store.put("kept", b"hello")
            server.drop_connections()
            assert bytes(store.get("kept").data) == b"hello"
            server.drop_connections()
            store.put("after", b"again")
            assert bytes(store.get("after").data) == b"again"

    def test_a_connection_that_has_fallen_silent_counts_as_lost(self, server):
        options = dataclasses.replace(server.options(), timeout_s=8)
        with closing(open_store(server.create_bucket(BUCKET), options)) as store:
            store.put("kept", b"hello")
            with server.stalled_connections():
                assert bytes(store.get("kept").data) == b"hello"
