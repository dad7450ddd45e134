"""Azurite, Microsoft's emulator of Azure Blob Storage, from npm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
from email.utils import formatdate
from pathlib import Path

from headrace.base.errors import UnsupportedError
from headrace.base.ports import reserve_port
from headrace.store.protocol import StoreOptions
from headrace.testing.servers.process import HOST, Server, ServerError, find_program, listens

_MAIN = Path("node_modules/azurite/dist/src/blob/main.js")


class Azurite(Server):
    """Azurite's blob service on a free loopback port, data in memory.

    Args:
        tools: the folder where ``npm install --prefix <tools> azurite`` was run.

    Raises (on entry):
        UnsupportedError: node or azurite is missing.
        ServerError: it did not start.
    """

    account = "headrace"
    key = base64.b64encode(b"a key for tests on loopback only").decode()

    def __init__(self, tools: Path) -> None:
        super().__init__()
        self.port = 0
        self._main = tools / _MAIN

    @property
    def endpoint(self) -> str:
        """With the account as its path, which is how the emulator names accounts."""
        return f"http://{HOST}:{self.port}/{self.account}"

    def options(self) -> StoreOptions:
        """How `open_store("az://container", …)` reaches it."""
        account = (("account_name", self.account), ("account_key", self.key))
        return StoreOptions(endpoint=self.endpoint, allow_http=True, extra=account)

    def start(self) -> None:
        node = find_program("node", package="nodejs")
        if not self._main.is_file():
            hint = "npm install --prefix .tools azurite, or run: make test"
            raise UnsupportedError("azurite is not installed", path=str(self._main), hint=hint)
        self.port = reserve_port()
        quiet = ("--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence")
        process = self.launch(
            "azurite",
            [node, str(self._main.resolve()), "--blobHost", HOST, "--blobPort", str(self.port), *quiet],
            environment={"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"},
        )
        process.wait_until(lambda: listens(self.port))

    def create_bucket(self, name: str) -> str:
        """Make a container if there is none of that name, and return its URL.

        Signed with Shared Key (learn.microsoft.com, "Authorize with Shared Key").
        """
        date, version = formatdate(usegmt=True), "2021-08-06"
        resource = f"/{self.account}/{self.account}/{name}\nrestype:container"
        canonical = f"x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
        text = "PUT" + "\n" * 12 + canonical
        mac = hmac.digest(base64.b64decode(self.key), text.encode(), hashlib.sha256)
        signature = f"SharedKey {self.account}:{base64.b64encode(mac).decode()}"
        headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": signature, "Content-Length": "0"}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        try:
            connection.request("PUT", f"/{self.account}/{name}?restype=container", headers=headers)
            answer = connection.getresponse()
            if answer.status not in (201, 409):
                raise ServerError(f"no container: {answer.status} {answer.read()[:500]!r}", path=self.endpoint)
        finally:
            connection.close()
        return f"az://{name}"
