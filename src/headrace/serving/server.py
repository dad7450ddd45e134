"""A server of models: in this process, or as several that share a port."""

from __future__ import annotations

import logging
from functools import partial
from types import TracebackType
from typing import Self

from headrace.http_server import Address, Limits, Processes
from headrace.http_server import Server as HttpServer
from headrace.models.registry import Registry
from headrace.serving.app import App
from headrace.serving.control import Hub, Link
from headrace.serving.following import Following
from headrace.serving.opening import Opener
from headrace.serving.options import Options
from headrace.serving.station import Station

_log = logging.getLogger("headrace.serving")


class Server:
    """Models behind HTTP, in this process: for tests, notebooks, and programs that have a server in them.

    Answers from `start` on, with 503 until a model is loaded. Any thread; also a context manager.
    """

    def __init__(self, options: Options, registry: Registry | None = None) -> None:
        """Raises InputError: the address cannot be listened on. SettingError: no home is set."""
        registry = registry or Registry.load()
        self.station = Station(options, Opener(registry, options).of)
        self._http = HttpServer(App(self.station, options), Address(options.host, options.port), limits=_limits(options))
        self._following = Following(registry, options, self.station.heard)
        self.station.asked_pointers = lambda: float(self._following.requests)
        self._options = options
        self._grpc = _grpc(self.station, options, options.grpc_port)

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
        return self

    def drain(self, seconds: float = 10.0) -> bool:
        """No longer ready, no more connections; end when what is under way is answered. Whether it was in time."""
        self.station.leaving = True
        done = self._http.drain(seconds)
        self.close()
        return done

    def close(self) -> None:
        """End now."""
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

    This process follows the pointers for all of them.
    """

    def __init__(self, options: Options, registry: Registry | None = None) -> None:
        """Raises as `Server`."""
        registry = registry or Registry.load()
        self._options = options
        self._hub = Hub()
        try:
            self._grpc = None if options.grpc_port is None else _reserved(options)
            make = partial(_application, options, self._hub.path, None if self._grpc is None else self._grpc[1])
            address = Address(options.host, options.port)
            self._processes = Processes(make, address, count=options.processes, limits=_limits(options))
        except BaseException:
            self._hub.close()
            raise
        self._following = Following(registry, options, self._hub.heard)
        self._hub.counted = lambda: self._following.requests

    @property
    def url(self) -> str:
        """For clients."""
        return self._processes.address.url

    @property
    def grpc(self) -> str | None:
        """``host:port`` of gRPC; None: it is off."""
        return None if self._grpc is None else f"{self._options.host}:{self._grpc[1]}"

    def start(self) -> Self:
        """Start the processes, and begin to follow. Raises InputError: they do not start."""
        try:
            self._processes.start()
        except BaseException:
            self.close()
            raise
        self._following.start()
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
