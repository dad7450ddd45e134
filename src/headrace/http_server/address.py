"""Where a server listens."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from dataclasses import dataclass

from headrace.base.errors import InputError

_BACKLOG = 1024
"""Connections that the kernel holds until they are taken; it allows no more by itself than `somaxconn`."""


@dataclass(frozen=True)
class Address:
    """A host and a port, 0 for any that is free; or the path of a Unix socket, readable by its owner alone."""

    host: str = "127.0.0.1"
    port: int = 0
    unix: str = ""

    @property
    def url(self) -> str:
        """For clients; of a socket on every interface, this machine's own."""
        if self.unix:
            return f"unix:{self.unix}"
        host = "127.0.0.1" if self.host in ("", "0.0.0.0") else "::1" if self.host == "::" else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return bool(self.unix) or self.host in ("localhost", "::1") or self.host.startswith("127.")


def listen(address: Address, count: int = 1) -> tuple[list[socket.socket], Address]:
    """`count` listening sockets, among which the kernel spreads connections, and their address with the true port.

    A Unix socket is one that all share.

    Raises:
        InputError: it cannot be listened on, or somebody listens there already.
    """
    try:
        if address.unix:
            return [_unix(address.unix)] * count, address
        return _network(address, count)
    except OSError as error:
        where = address.unix or f"{address.host}:{address.port}"
        why = f"cannot be listened on: {error.strerror or error}"
        raise InputError(why, path=where, hint="another port, or 0 for any that is free") from error


def _network(address: Address, count: int) -> tuple[list[socket.socket], Address]:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    first = _bound(family, address.host, address.port)  # alone, so that another server there is noticed
    port = first.getsockname()[1]
    if count == 1:
        first.listen(_BACKLOG)
        return [first], Address(address.host, port)
    first.close()
    made: list[socket.socket] = []
    try:
        for _ in range(count):
            made.append(_bound(family, address.host, port, shared=True))
            made[-1].listen(_BACKLOG)
    except OSError:
        for one in made:
            one.close()
        raise
    return made, Address(address.host, port)


def _bound(family: socket.AddressFamily, host: str, port: int, *, shared: bool = False) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def _unix(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        _take_over(path)
        before = os.umask(0o177)
        try:
            made.bind(path)
        finally:
            os.umask(before)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _take_over(path: str) -> None:
    """Remove a socket that nobody listens on any longer. Raises OSError when somebody does, or it is no socket."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(17, "there is a file of that name", path)
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(path) == 0:
            raise OSError(98, "somebody listens there", path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
