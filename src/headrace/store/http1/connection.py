"""One HTTP/1.1 connection that only GETs, into buffers of the right size; without blocking, or for one thread alone.

Message framing: RFC 9112 §6.3 (Content-Length, and chunked for error documents); ranges: RFC 9110 §14. Why our own:
see design/001-direct-http-reads.md.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
from contextlib import suppress

from headrace.base.errors import HeadraceError, UnreachableError
from headrace.base.memory import take
from headrace.store.http1.endpoint import PROXY_HINT, Endpoint, TunnelError, tunnel_status
from headrace.store.http1.response import MOST_HEAD, PEEK, BrokenResponse, Chunks, Response

_MOST_ERROR_BODY = 64 * 1024
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


# Where a connection is in its life. Plain numbers: these are compared ten times for each object.
CONNECTING, TUNNEL, HANDSHAKE, IDLE, HEAD, BODY, CLOSED = range(7)


class Connection:
    """One keep-alive connection. The reactor calls `advance` when its socket is ready.

    With `patience`, seconds, it blocks, which is for a thread that waits for nothing else: `advance` returns when some
    of the body has come, and raises one of `WOULD_BLOCK`, or TimeoutError, when for so long nothing has.
    """

    __slots__ = (
        "_flags",
        "_into",
        "_loose",
        "_most",
        "_partial",
        "_patience",
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
        self, endpoint: Endpoint, address: tuple[int, tuple[object, ...]], patience: float | None = None
    ) -> None:
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
        self._loose: Chunks | bytearray | None = None
        self._most: int | None = None
        self._patience = patience
        self._flags = 0
        code = sock.connect_ex(target)
        if code and (code != errno.EINPROGRESS or patience is not None):
            sock.close()
            raise OSError(code, f"{endpoint.name}: {os.strerror(code)}")
        if patience is not None and endpoint.tls is None:
            self._block(sock, patience)

    def request(self, head: bytes, into: memoryview | None = None, most: int | None = None) -> None:
        """Send one request; `advance` continues where the socket is not ready yet. A 206 of just the right length
        is received straight into `into`. Of a longer body `advance` receives `most` bytes, no fewer than its scratch
        has; the rest is to be had by `more`.
        """
        self.unsent = self.endpoint.sent(head) if self.endpoint.proxy else head
        self._into, self._most = into, most
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
        response.body, response.got = self._taken(size), 0
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
        if self.state is CONNECTING:
            self._connected()
        if self.state is TUNNEL:
            self._dig()
        if self.state is HANDSHAKE:
            self._shake()
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

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self.state = CLOSED
        self.sock.close()

    def _block(self, sock: socket.socket, patience: float) -> None:
        # Python's own timeouts poll before each call. Left to the kernel, one call fills the buffer while other threads
        # have the interpreter. TLS has a record of 16 KiB at a time in any case.
        sock.setblocking(True)
        limit = struct.pack("@ll", int(patience), int(patience % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._flags = socket.MSG_WAITALL

    def _connected(self) -> None:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, f"{self.endpoint.name}: {os.strerror(code)}")
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
        status = tunnel_status(self._partial)
        if status // 100 != 2:
            raise TunnelError(self.endpoint, status)
        self._partial = b""
        self._begin_tls()

    def _begin_tls(self) -> None:
        assert self.endpoint.tls is not None
        self.sock = self.endpoint.tls.wrap_socket(
            self.sock, server_hostname=self.endpoint.host, do_handshake_on_connect=False
        )
        self.state = HANDSHAKE

    def _shake(self) -> None:
        assert isinstance(self.sock, ssl.SSLSocket)
        self.sock.do_handshake()
        self.state = IDLE

    def _send(self) -> None:
        try:
            while self.unsent:
                self.unsent = self.unsent[self.sock.send(self.unsent) :]
        except WOULD_BLOCK:
            return

    def _read_head(self, scratch: memoryview) -> None:
        received = self.sock.recv_into(scratch)
        if not received:
            raise ConnectionResetError(errno.ECONNRESET, "closed by the server before its answer")
        self._have_head(scratch, received)

    def _have_head(self, scratch: memoryview, received: int) -> None:
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
                return self._read_head(scratch)
        skip = end + 4 - len(self._partial)
        if data[:7] == b"HTTP/1." and data[9:10] == b"1":  # told meanwhile (103 and others): the answer follows
            scratch[: received - skip] = bytes(scratch[skip:received])
            self._partial = b""
            if received == skip:
                return self._read_head(scratch)
            return self._have_head(scratch, received - skip)
        self._begin_body(data[:end], scratch[skip:received])
        return None

    def _begin_body(self, head: bytes, rest: memoryview) -> None:
        response = Response(head)
        if response.whole:
            response.body = body = self._buffer(response)
            response.got = got = min(len(rest), len(body))
            body[:got] = rest if got == len(rest) else rest[:got]
        else:
            response.body = memoryview(bytearray(rest))
            response.got = len(rest)
        self.response = response
        self.state = BODY

    def _buffer(self, response: Response) -> memoryview:
        assert response.length is not None
        if self._into is not None and response.status == 206 and len(self._into) == response.length:
            return self._into
        if self._most is None or self._most >= response.length:
            return self._taken(response.length)
        response.left = response.length - self._most
        return self._taken(self._most)

    def _taken(self, size: int) -> memoryview:
        try:
            return take(size)
        except MemoryError as error:
            raise BrokenResponse(f"a body of {size} bytes does not fit in memory") from error

    def _read_body(self, scratch: memoryview) -> bool:
        response = self.response
        assert response is not None
        if not response.whole:
            if response.status == 200 or response.status == 206:
                return self._read_unmeasured(response, scratch)
            return self._read_loose_body(response, scratch)
        body, got, length = response.body, response.got, len(response.body)
        receive, flags = self.sock.recv_into, self._flags
        try:
            while got < length:
                count = receive(body[got:], 0, flags)
                if not count:
                    raise ConnectionResetError(errno.ECONNRESET, f"body ended after {got} of {length} bytes")
                got += count
                if self._patience is not None:  # whoever waits here looks at the clock in between
                    break
        finally:
            response.got = got
        if got < length or response.left:
            return got == length
        return self._finish()

    def _read_unmeasured(self, response: Response, scratch: memoryview) -> bool:
        # An object whose length nobody has told: in chunks, or until the server closes. Rare, so by simple means.
        if self._loose is None:
            self._loose = Chunks() if response.chunked else bytearray()
            self._take_loose(response.body)
        while not (isinstance(self._loose, Chunks) and self._loose.ended):
            received = self.sock.recv_into(scratch)
            if not received:
                if isinstance(self._loose, Chunks):
                    raise ConnectionResetError(errno.ECONNRESET, "body ended before its last chunk")
                break
            self._take_loose(scratch[:received])
        chunked = isinstance(self._loose, Chunks)
        data = self._loose.data if isinstance(self._loose, Chunks) else self._loose
        self._loose = None
        response.body, response.got, response.length, response.whole = memoryview(data), len(data), len(data), True
        return self._finish(keep=chunked)

    def _take_loose(self, data: memoryview) -> None:
        if isinstance(self._loose, Chunks):
            self._loose.take(data)
        else:
            assert self._loose is not None
            self._loose += data

    def _read_loose_body(self, response: Response, scratch: memoryview) -> bool:
        # Error documents: small; framed by length, by chunks or by the end of the connection.
        while True:
            body = bytes(response.body)
            if response.length is not None and len(body) >= min(response.length, _MOST_ERROR_BODY):
                return self._finish(keep=len(body) == response.length)
            if response.length is None and body.endswith(b"0\r\n\r\n"):
                response.body = memoryview(body)
                return self._finish()
            if len(body) >= _MOST_ERROR_BODY:
                return self._finish(keep=False)
            received = self.sock.recv_into(scratch)
            if not received:
                return self._finish(keep=False)
            response.body = memoryview(body + bytes(scratch[:received]))
            response.got = len(response.body)

    def _finish(self, *, keep: bool = True) -> bool:
        response = self.response
        assert response is not None
        if keep and not response.closing:
            self.state = IDLE
            self.fresh = False
        else:
            self.close()
        return True


def resolve(endpoint: Endpoint) -> list[tuple[int, tuple[object, ...]]]:
    """Addresses of an endpoint, (family, socket address).

    Raises:
        UnreachableError: the name does not resolve.
    """
    try:
        found = socket.getaddrinfo(*endpoint.address, type=socket.SOCK_STREAM)
    except OSError as error:
        hint = PROXY_HINT if endpoint.proxy else "check the endpoint or the URL"
        reason = f"host {endpoint.address[0]!r} does not resolve: {error.strerror}"
        raise UnreachableError(reason, hint=hint) from error
    return [(int(family), tuple(address)) for family, _, _, _, address in found]


def broken(error: Exception, path: str) -> HeadraceError:
    """Translate a broken connection, once."""
    hint = "check the endpoint, and that the server runs"
    if isinstance(error, TunnelError):
        return error.ours(path)
    if isinstance(error, ssl.SSLError):
        return UnreachableError(f"TLS: {error.reason or error}", path=path, hint="check the certificate or ca_file")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return UnreachableError(f"connection failed: {reason}", path=path, hint=hint)
