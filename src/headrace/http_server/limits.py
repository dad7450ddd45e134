"""What one client may take: bytes, time, connections."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.errors import InputError


@dataclass(frozen=True)
class Limits:
    """Bounds of a server. Times in seconds, sizes in bytes.

    Args:
        head: of a request's line and headers together; more is 431, a longer target 414.
        headers: how many headers.
        body: of a body that is gathered whole, where the application names no other limit; more is 413.
        ahead: of a streamed body that its reader has not taken yet, or of a streamed answer that the client has not;
            beyond it the socket, or the iterator, waits.
        head_s: from a head's first byte to its last; longer is 408.
        body_s: a body may take so long, and a second more for each `body_rate` bytes of it; longer is 408.
        body_rate: bytes a second below which a body is too slow.
        idle_s: a connection without a request.
        write_s: an answer of which the client takes no byte.
        linger_s: how long what a refused client still sends is read and thrown away, so that it sees the refusal.
        connections: open at once; when one more comes, the one longest without a request goes, else it waits.
        requests: on one connection; the last is answered with ``Connection: close``.
        depth: requests of one connection that are not answered yet; beyond it nothing more is read.
        threads: that run streamed bodies, and as many again that pull iterators; they start when needed.
    """

    head: int = 32 * 1024
    headers: int = 100
    body: int = 64 * 1024 * 1024
    ahead: int = 1024 * 1024
    head_s: float = 15.0
    body_s: float = 30.0
    body_rate: int = 1024
    idle_s: float = 75.0
    write_s: float = 30.0
    linger_s: float = 2.0
    connections: int = 4096
    requests: int = 1_000_000
    depth: int = 64
    threads: int = 64

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise InputError(f"the server's limit {name!r} must be above zero, not {value}")
