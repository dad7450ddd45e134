"""A client of HTTP servers that is driven by events: so many connections, each with one request under way."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil


@dataclass(frozen=True)
class Load:
    """What was measured. Seconds; `failed`: answers other than 200, and connections that broke."""

    requests: int
    seconds: float
    cpu_s: float
    failed: int
    waits: list[float] = field(repr=False)
    """Of each request, in order."""
    ends: list[float] = field(repr=False)
    """When each was answered, as `time.perf_counter`."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us(self) -> float:
        """Of the server, a request."""
        return self.cpu_s / max(1, self.requests) * 1e6

    def quantile(self, share: float) -> float:
        return quantile(self.waits, share)


def quantile(values: list[float], share: float) -> float:
    """0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def cpu_of(pid: int) -> float:
    """Seconds of a process and of all below it, those that have ended too."""
    total = 0.0
    try:
        tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0.0
    for one in tree:
        try:
            times = one.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def request(path: str, body: bytes) -> bytes:
    """As it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def ask(
    port: int, message: bytes, *, connections: int, seconds: float, pid: int, warm: float = 1.0,
    over: Callable[[], bool] | None = None,
) -> Load:  # fmt: skip
    """Ask for so long after a warm-up, or until `over` says so; the server is the process `pid` and those below it."""
    chosen = selectors.DefaultSelector()
    for _ in range(connections):
        _open(chosen, port, message)
    waits: list[float] = []
    ends: list[float] = []
    failed = 0
    until, measuring, begun, cpu = time.perf_counter() + warm, False, 0.0, 0.0
    while True:
        now = time.perf_counter()
        if measuring and (now >= until if over is None else over()):
            break
        if not measuring and now >= until:
            measuring, begun, until, cpu = True, now, now + seconds, cpu_of(pid)
            waits, ends, failed = [], [], 0
        for key, _ in chosen.select(0.5):
            state: Any = key.data
            good = _heard(key.fileobj, state)
            if good is None:
                continue
            now = time.perf_counter()
            waits.append(now - state[1])
            ends.append(now)
            failed += not good
            if state[2]:
                chosen.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                _open(chosen, port, message)
            else:
                state[1] = now
                key.fileobj.sendall(message)  # type: ignore[union-attr]
    measured = time.perf_counter() - begun
    spent = cpu_of(pid) - cpu
    for key in list(chosen.get_map().values()):
        key.fileobj.close()  # type: ignore[union-attr]
    chosen.close()
    return Load(len(waits), measured, spent, failed, waits, ends)


def _open(chosen: selectors.BaseSelector, port: int, message: bytes) -> None:
    client = socket.create_connection(("127.0.0.1", port))
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    chosen.register(client, selectors.EVENT_READ, [bytearray(), time.perf_counter(), False])
    client.sendall(message)


def _heard(client: Any, state: Any) -> bool | None:
    """Whether a whole answer has come, and a good one. `state`: bytes so far, when it was sent, if it is closed."""
    try:
        piece = client.recv(1 << 18)
    except OSError:
        piece = b""
    data: bytearray = state[0]
    data += piece
    if not piece:
        state[2] = True
        return False
    at = data.find(b"\r\n\r\n")
    if at < 0:
        return None
    head = bytes(data[:at]).lower()
    _, named, length = head.partition(b"content-length: ")
    whole = len(data) >= at + 4 + int(length.split(b"\r", 1)[0]) if named else data.endswith(b"0\r\n\r\n")
    if not whole:
        return None
    state[2] = b"connection: close" in head
    data.clear()
    return head[9:12] == b"200"
