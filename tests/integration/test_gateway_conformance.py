"""headrace through the gateway: its store conformance suite, against S3's and against files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.store import open_store
from tests.gateway_kit import gateway_over, mount, settings_of
from tests.integration.test_conformance_servers import S3

pytestmark = pytest.mark.server


class Behind:
    """What the suite asks of a server."""

    def __init__(self, rig):
        self._rig = rig

    def create_bucket(self, _):
        return "s3://data"

    def options(self):
        return self._rig.options()


class TestGatewayOverSeaweedFS(S3):
    unsupported = frozenset({"single-dot", "double-dot", "double-slash", "trailing-slash", "backslash"})
    sorted_listing = False
    keeps_empty_folders = True

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, seaweedfs, tmp_path_factory):
        folder = tmp_path_factory.mktemp("gateway")
        url = seaweedfs.create_bucket("behind-the-gateway")
        with gateway_over(settings_of({"/data": mount(url, seaweedfs.options())}, folder), folder) as rig:
            yield Behind(rig)


class TestGatewayOverFiles:
    def test_a_folder_of_this_machine(self, tmp_path: Path):
        (tmp_path / "files").mkdir()
        settings = settings_of({"/data": {"url": f"file://{tmp_path}/files"}}, tmp_path)
        with gateway_over(settings, tmp_path) as rig:
            store = open_store("s3://data", rig.options())
            store.put("a/b", b"hello")
            assert bytes(store.get("a/b").data) == b"hello"
            assert (tmp_path / "files" / "a" / "b").read_bytes() == b"hello"
            assert [one.key for page in store.list() for one in page] == ["a/b"]
            store.close()
