"""TCP ports for servers that have to be told theirs before they start."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

from headrace.base.errors import TryAgainError

_GIVEN: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The ports that the kernel gives to whoever asks for any."""
_ENOUGH: Final = 1000
"""Ports outside the kernel's own range from which on a random one is rarely taken."""
_TRIES: Final = 100
"""More mean that a machine has no port left."""


def reserve_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on, and that nobody but a server told of it gets in the next minute. Any thread.

    A connection of its own has just ended there, so the port is in TIME_WAIT: a server may bind it, since servers set
    ``SO_REUSEADDR``, but neither the kernel, for who asks for any port, nor another call of this gives it away. It also
    lies outside the range that the kernel chooses from, where there is room: a server that comes back after more than
    a minute finds it free, unless it was told to somebody else.

    `host`: the address that it listens on; ``0.0.0.0`` or ``::`` for one that listens on all of them.

    Raises:
        TryAgainError: no port is free.
    """
    places = _outside()
    for _ in range(_TRIES):
        port = random.choice(places) if len(places) >= _ENOUGH else 0
        try:
            return _reserve(host, port)
        except OSError:
            continue
    raise TryAgainError("no port is free", path=host)


def _outside() -> range:
    try:
        _, last = map(int, _GIVEN.read_text().split())
    except (OSError, ValueError):
        return range(0)
    return range(last + 1, 1 << 16)


def _reserve(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener, socket.socket(family) as client:
        listener.bind((host, port))  # without SO_REUSEADDR: another's reservation is respected
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # this one gives way to its server
        listener.listen(1)
        place = listener.getsockname()
        client.settimeout(1)
        client.connect(place)
        accepted, _ = listener.accept()
        accepted.close()  # who closes first is left in TIME_WAIT
        client.recv(1)
        return int(place[1])
