"""The test servers themselves: they serve, dawdle when told, and die with whoever started them."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time

import psutil
import pytest

from headrace.base.errors import UnsupportedError
from headrace.testing.servers import Azurite, Delay, Nginx
from headrace.testing.servers.process import find_program
from tests.children import running
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def root(tmp_path):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "a b").write_bytes(b"0123456789")
    return tmp_path


def serving(server):
    try:
        return server.__enter__()
    except UnsupportedError as error:
        pytest.skip(str(error))


def fetch(endpoint, path, headers=None):
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_nginx_serves_ranges_and_conditions(root):
    server = serving(Nginx(root))
    try:
        assert fetch(server.endpoint, "/bucket/a%20b") == (200, b"0123456789")
        assert fetch(server.endpoint, "/bucket/a%20b", {"Range": "bytes=2-4"}) == (206, b"234")
        assert fetch(server.endpoint, "/bucket/a%20b", {"If-Match": '"no"'})[0] == 412
        assert fetch(server.endpoint, "/bucket/none")[0] == 404
    finally:
        server.close()


def test_nginx_dawdles_and_passes_listings_on(root):
    behind = serving(Nginx(root))
    server = serving(Nginx(root, delay=Delay(0.1, 0.12, straggler_rate=0), listing=behind.endpoint))
    try:
        began = time.monotonic()
        assert fetch(server.endpoint, "/bucket/a%20b")[1] == b"0123456789"
        assert 0.1 <= time.monotonic() - began < 2
        assert fetch(server.endpoint, "/bucket/a%20b?list-type=2")[1] == b"0123456789"
    finally:
        server.close()
        behind.close()


def test_a_server_dies_with_a_killed_parent(root):
    serving(Nginx(root)).close()
    program = (
        "import sys, time, pathlib\n"
        "from headrace.testing.servers import Nginx\n"
        f"server = Nginx(pathlib.Path({str(root)!r}), workers=2).__enter__()\n"
        "print(server._processes[0].pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    place = {**os.environ, "TMPDIR": str(root)}  # nobody is left to remove its folder but pytest
    with running([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=place) as parent:
        assert parent.stdout is not None
        master = psutil.Process(int(parent.stdout.readline()))
        assert wait_for(lambda: len(master.children()) == 2, 60), "it serves with its first worker already"
        family = [master, *master.children()]
        parent.kill()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UnsupportedError, match="no-such-program") as caught:
        find_program("no-such-program", package="some-package")
    assert "some-package" in str(caught.value)
    with pytest.raises(UnsupportedError):
        Azurite(tmp_path).__enter__()
