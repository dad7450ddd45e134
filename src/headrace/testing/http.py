"""A real HTTP/1.1 server on loopback that fails on purpose: between a client and an S3 server, or serving itself.

The multiplexing reader speaks sockets, so its faults must happen on the wire: a reset is an RST, a stall is silence.
Requests pass on unchanged (host header, signature), answers are held whole before they go out, so this is no tool to
measure throughput with.

    with FaultServer(Upstream("127.0.0.1", 8333), Plan([Fault(Kind.RESET, rate=0.1, per_key=1)], seed=7)) as server:
        open_store("s3://bucket", StoreOptions(endpoint=server.endpoint, ...))
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import TracebackType

from headrace.testing.messages import Incoming, Message, s3_error
from headrace.testing.origins import Origin, Session
from headrace.testing.plan import Fault, Kind, Plan

HOST = "127.0.0.1"
_RST = struct.pack("ii", 1, 0)
_REFUSALS = {
    Kind.SLOW_DOWN: s3_error(503, "Slow Down", "SlowDown"),
    Kind.INTERNAL: s3_error(500, "Internal Server Error", "InternalError"),
    Kind.EXPIRED: s3_error(403, "Forbidden", "ExpiredToken"),
    Kind.ARCHIVED: s3_error(403, "Forbidden", "InvalidObjectState"),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came."""

    operation: str
    path: str
    range: str | None
    if_match: str | None
    if_none_match: str | None = None


class Held:
    """Answers kept back by `FaultServer.holding`. `count`: how many, any thread may read it. `instead`: what is sent in
    place of the first, if it is set by the end.
    """

    def __init__(self, operation: str, key: str) -> None:
        self.operation = operation
        self.key = key
        self.over = threading.Event()
        self.count = 0
        self.instead: Message | None = None
        self._lock = threading.Lock()

    def add(self) -> int:
        """One more: which one it is, from 1."""
        with self._lock:
            self.count += 1
            return self.count


def operation_of(request: Message) -> str:
    """The store operation behind an S3 or plain HTTP request: the words of `Fault.operations`."""
    method, query = request.method, request.query
    if method == "GET":
        return "list" if "list-type" in query or "prefix" in query else "get"
    if method == "PUT":
        return "copy" if request.get("x-amz-copy-source") else "put"
    if method == "POST":
        return "delete" if "delete" in query else "put"
    return {"HEAD": "head", "DELETE": "delete"}.get(method, method.lower())


class FaultServer:
    """Threads, one for each connection; nothing of it is left after ``with``.

    Faults match on `operation_of` the request and on its decoded path without the leading slash (``bucket/key`` for
    path-style S3), or the ``prefix`` parameter of a listing.

    Args:
        origin: where good answers come from (see `headrace.testing.origins`).
        plan: what goes wrong; may be replaced while running.
        tls: serve HTTPS with this context.
    """

    def __init__(self, origin: Origin, plan: Plan | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.origin = origin
        self.plan = plan or Plan()
        self.tls = tls
        self.port = 0
        self.seen: list[Seen] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._closed = threading.Event()
        self._listener: socket.socket | None = None
        self._sockets: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"{'https' if self.tls else 'http'}://{HOST}:{self.port}"

    def __enter__(self) -> FaultServer:
        self._listener = socket.create_server((HOST, 0), backlog=512)
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept, self._listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cut every connection and join every thread. Safe to call twice."""
        self._closed.set()
        with self._lock:
            sockets, threads = [*self._sockets], [*self._threads]
            sockets += [self._listener] if self._listener is not None else []
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
        if self._listener is not None:
            self._listener.close()

    @contextlib.contextmanager
    def holding(self, operation: str, key: str) -> Generator[Held]:
        """Have answers to one operation on one key made, and kept back until the end: what they tell is old by then."""
        held = self._held = Held(operation, key)
        try:
            yield held
        finally:
            self._held = None
            held.over.set()

    def _start(self, target: Callable[[socket.socket], None], sock: socket.socket) -> None:
        def run() -> None:
            try:
                target(sock)
            finally:
                with self._lock:
                    self._threads.discard(threading.current_thread())

        thread = threading.Thread(target=run, name="headrace-fault-server", daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                return  # closed
            with self._lock:
                self._sockets.add(sock)
                self.connections += 1
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        """One connection: request by request until either side has enough."""
        try:
            if self.tls is not None:
                with self._lock:  # the plain one is nobody's from now on
                    self._sockets.discard(sock)
                    sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
                    self._sockets.add(sock)
                sock.do_handshake()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.closing(self.origin.session()) as session, sock.makefile("rb") as stream:
                while not self._closed.is_set() and self._exchange(sock, Incoming(stream), session):
                    pass
        except (OSError, ValueError):
            pass  # the client went away, or does not speak HTTP: its own concern
        finally:
            with self._lock:
                self._sockets.discard(sock)
            sock.close()

    def _exchange(self, sock: socket.socket, incoming: Incoming, session: Session) -> bool:
        """One request and its answer; False when the connection must end."""
        head = incoming.head()
        if head is None:
            return False
        if (head.get("expect") or "").lower() == "100-continue":
            sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = incoming.body(head).without("expect")
        operation = operation_of(request)
        name = request.query.get("prefix", "") if operation == "list" else request.path
        with self._lock:
            told = (request.get(name) for name in ("range", "if-match", "if-none-match"))
            self.seen.append(Seen(operation, request.path, *told))
        fate = self.plan.decide(operation, name)
        if fate.delay_s and self._closed.wait(fate.delay_s):
            return False
        kept = self._answer(sock, request, (operation, name), fate.fault, session)
        return kept and (request.get("connection") or "").lower() != "close"

    def _answer(
        self, sock: socket.socket, request: Message, asked: tuple[str, str], fault: Fault | None, session: Session
    ) -> bool:
        if fault is not None and fault.kind is Kind.REFUSE:
            return False
        if fault is not None and fault.kind in _REFUSALS:
            return _send(sock, request, _REFUSALS[fault.kind])
        answer = session.answer(request)
        held = self._held
        if held is not None and asked == (held.operation, held.key):
            number = held.add()
            while not held.over.wait(0.05) and not self._closed.is_set():
                pass
            answer = held.instead if held.instead is not None and number == 1 else answer
        return _send(sock, request, answer) if fault is None else self._spoil(sock, request, answer, fault)

    def _spoil(self, sock: socket.socket, request: Message, answer: Message, fault: Fault) -> bool:
        body, middle = answer.body, len(answer.body) // 2
        if fault.kind is Kind.CHANGED:
            return _send(sock, request, answer.having("ETag", '"0123456789abcdef0123456789abcdef"'))
        if fault.kind is Kind.CORRUPT:
            flipped = bytes([body[middle] ^ 0xFF]) if body else b""
            return _send(sock, request, answer.holding(body[:middle] + flipped + body[middle + 1 :]))
        if fault.kind is Kind.SHORT:
            return _send(sock, request, answer.holding(body[:middle]))
        sock.sendall(answer.head() + (b"" if request.method == "HEAD" else body[:middle]))
        if fault.kind is Kind.STALL:
            self._closed.wait(fault.delay_s)
        elif fault.kind is Kind.RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        return False


def _send(sock: socket.socket, request: Message, answer: Message) -> bool:
    """Send a whole answer; True when the connection stays."""
    sock.sendall(answer.head())
    if request.method != "HEAD" and answer.body:
        sock.sendall(answer.body)
    return (answer.get("connection") or "").lower() != "close"
