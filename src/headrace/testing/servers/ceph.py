"""A Ceph cluster of one: monitor, memory-backed OSD, and the RADOS gateway that speaks S3.

Options: docs.ceph.com, "Configuring Ceph"; no cephx, one replica, everything on loopback, data gone at the end.
"""

from __future__ import annotations

import time
import uuid

from headrace.base.ports import reserve_port
from headrace.store.backends.s3 import create_bucket
from headrace.store.protocol import StoreOptions
from headrace.testing.servers.process import (
    HOST,
    Server,
    ServerError,
    ServerProcess,
    find_program,
    listens,
    run_tool,
)

_CONFIG = """\
[global]
fsid = {fsid}
mon host = v1:{host}:{mon_port}
mon initial members = a
public addr = {host}
cluster addr = {host}
ms bind msgr2 = false
auth cluster required = none
auth service required = none
auth client required = none
run dir = {folder}
admin socket = {folder}/$name.asok
log file = /dev/null
mon cluster log file = /dev/null
pid file =
mon data = {folder}/mon
osd data = {folder}/osd
rgw data = {folder}/rgw
mon allow pool size one = true
mon warn on pool no redundancy = false
mon data avail crit = 1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
osd objectstore = memstore
memstore device bytes = 2147483648
mon max pg per osd = 1000
rgw frontends = beast endpoint={host}:{port}
rgw enable apis = s3
rgw enable usage log = false
rgw dynamic resharding = false
rgw lifecycle work time = 00:00-00:01
rgw crypt require ssl = false
rgw crypt s3 kms backend = testing
rgw crypt s3 kms encryption keys = test-key=aGVhZHJhY2UtaGVhZHJhY2UtaGVhZHJhY2UtaGVhZHI=
"""


class CephRGW(Server):
    """Ceph's S3 gateway on a free loopback port, up about 15 s after ``with``. Several may run at once.

    Raises (on entry):
        UnsupportedError: a Ceph program is missing.
        ServerError: a daemon did not start.
    """

    access_key = "headrace-test"
    secret_key = "headrace-test-secret"

    def __init__(self) -> None:
        super().__init__()
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def options(self) -> StoreOptions:
        """How `open_store("s3://bucket", …)` reaches it."""
        return StoreOptions(
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            path_style=True,
            allow_http=True,
        )

    def create_bucket(self, name: str) -> str:
        """Make a bucket if there is none of that name, and return its URL."""
        create_bucket(name, self.options())
        return f"s3://{name}"

    def start(self) -> None:
        for program in ("ceph-mon", "ceph-osd", "radosgw", "monmaptool", "ceph", "radosgw-admin"):
            find_program(program, package="ceph-mon ceph-osd ceph-base ceph-common radosgw")
        self.port = reserve_port()
        mon_port, fsid = reserve_port(), str(uuid.uuid4())
        config = self.folder / "ceph.conf"
        config.write_text(_CONFIG.format(fsid=fsid, host=HOST, mon_port=mon_port, port=self.port, folder=self.folder))
        for name in ("mon", "osd", "rgw"):
            (self.folder / name).mkdir()
        self._start_monitor(fsid, mon_port)
        self._start_osd()
        # Creating a user makes the pools, which the gateway would otherwise wait for.
        key = ("--access-key", self.access_key, "--secret-key", self.secret_key)
        self._tool("radosgw-admin", "user", "create", "--uid=headrace", "--display-name=headrace", *key)
        self._daemon("radosgw", "-n", "client.rgw").wait_until(lambda: listens(self.port), 90)

    def _start_monitor(self, fsid: str, port: int) -> None:
        monmap = str(self.folder / "monmap")
        run_tool(["monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v1:{HOST}:{port}]", monmap])
        self._tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap)
        self._daemon("ceph-mon", "-i", "a").wait_until(lambda: listens(port))

    def _start_osd(self) -> None:
        number = str(uuid.uuid4())
        self._tool("ceph", "osd", "new", number, "0")
        self._tool("ceph-osd", "--mkfs", "-i", "0", "--osd-uuid", number, "--monmap", str(self.folder / "monmap"))
        # Done by hand: an OSD that does it itself may ask before it knows the cluster's id, and is refused.
        self._tool("ceph", "osd", "crush", "add", "osd.0", "1", "root=default")
        osd = self._daemon("ceph-osd", "-i", "0")
        osd.wait_until(lambda: " 1 up" in self._tool("ceph", "osd", "stat").replace(":", ""))

    def _daemon(self, program: str, *arguments: str) -> ServerProcess:
        path = find_program(program, package="ceph")
        argv = [path, "-c", str(self.folder / "ceph.conf"), "-f", *arguments]
        return self.launch(program, argv)

    def _tool(self, program: str, *arguments: str) -> str:
        deadline = time.monotonic() + 90
        while True:  # a monitor that is still electing itself refuses at first
            try:
                return run_tool([program, "-c", str(self.folder / "ceph.conf"), *arguments])
            except ServerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
