"""A server of models: in this process, or as several that share a port."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from headrace.base.errors import InputError, UnsupportedError
from headrace.http_server import Address, Limits, Processes
from headrace.http_server import Server as HttpServer
from headrace.models import Registry
from headrace.serving.app import App
from headrace.serving.control import Hub, Link
from headrace.serving.following import Following
from headrace.serving.opening import Opener
from headrace.serving.options import Options
from headrace.serving.station import Station
from headrace.serving.telling import Telling

if TYPE_CHECKING:
    from headrace.serving.grpc_server import GrpcServer

_GRACE_S: Final = 5.0
"""How long requests over gRPC may still take in a process whose HTTP server has ended."""
_CATCH_UP_S: Final = 20.0
"""How long a process that takes a dead one's place may load before it answers."""


class Server:
    """Models behind HTTP, in this process: for tests, notebooks, and programs that have a server in them.

    Answers from `start` on, with 503 until a model is loaded. Any thread; also a context manager.
    """

    def __init__(self, options: Options, registry: Registry | None = None) -> None:
        """Raises InputError: the address cannot be listened on. SettingError: no home is set."""
        registry = registry or Registry.load()
        self.station = Station(options, Opener(registry, options).of)
        self._http = HttpServer(
            App(self.station, options), Address(options.host, options.port), limits=_limits(options)
        )
        self._following = Following(registry, options, self.station.heard)
        self.station.asked_pointers = lambda: float(self._following.requests)
        self._grpc = _grpc(self.station, options)
        self._telling = Telling(registry, options, lambda: [self.station.told("served", "")])

    @property
    def url(self) -> str:
        """For clients."""
        return self._http.address.url

    @property
    def grpc(self) -> str | None:
        """``host:port`` of gRPC; None: it is off."""
        return None if self._grpc is None else self._grpc.address

    def start(self) -> Self:
        """Begin to answer, and to follow."""
        self._http.start()
        self._following.start()
        self._telling.start(self.url, self.grpc)
        return self

    def drain(self, seconds: float = 10.0) -> bool:
        """No longer ready, no more connections; end when what is under way is answered. Whether it was in time."""
        self.station.leaving = True
        left = None if self._grpc is None else self._grpc.leave(seconds)
        done = self._http.drain(seconds)
        if left is not None:
            left.wait()
        self.close()
        return done

    def close(self) -> None:
        """End now."""
        self._telling.close()
        self._following.close()
        self._http.close()
        if self._grpc is not None:
            self._grpc.close()
        self.station.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Supervisor:
    """The same in processes of their own, which are started again if they die; what ``headrace serve`` runs.

    This process follows the pointers for all of them. `options`: what it serves, and how.
    """

    def __init__(self, options: Options, registry: Registry | None = None) -> None:
        """Raises as `Server`."""
        registry = registry or Registry.load()
        self.options = options
        self._hub = Hub()
        try:
            self._grpc = _reserved(options)
            given = options if self._grpc is None else replace(options, grpc_port=self._grpc[1])
            make = partial(_application, given, self._hub.path)
            address = Address(options.host, options.port)
            self._processes = Processes(make, address, count=options.processes, limits=_limits(options))
        except BaseException:
            self._hub.close()
            raise
        self._following = Following(registry, options, self._hub.heard)
        self._hub.counted = lambda: self._following.requests
        self._telling = Telling(registry, options, lambda: self._hub.ask_all("served", ""))

    @property
    def url(self) -> str:
        """For clients."""
        return self._processes.address.url

    @property
    def grpc(self) -> str | None:
        """``host:port`` of gRPC; None: it is off."""
        return None if self._grpc is None else f"{self.options.host}:{self._grpc[1]}"

    def start(self) -> Self:
        """Start the processes, and begin to follow. Raises InputError: they do not start."""
        try:
            self._processes.start()
        except BaseException:
            self.close()
            raise
        self._following.start()
        self._telling.start(self.url, self.grpc)
        return self

    def drain(self, seconds: float) -> bool:
        """No longer ready; no more connections; end when what is under way is answered. Whether it was in time."""
        self._hub.leave()
        self._following.close()
        done = self._processes.drain(seconds)
        self.close()
        return done

    def leave(self) -> None:
        """Readiness is false from now on; all is answered as before."""
        self._hub.leave()

    def close(self) -> None:
        """End now. Idempotent."""
        self._telling.close()
        self._following.close()
        self._processes.close()
        self._hub.close()
        if self._grpc is not None:
            self._grpc[0].close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _ChildApp(App):
    """What one of several processes has beside the HTTP server."""

    def __init__(self, options: Options, path: str) -> None:
        station = Station(options, Opener(Registry.load(), options).of)
        super().__init__(station, options)
        self._link = station.fleet = Link(path, station)
        self._link.caught_up(_CATCH_UP_S)  # its connections wait meanwhile, and none is refused
        self._grpc = _grpc(station, options)

    def close(self) -> None:
        """See `App`."""
        self._link.close()
        if self._grpc is not None:
            self._grpc.close(_GRACE_S)
        super().close()


def _application(options: Options, path: str) -> App:
    """In a child."""
    return _ChildApp(options, path)


def _limits(options: Options) -> Limits:
    return Limits(body=options.body)


def _grpc(station: Station, options: Options) -> GrpcServer | None:
    if options.grpc_port is None:
        return None
    _check_grpc()
    from headrace.serving.grpc_server import GrpcServer

    return GrpcServer(station, options, options.grpc_port)


def _check_grpc() -> None:
    if find_spec("grpc") is None or find_spec("google.protobuf") is None:
        raise UnsupportedError("gRPC needs grpcio and protobuf", hint="pip install 'headrace[grpc]'")


def _reserved(options: Options) -> tuple[socket.socket, int] | None:
    """A port that is ours, for all processes. The socket is held, and never listens."""
    if options.grpc_port is None:
        return None
    _check_grpc()
    made = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((options.host, options.grpc_port))
    except OSError as error:
        made.close()
        raise InputError(f"cannot listen for gRPC: {error}", path=f"{options.host}:{options.grpc_port}") from None
    return made, made.getsockname()[1]
