"""A file of nginx's with the replicas that are to be asked, kept up to date from the home.

    upstream digits { include /etc/nginx/headrace/digits.conf; }

https://nginx.org/en/docs/http/ngx_http_upstream_module.html
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Iterator
from typing import Final

from headrace.base.errors import DeniedError, InputError, TryAgainError
from headrace.cluster.serving.listing import changes
from headrace.cluster.serving.told import ServiceTold
from headrace.namespace.home import Home

_NOBODY: Final = "server 127.0.0.1:9 down;  # no replica is ready\n"
"""nginx takes no upstream without a server."""
_RELOAD_S: Final = 60.0  # seconds for the command that has nginx read the file again
_INTERVAL_S: Final = 2.0  # seconds between looks at the home


class Upstreams:
    """Writes the file whenever other replicas are to be asked. One thread.

    Args:
        home: where the service is told.
        name: of the service.
        path: of the file; its folder is there. It is replaced whole.
        reload: a command that is run after each change, such as ``nginx -s reload``.
    """

    def __init__(self, home: Home, name: str, path: str, *, reload: str | None = None) -> None:
        self._home, self._name, self._path = home, name, path
        try:
            self._reload = shlex.split(reload) if reload else []
        except ValueError as error:
            raise InputError(f"{reload!r} is no command: {error}") from error
        self._written: str | None = None

    def follow(self, over: threading.Event, interval: float = _INTERVAL_S) -> Iterator[tuple[str, ...]]:
        """Keep it up to date until `over` is set, looking every `interval` seconds; gives what it was filled with.

        Raises DeniedError: the file cannot be written, the home not read. TryAgainError: the command did not work.
        """
        for told in changes(self._home, self._name, over, interval):
            if self._write(told):
                yield tuple(one.name for one in told.ready)

    def _write(self, told: ServiceTold) -> bool:
        lines = [f"server {(one.url or '').removeprefix('http://')};  # {one.name}\n" for one in told.ready]
        text = "".join(lines) or _NOBODY
        if text == self._written:
            return False
        beside = f"{self._path}.{os.getpid()}"
        try:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(beside, self._path)
        except OSError as error:
            raise DeniedError(f"cannot be written: {error.strerror}", path=self._path) from error
        if self._reload:
            self._run()
        self._written = text
        return True

    def _run(self) -> None:
        try:
            subprocess.run(self._reload, check=True, timeout=_RELOAD_S, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as error:
            raise TryAgainError(f"the command after a change did not work: {error}", path=self._path) from error
