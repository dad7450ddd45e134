"""A server: one loop on one thread."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from types import TracebackType
from typing import Self

from headrace.http_server.address import Address, listen
from headrace.http_server.application import Application
from headrace.http_server.limits import Limits
from headrace.http_server.loop import Loop


class Server:
    """Answers HTTP/1.1 on one address from `start` until `drain` or `close`; listens from the moment it is made.

    Any thread but the loop's own may call.

    Args:
        application: see `Application`. address: loopback and any free port by default.
        listener: a listening socket that is used instead; the server closes it.

    Attributes:
        failed: it ended by an error of its own, which the log tells.

    Raises:
        InputError: the address cannot be listened on.
    """

    def __init__(
        self, application: Application, address: Address | None = None, *, limits: Limits | None = None,
        listener: socket.socket | None = None,
    ) -> None:  # fmt: skip
        address = address or Address()
        if listener is None:
            (listener,), address = listen(address)
            self._made = address.unix
        else:
            self._made = ""
        self.address = address
        self.application = application
        self._loop = Loop(application, limits or Limits(), listener)
        self._thread = threading.Thread(target=self._run, name="headrace-http", daemon=True)
        self._over = threading.Event()
        self.failed = False

    @property
    def connections(self) -> int:
        """Open now."""
        return self._loop.connections

    def start(self) -> Self:
        """Begin to answer, on a thread of its own."""
        self._thread.start()
        return self

    def serve(self) -> None:
        """Answer until `drain` or `close` is called elsewhere, or an exception, such as Ctrl-C's, comes here."""
        self.start()
        try:
            self.wait()
        finally:
            self.close()

    def wait(self, seconds: float | None = None) -> bool:
        """Until it has ended, at most so long; whether it has."""
        return self._over.wait(seconds)

    def drain(self, seconds: float = 10.0) -> bool:
        """Take no more connections, answer what is under way, each with ``Connection: close``, and end; whether all
        had been answered after that time. What had not is cut.
        """
        if not self._thread.is_alive():
            self.close()
            return True
        self._loop.drain(seconds)
        return self.wait(seconds + 1.0) and not self._loop.cut

    def close(self) -> None:
        """End now; what is under way is cut. Idempotent."""
        if self._thread.ident is None:
            self._loop.abandon()
            self._remove()
            return
        self._loop.stop()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException:
            self.failed = True
            raise
        finally:
            self._remove()
            self._over.set()

    def _remove(self) -> None:
        if self._made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._made)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
