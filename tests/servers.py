"""The servers of a run: each is started once, by the process that starts the workers, when a test first asks for it.

Workers ask over a socket and get a copy that tells how the server is reached. Without workers the one process asks
itself, in the same way.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, TypeAlias

from headrace.base.errors import UnsupportedError

Make: TypeAlias = Callable[[], AbstractContextManager[Any]]
_START_S = 150


class _Kept:
    """One server, on a thread that outlives its use: servers die with the thread that started them."""

    def __init__(self, make: Make) -> None:
        self._running: Future[Any] = Future()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(make,), name="shared-server")
        self._thread.start()

    def server(self) -> Any:
        """Once it answers. Raises what starting it raised."""
        return self._running.result(_START_S)

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _hold(self, make: Make) -> None:
        try:
            with make() as server:
                self._running.set_result(server)
                self._end.wait()
        except BaseException as error:
            if self._running.done():
                raise
            self._running.set_exception(error)


class Keeper:
    """Starts servers for whoever asks at `address`, and ends all of them at `close`."""

    def __init__(self, kinds: Mapping[str, Make]) -> None:
        self._kinds = kinds
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()
        self._folder = tempfile.mkdtemp(prefix="headrace-keeper-")
        self._listener = Listener(f"{self._folder}/socket", "AF_UNIX", backlog=64)
        self._thread = threading.Thread(target=self._answer, name="keeper", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return str(self._listener.address)

    def close(self) -> None:
        with suppress(OSError), Client(self.address) as last:
            last.send(None)
        self._thread.join()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        for kept in self._kept.values():
            kept.close()

    def _answer(self) -> None:
        while True:
            connection = self._listener.accept()
            name = connection.recv()
            if name is None:
                connection.close()
                return
            threading.Thread(target=self._tell, args=(connection, name), daemon=True).start()

    def _tell(self, connection: Connection, name: str) -> None:
        with self._lock:
            kept = self._kept.get(name) or self._kept.setdefault(name, _Kept(self._kinds[name]))
        with connection:
            try:
                connection.send((kept.server(), None))
            except UnsupportedError as error:
                connection.send((None, UnsupportedError(str(error))))
            except Exception as error:
                connection.send((None, RuntimeError(f"{name} did not start: {error}")))


def ask(address: str, name: str) -> Any:
    """The server of that name, once it answers. Raises UnsupportedError: it is not installed. RuntimeError."""
    with Client(address) as connection:
        connection.send(name)
        server, error = connection.recv()
    if error is not None:
        raise error
    return server
