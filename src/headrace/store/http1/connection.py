"""One HTTP/1.1 connection, its answers received into buffers of the right size; without blocking, or for one thread.

Message framing: RFC 9112 §6.3; ranges: RFC 9110 §14. Why our own: see design/001-direct-http-reads.md.
"""

from __future__ import annotations

import errno
import os
import random
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from headrace.store.http1.endpoint import Endpoint
from headrace.store.http1.failures import BrokenResponse, TunnelError
from headrace.store.http1.response import MOST_HEAD, PEEK, Chunks, Response, UntilClosed

Address: TypeAlias = tuple[int, tuple[object, ...]]
"""Family and socket address."""
_MOST_ERROR_BODY = 64 * 1024  # bytes of an error's text that are read; the connection is closed on more
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


# Where a connection is in its life. Plain numbers: these are compared ten times for each object.
CONNECTING, TUNNEL, HANDSHAKE, IDLE, HEAD, BODY, CLOSED = range(7)


class Connection:
    """One keep-alive connection. The reactor calls `advance` when its socket is ready.

    With `patience`, seconds, it blocks, which is for one thread at a time (`dial`): `advance` returns when some of the
    body has come, and raises one of `WOULD_BLOCK`, or TimeoutError, when for so long nothing has.
    """

    __slots__ = (
        "_bodiless",
        "_flags",
        "_into",
        "_loose",
        "_most",
        "_partial",
        "_patience",
        "_take",
        "began",
        "endpoint",
        "fd",
        "fresh",
        "last",
        "response",
        "sent",
        "sock",
        "state",
        "unsent",
        "watched",
    )

    def __init__(
        self, endpoint: Endpoint, address: Address, take: Callable[[int], memoryview], patience: float | None = None
    ) -> None:
        """`take`: makes room for a body of so many bytes."""
        family, target = address
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(patience or 0.0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.endpoint = endpoint
        self.sock: socket.socket | ssl.SSLSocket = sock
        self.fd = sock.fileno()
        self.state = CONNECTING
        self.fresh = True
        self.sent = self.last = self.began = 0.0
        self.watched = 0
        self.response: Response | None = None
        self.unsent = b""
        self._partial = b""
        self._into: memoryview | None = None
        self._loose: Chunks | UntilClosed | None = None
        self._most: int | None = None
        self._bodiless = False
        self._take = take
        self._patience = patience
        self._flags = 0
        code = sock.connect_ex(target)
        if code and (code != errno.EINPROGRESS or patience is not None):
            sock.close()
            if code == errno.EAGAIN:
                raise TimeoutError
            raise OSError(code, os.strerror(code))

    @property
    def stale(self) -> bool:
        """It was kept from before, and has not begun to answer: the server closed it before it saw the request."""
        return not self.fresh and self.response is None

    def request(
        self, head: bytes, into: memoryview | None = None, most: int | None = None, *, bodiless: bool = False
    ) -> None:
        """Send one request; `advance` continues where the socket is not ready yet. A 206 of just the right length
        is received straight into `into`. Of a longer body `advance` receives `most` bytes, no fewer than its scratch
        has; the rest is to be had by `more`. `bodiless`: it is a HEAD.
        """
        self.unsent = self.endpoint.sent(head) if self.endpoint.proxy else head
        self._into, self._most, self._bodiless = into, most, bodiless
        self.response = self._loose = None
        self._partial = b""
        if self.state is IDLE:
            self.state = HEAD
            self._send()

    def more(self, most: int) -> None:
        """Go on with a body of which something is `left`: so many bytes next, into a new buffer."""
        response = self.response
        assert response is not None
        size = min(most, response.left)
        response.body, response.got = self._room(size), 0
        response.left -= size

    def make_room(self, size: int) -> None:
        """Have the kernel keep up to so many bytes before anybody receives them, if it will.

        Linux makes that room when a reader wants to sleep until so many are there, and goes on adapting it afterwards;
        `SO_RCVBUF` would fix it, at what the administrator allows.
        """
        with suppress(OSError):
            for wanted in (size, 1):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

    @property
    def wants_write(self) -> bool:
        """Whether the reactor should wait for the socket to be writable."""
        return self.state is CONNECTING or (self.state is HEAD and bool(self.unsent))

    def advance(self, scratch: memoryview) -> bool:
        """Do what can be done without blocking. True: `response` is complete and the connection is free again.

        Raises OSError (with ssl.SSLError) when the connection broke, `BrokenResponse` when the answer is no HTTP.
        """
        if self.state is HEAD and not self.unsent:
            self._read_head(scratch)
            return self._read_body(scratch)
        if self.state < IDLE:
            self.establish()
        if self.state is IDLE and self.unsent:
            self.state = HEAD
        if self.unsent and self.state is HEAD:
            self._send()
        if self.state is IDLE:
            self.sock.recv_into(scratch[:1])
            raise ConnectionResetError(errno.ECONNRESET, "closed by the server while idle")
        if self.state is HEAD:
            self._read_head(scratch)
        return self.state is BODY and self._read_body(scratch)

    def establish(self) -> None:
        """Go on until requests can be sent: connected, through the tunnel, inside TLS. Raises as `advance`."""
        if self.state is CONNECTING:
            self._connected()
        if self.state is TUNNEL:
            self._dig()
        if self.state is HANDSHAKE:
            assert isinstance(self.sock, ssl.SSLSocket)
            self.sock.do_handshake()
            self.state = IDLE

    def allow(self, patience: float) -> None:
        """Longest silence from now on, seconds; of a connection that blocks."""
        if self._patience != patience:  # a system call only where it changes: each costs a turn of the interpreter
            self._patience = patience
            self.sock.settimeout(patience)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self.state = CLOSED
        self.sock.close()

    def fill(self) -> None:
        """Have the kernel wait, from now on, for all of a body. Nothing to do inside TLS, of which a record of 16 KiB
        comes at a time in any case.
        """
        # Python's own timeouts poll before each call. Left to the kernel, one call fills the buffer while other threads
        # have the interpreter.
        sock, patience = self.sock, self._patience
        if self.endpoint.tls is not None or patience is None:
            return
        sock.setblocking(True)
        limit = struct.pack("@ll", int(patience), int(patience % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._flags = socket.MSG_WAITALL

    def _connected(self) -> None:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            self.sock.getpeername()
        except OSError as error:
            raise BlockingIOError from error
        if self.endpoint.tls is None:
            self.state = IDLE
        elif tunnel := self.endpoint.tunnel:
            self.sock.sendall(tunnel)  # a few hundred bytes, the first on this socket: they fit
            self.state = TUNNEL
        else:
            self._begin_tls()

    def _dig(self) -> None:
        # No further than the proxy's answer: TLS's server says nothing before we do.
        while b"\r\n\r\n" not in self._partial and len(self._partial) < MOST_HEAD:
            received = self.sock.recv(PEEK)
            if not received:
                raise ConnectionResetError(errno.ECONNRESET, f"closed by {self.endpoint.name}")
            self._partial += received
        head, self._partial = self._partial, b""
        status = int(head[9:12]) if head[:7] == b"HTTP/1." and head[9:12].isdigit() else 0
        if status // 100 != 2:
            raise TunnelError(self.endpoint, status)
        self._begin_tls()

    def _begin_tls(self) -> None:
        endpoint = self.endpoint
        assert endpoint.tls is not None
        self.sock = endpoint.tls.wrap(self.sock, endpoint.host, endpoint.port)
        self.state = HANDSHAKE

    def _send(self) -> None:
        try:
            while self.unsent:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
        except WOULD_BLOCK:
            return

    def _read_head(self, scratch: memoryview) -> None:
        while True:
            received = self.sock.recv_into(scratch)
            if not received:
                raise ConnectionResetError(errno.ECONNRESET, "closed by the server before its answer")
            if self._have_head(scratch, received):
                return

    def _have_head(self, scratch: memoryview, received: int) -> bool:
        """Whether the answer's head is complete."""
        while True:
            data = bytes(scratch[: min(PEEK, received)])
            if self._partial:
                data = self._partial + data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                data = self._partial + bytes(scratch[:received])
                end = data.find(b"\r\n\r\n")
                if end < 0:
                    if len(data) > MOST_HEAD:
                        raise BrokenResponse("endless response head")
                    self._partial = data
                    return False
            skip = end + 4 - len(self._partial)
            if data[9:10] != b"1" or data[:7] != b"HTTP/1.":
                self._begin_body(data[:end], scratch[skip:received])
                return True
            # Said meanwhile (103 and others): the answer follows.
            scratch[: received - skip] = bytes(scratch[skip:received])
            received -= skip
            self._partial = b""

    def _begin_body(self, head: bytes, rest: memoryview) -> None:
        self.response = response = Response(head, bodiless=self._bodiless)
        if response.length is None:
            self._loose = Chunks() if response.chunked else UntilClosed()
            self._loose.take(rest)
        else:
            response.body = body = self._buffer(response)
            response.got = got = min(len(rest), len(body))
            body[:got] = rest if got == len(rest) else rest[:got]
        self.state = BODY

    def _buffer(self, response: Response) -> memoryview:
        length = response.length
        assert length is not None
        if self._into is not None and response.status == 206 and len(self._into) == length:
            return self._into
        if response.status >= 300 and length > _MOST_ERROR_BODY:
            response.closing = True
            return self._room(_MOST_ERROR_BODY)
        if self._most is None or self._most >= length:
            return self._room(length)
        response.left = length - self._most
        return self._room(self._most)

    def _room(self, size: int) -> memoryview:
        try:
            return self._take(size)
        except MemoryError as error:
            raise BrokenResponse(f"a body of {size} bytes does not fit in memory") from error

    def _read_body(self, scratch: memoryview) -> bool:
        response = self.response
        assert response is not None
        if self._loose is not None:
            return self._read_loose(response, self._loose, scratch)
        body, got, length = response.body, response.got, len(response.body)
        receive, flags = self.sock.recv_into, self._flags
        try:
            while got < length:
                count = receive(body[got:], 0, flags)
                if not count:
                    if response.status < 300:
                        raise ConnectionResetError(errno.ECONNRESET, f"body ended after {got} of {length} bytes")
                    response.body, response.closing, length = body[:got], True, got  # enough to say what is wrong
                    break
                got += count
                if self._patience is not None:  # whoever waits here looks at the clock in between
                    break
        finally:
            response.got = got
        if got < length or response.left:
            return got == length
        return self._finish(response)

    def _read_loose(self, response: Response, loose: Chunks | UntilClosed, scratch: memoryview) -> bool:
        # Of a length that no header names: in chunks, or until the server closes. Rare, so by simple means.
        while not loose.ended:
            if response.status >= 300 and len(loose.data) >= _MOST_ERROR_BODY:
                response.closing = True
                break
            received = self.sock.recv_into(scratch)
            if not received:
                if response.chunked and response.status < 300:
                    raise ConnectionResetError(errno.ECONNRESET, "body ended before its last chunk")
                break
            loose.take(scratch[:received])
            if self._patience is not None:
                return loose.ended and self._end_loose(response, loose)
        return self._end_loose(response, loose)

    def _end_loose(self, response: Response, loose: Chunks | UntilClosed) -> bool:
        self._loose = None
        response.body, response.got = memoryview(loose.data), len(loose.data)
        response.length = response.got
        response.whole = response.status in (200, 206)
        response.closing = response.closing or not loose.ended
        return self._finish(response)

    def _finish(self, response: Response) -> bool:
        if self.fresh:
            self.fresh = False
            if isinstance(self.sock, ssl.SSLSocket) and self.endpoint.tls is not None:
                self.endpoint.tls.learn(self.sock, self.endpoint.host, self.endpoint.port)
        if response.closing:
            self.close()
        else:
            self.state = IDLE
        return True


def resolve(endpoint: Endpoint) -> list[Address]:
    """Addresses of an endpoint, or of its proxy. Raises socket.gaierror."""
    found = socket.getaddrinfo(*endpoint.address, type=socket.SOCK_STREAM)
    return [(int(family), tuple(address)) for family, _, _, _, address in found]


def dial(endpoint: Endpoint, take: Callable[[int], memoryview], connect_s: float, patience: float) -> Connection:
    """A connection that blocks, ready for requests: to the first of the endpoint's addresses that answers.

    `connect_s`: longest that each address, the proxy and TLS may be silent. `patience`: see `Connection`.

    Raises:
        OSError: none answered, or the proxy or TLS failed; TimeoutError.
    """
    connection = _first(endpoint, take, connect_s)
    try:
        connection.establish()
        connection.allow(patience)
    except BaseException:
        connection.close()
        raise
    return connection


def _first(endpoint: Endpoint, take: Callable[[int], memoryview], connect_s: float) -> Connection:
    addresses = resolve(endpoint)
    families = [family for family, _ in addresses]
    random.shuffle(addresses)  # a store's servers have work alike
    addresses.sort(key=lambda address: families.index(address[0]))  # IPv4 or IPv6 first, as the system prefers
    for address in addresses[:-1]:
        with suppress(OSError):
            return Connection(endpoint, address, take, connect_s)
    return Connection(endpoint, addresses[-1], take, connect_s)
