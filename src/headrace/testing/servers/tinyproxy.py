"""A real HTTP proxy, with tunnels, optionally with a password."""

from __future__ import annotations

import signal

from headrace.base.ports import reserve_port
from headrace.testing.servers.process import HOST, Server, find_program, listens

_CONFIG = """
Port {port}
Listen {host}
Timeout 60
LogFile "{folder}/requests.log"
LogLevel Connect
MaxClients 100
Allow {host}
{login}
{refused}
"""


class Tinyproxy(Server):
    """A proxy on loopback. `requests`: what it was asked for.

    Args:
        login: name and password that it asks for.
        refused: a pattern of hosts that it does not connect to.

    Raises (on entry):
        UnsupportedError: tinyproxy is missing. ServerError: it did not start.
    """

    def __init__(self, *, login: tuple[str, str] | None = None, refused: str = "") -> None:
        super().__init__()
        self.port = 0
        self._login, self._refused = login, refused

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        program = find_program("tinyproxy", package="tinyproxy-bin")
        self.port = reserve_port()
        refused = self.folder / "refused"
        refused.write_text(f"{self._refused}\n")
        config = self.folder / "tinyproxy.conf"
        login = "BasicAuth {} {}".format(*self._login) if self._login else ""
        text = f'Filter "{refused}"\nFilterExtended On' if self._refused else ""
        config.write_text(_CONFIG.format(port=self.port, host=HOST, folder=self.folder, login=login, refused=text))
        process = self.launch("tinyproxy", [program, "-d", "-c", str(config)], death=signal.SIGTERM)
        process.wait_until(lambda: listens(self.port))

    @property
    def requests(self) -> list[str]:
        """Request lines so far, as ``GET http://host/path HTTP/1.1``."""
        log = (self.folder / "requests.log").read_text(errors="replace")
        return [line.partition("): ")[2] for line in log.splitlines() if "Request (file descriptor" in line]
