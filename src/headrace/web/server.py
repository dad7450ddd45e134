"""The page on a socket, until it is told to end."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import uvicorn

from headrace.base.errors import InputError
from headrace.web.app import application
from headrace.web.world import World


class Server:
    """Listens from the moment it is made; `run` answers. One thread, but for `stop`, which any may call.

    Raises:
        InputError: host or port cannot be had.
    """

    def __init__(self, world: World) -> None:
        options = world.options
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        try:
            self._socket = socket.create_server((options.host, options.port), family=family, backlog=256)
        except OSError as error:
            where, why = f"{options.host}:{options.port}", f"cannot be listened on: {error.strerror}"
            raise InputError(why, path=where, hint="another --port, or none") from error
        self._world = world
        config = uvicorn.Config(
            application(world), log_level="warning", access_log=False, server_header=False, date_header=False,
            lifespan="off", timeout_graceful_shutdown=1, ws="none", proxy_headers=False,
        )  # fmt: skip
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """Without the token."""
        host, port = self._socket.getsockname()[:2]
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{self._world.options.base}"

    @property
    def entry(self) -> str:
        """With the token: what is opened first."""
        return f"{self.url}/?token={self._world.options.token}"

    def run(self) -> None:
        """Answer until `stop`, or a signal that Python makes an exception of."""
        try:
            self._server.run([self._socket])
        finally:
            self._socket.close()
            self._world.close()

    def stop(self) -> None:
        """Have `run` return soon."""
        self._server.should_exit = True

    def beside(self, work: Callable[[], object]) -> None:
        """Run on a thread of its own while `work` goes on here."""
        thread = threading.Thread(target=self.run, name="headrace-web")
        thread.start()
        try:
            work()
        finally:
            self.stop()
            thread.join()
