"""The page on a socket, until it is told to end."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Final, Self

import uvicorn

from headrace.base.errors import InputError
from headrace.base.memory import few_arenas
from headrace.web import private_socket
from headrace.web.app import application
from headrace.web.world import World

_ARENAS: Final = 2
"""Of the allocator, for forty threads that answer: with one each, fifty viewers cost 20 MB more."""


class Server:
    """Listens from the moment it is made; `run` answers, or in a ``with`` block a thread of its own. One thread, but
    for `stop`, which any may call.

    Raises:
        InputError: host, port or socket cannot be had. DeniedError: as `private_socket.listen`.
    """

    def __init__(self, world: World) -> None:
        options = world.options
        self._socket = private_socket.listen(options.socket) if options.socket else _listen(options.host, options.port)
        self._world = world
        config = uvicorn.Config(
            application(world), log_level="warning", access_log=False, server_header=False, date_header=False,
            lifespan="off", timeout_graceful_shutdown=1, ws="none", proxy_headers=False,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.run, name="headrace-web")

    @property
    def url(self) -> str:
        """Without the token; of a Unix socket, its path."""
        if self._world.options.socket:
            return f"unix:{self._world.options.socket}"
        host, port = self._socket.getsockname()[:2]
        host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{self._world.options.base}"

    @property
    def entry(self) -> str:
        """With the token, unless who started the page knows it: what is opened first."""
        if self._world.options.known:
            return self.url
        return f"{self.url}/?token={self._world.options.token}"

    def run(self) -> None:
        """Answer until `stop`, or a signal that Python makes an exception of."""
        few_arenas(_ARENAS)
        try:
            self._server.run([self._socket])
        finally:
            self.close()

    def close(self) -> None:
        """Where `run` was not reached. Idempotent."""
        self._socket.close()
        if self._world.options.socket:
            private_socket.remove(self._world.options.socket)
        self._world.close()

    def stop(self) -> None:
        """Have `run` return soon."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._thread.join()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        where, why = f"{host}:{port}", f"cannot be listened on: {error.strerror}"
        raise InputError(why, path=where, hint="another --port, or none") from error
