"""A gateway on a socket, in one process or several, until it is told to end."""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Self

from headrace.base.errors import InputError, InternalError
from headrace.base.places import make_folder
from headrace.base.settings import Settings
from headrace.fetch import Fetcher
from headrace.gateway.buckets import Buckets
from headrace.gateway.door import Door
from headrace.gateway.options import GatewayOptions
from headrace.http_server import Address, Processes, Server
from headrace.namespace import Namespace

_DRAIN_S = 1.0
"""For requests under way: Ctrl-C ends any command within two seconds."""


class Gateway:
    """S3 over the namespace of `settings`. Listens from the moment it is made; answers from `start` on.

    `keys`: who may ask; `buckets`: names of what is shown.

    Args:
        options: see `GatewayOptions`; at least one key is needed.
        settings: with the mounts; by default as every command finds them.

    Raises:
        InputError: the address cannot be listened on, nothing is attached, or no key is given.
    """

    def __init__(self, options: GatewayOptions, settings: Settings | None = None) -> None:
        if not options.keys:
            raise InputError("a gateway without keys answers nobody", hint="give it a file of them, or one made for it")
        self.keys = options.keys
        settings = settings or Settings.load()
        namespace = Namespace.load(settings, local=False)
        self.buckets = Buckets(namespace, options.tree, options.buckets).names
        namespace.close()
        if not self.buckets:
            raise InputError("nothing is attached, so there is no bucket", hint="headrace attach /data s3://bucket")
        base = make_folder(options.spool or f"{settings.cache.dir}/gateway", "HEADRACE_CACHE_DIR")
        make = functools.partial(application, settings, options, base)
        self._server: Server | Processes = (
            Processes(make, options.address, count=options.processes)
            if options.processes > 1
            else Server(make(), options.address)
        )

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._server.address

    @property
    def url(self) -> str:
        """The endpoint, for clients."""
        return self._server.address.url

    @property
    def pids(self) -> list[int]:
        """Of the processes that answer; none where this one does."""
        return self._server.pids if isinstance(self._server, Processes) else []

    def start(self) -> Self:
        """Begin to answer, on threads or processes of its own."""
        self._server.start()
        return self

    def wait(self) -> None:
        """Until it has ended, or an exception such as Ctrl-C's comes here. Raises InternalError: it failed."""
        while not self._server.wait(1.0):  # in slices: a signal that comes just before one is heard after it
            pass
        if isinstance(self._server, Server) and self._server.failed:
            raise InternalError("the gateway ended by an error of its own", hint="the log says which")

    def close(self, seconds: float = _DRAIN_S) -> None:
        """Answer what is under way, for so long, and end. Idempotent."""
        self._server.drain(seconds)
        if isinstance(self._server, Server):
            self._server.close()
            door = self._server.application
            if isinstance(door, Door):
                door.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def application(settings: Settings, options: GatewayOptions, folder: str) -> Door:
    """What answers, in each process. `folder`: of all gateways of the user on this node."""
    fetcher = Fetcher.open(settings)
    return Door(Namespace.load(settings, fetcher=lambda: fetcher, local=False), options, folder)
