"""One client's connection: requests in, answers out in the order of the requests. All on the loop but `deliver`."""

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from typing import TYPE_CHECKING, cast

from headrace.base.errors import HeadraceError
from headrace.http_server.application import Streamed
from headrace.http_server.exchange import Exchange
from headrace.http_server.heads import CONTINUE, encoded
from headrace.http_server.incoming import BodyReader
from headrace.http_server.messages import Body, BytesLike, FileSlice, Headers, Response, Stream, Whole
from headrace.http_server.outgoing import BrokenAnswer, FromFile, FromStream, Outgoing, Pieces, length
from headrace.http_server.parsing import Ended, Head, Refused, RequestParser

if TYPE_CHECKING:
    from headrace.http_server.loop import Loop

_log = logging.getLogger("headrace.http")
_IN, _OUT, _GONE = select.EPOLLIN, select.EPOLLOUT, select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_SMALL = 16 * 1024
"""Bodies up to this are copied behind their head: cheaper than a second piece for the kernel."""


class Connection:
    """One client's connection. `fd` is its number while it is open.

    A queue holds the exchanges whose answers have not been sent; the first one's answer is `_outgoing`. Of the last one
    the body may still be coming (`_coming`).
    """

    __slots__ = (
        "_coming", "_dirty", "_discarded", "_gathered", "_held_back", "_lingering", "_loop", "_outgoing", "_parser",
        "_peer", "_queue", "_since", "_size", "_sock", "_unread", "_watched", "_whole", "_written", "fd", "open",
        "served",
    )  # fmt: skip

    def __init__(self, loop: Loop, sock: socket.socket, peer: str, now: float) -> None:
        self._loop = loop
        self._sock = sock
        self._peer = peer
        self._parser = RequestParser(self, loop.limits)
        self._queue: deque[Exchange] = deque()
        self._outgoing: Outgoing | None = None
        self._coming: Exchange | None = None
        self._whole: list[bytes] | None = None
        self._gathered = 0
        self._size = 0
        self._since = self._written = now
        self._held_back = False
        self._lingering = self._unread = False
        self._discarded = 0
        self._dirty = False
        self._watched = _IN | select.EPOLLRDHUP
        self.fd = sock.fileno()
        self.open = True
        self.served = 0

    @property
    def watched(self) -> int:
        """What epoll is asked for at first."""
        return self._watched

    # What epoll says

    def ready(self, events: int) -> None:
        """The socket can be read, written, or has ended."""
        if events & _IN:
            self._receive()
        if self.open and events & _OUT:
            self._written = self._loop.now
            self._touch()
        if self.open and events & _GONE and not (events & _IN and self._watched & _IN):
            self.close()  # nothing more is read, so nobody would notice otherwise

    def _receive(self) -> None:
        scratch = self._loop.scratch
        try:
            count = self._sock.recv_into(scratch)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not count:
            self.close()
        elif self._lingering:
            self._discarded += count
            if self._discarded > self._loop.limits.body:
                self.close()
        else:
            self._parse(scratch[:count])

    def _parse(self, data: memoryview) -> None:
        began = self._parser.begun
        try:
            self._parser.feed(data)
        except Refused as refused:
            self.refuse(refused.status, refused.reason)
        except Exception:
            _log.exception("a request could not be taken; this is a defect in headrace, or in the application")
            self.refuse(500, "an error of the server's")
        if self._parser.ended:
            self._held_back = True
        elif self._parser.begun and not began:
            self._since = self._loop.now
        self._touch()

    # What the parser says

    def on_request(self, head: Head) -> None:
        """A head is complete: ask the application what to do with the body."""
        loop = self._loop
        self._since = loop.now
        self.served += 1
        exchange = Exchange(
            self, head.method, head.target, Headers(head.headers.raw), old=head.old,
            close=head.close or self.served >= loop.limits.requests, peer=self._peer, arrived=loop.now,
        )  # fmt: skip
        self._queue.append(exchange)
        self._coming = exchange
        self._whole = None
        self._gathered = 0
        plan = loop.application.head(exchange)
        if isinstance(plan, Whole):
            self._size = plan.limit if plan.limit is not None else loop.limits.body
            if head.length is not None and head.length > self._size:
                raise Refused(413, "the body is too long")
            self._whole = []
        elif isinstance(plan, Streamed):
            self._stream(exchange, plan, head)
            return
        else:
            exchange.close = exchange.close or head.length != 0
            exchange.answer(plan)
            if head.length != 0:
                self._coming = None
                self._unread = True
                raise Ended
        if head.expects and head.length != 0:
            self._continue(exchange)

    def _stream(self, exchange: Exchange, plan: Streamed, head: Head) -> None:
        loop, expects = self._loop, head.expects and head.length != 0

        def wanted() -> None:
            nonlocal expects
            if expects and self.open:
                expects = False
                self._continue(exchange)
            self._touch()

        exchange.stream = BodyReader(head.length, loop.limits.ahead, lambda: loop.call(wanted))
        loop.work(lambda: self._run(exchange, plan))

    def _run(self, exchange: Exchange, plan: Streamed) -> None:
        """On a worker thread."""
        try:
            plan.start(exchange)
        except Exception:
            if not exchange.gone:
                _log.exception("a streamed request failed; this is a defect in the application")
            if not exchange.taken:
                exchange.answer(Response(500, close=True))

    def _continue(self, exchange: Exchange) -> None:
        """Asked for before any byte of the body; nothing to say once some has come, or while others wait to be sent."""
        if self._queue and self._queue[0] is exchange and self._outgoing is None and not exchange.taken:
            try:
                self._sock.send(CONTINUE)
            except OSError:
                return

    def on_piece(self, data: bytes) -> None:
        """Bytes of a body."""
        if self._whole is not None:
            self._gathered += len(data)
            if self._gathered > self._size:
                raise Refused(413, "the body is too long")
            self._whole.append(data)
        elif self._coming is not None and self._coming.stream is not None:
            self._gathered += len(data)
            self._coming.stream.feed(data)

    def on_end(self) -> None:
        """A request is whole."""
        exchange, self._coming = self._coming, None
        self._since = self._loop.now
        if exchange is None:
            return
        if exchange.stream is not None:
            exchange.stream.end()
        elif self._whole is not None:
            whole, self._whole = self._whole, None
            if whole:
                exchange.body = whole[0] if len(whole) == 1 else b"".join(whole)
            self._loop.arrived(exchange)

    # Answers

    def deliver(self, exchange: Exchange, response: Response) -> None:
        """See `exchange.Channel`. Any thread."""
        if self._loop.here:
            self._accept(exchange, response)
        else:
            self._loop.call(lambda: self._accept(exchange, response))

    def _accept(self, exchange: Exchange, response: Response) -> None:
        if exchange.gone or exchange.response is not None:
            self._drop(response)
        else:
            exchange.response = response
            self._touch()

    def _drop(self, response: Response) -> None:
        response.release()
        if isinstance(response.body, Stream):
            close = getattr(response.body.pieces, "close", None)
            if close is not None:
                self._loop.pull(close)

    def refuse(self, status: int, reason: str) -> None:
        """Answer what is coming, or what came and is no request, with this, after all before it; then end."""
        exchange, self._coming = self._coming, None
        self._whole = None
        if exchange is None:
            exchange = Exchange(
                self, "GET", b"", Headers([]), old=False, close=True, peer=self._peer, arrived=self._loop.now
            )
            self._queue.append(exchange)
        elif exchange.stream is not None:
            exchange.stream.fail(reason)
        exchange.close = True
        if exchange.response is None:
            exchange.leave()
            text = f"{reason}\n".encode()
            exchange.response = Response(status, [("Content-Type", "text/plain; charset=utf-8")], text, close=True)
        self._held_back = self._unread = True
        self._touch()

    def _touch(self) -> None:
        if not self._dirty and self.open:
            self._dirty = True
            self._loop.dirty.append(self)

    def flush(self) -> None:
        """Send what can be sent, and watch for what is waited for. Once at the end of a turn that touched it."""
        self._dirty = False
        if not self.open:
            return
        try:
            while not self._lingering and self._send():
                pass
        except (OSError, BrokenAnswer) as error:
            if isinstance(error, BrokenAnswer):
                _log.warning("an answer was cut: %s", error)
            self.close()
            return
        if self.open:
            self._watch()

    def _send(self) -> bool:
        """The first answer; True when it has gone, and the next may follow."""
        if self._outgoing is None:
            exchange = self._queue[0] if self._queue else None
            if exchange is None or exchange.response is None:
                return False
            exchange.close = exchange.close or exchange.response.close or self._loop.draining
            if exchange is self._coming:  # answered before its body has come: what is left of that is nobody's
                exchange.close = True
            if self._at_once(exchange, exchange.response):
                return self._sent(exchange)
        outgoing = self._outgoing
        if outgoing is None or not outgoing.send(self._sock):
            return False
        self._outgoing = None
        outgoing.close()
        return self._sent(self._queue[0])

    def _at_once(self, exchange: Exchange, response: Response) -> bool:
        """Short answers in one system call; True when that did it. Else `_outgoing` is what is left to send."""
        exchange.response = _SENDING
        head, body = self._encoded(exchange, response)
        self._written = self._loop.now
        if isinstance(body, FileSlice):
            self._outgoing = FromFile(head, body)
        elif isinstance(body, Stream):
            loop = self._loop
            self._outgoing = FromStream(
                head, body, chunked=body.length is None and not exchange.old, ahead=loop.limits.ahead,
                work=loop.pull, wake=lambda: loop.call(self._touch),
            )  # fmt: skip
        elif isinstance(body, (bytes, bytearray)) and len(body) <= _SMALL:
            whole = head + body
            try:
                sent = self._sock.send(whole)
            except BlockingIOError:
                sent = 0
            if sent == len(whole):
                return True
            self._outgoing = Pieces([memoryview(whole)[sent:]])
        elif isinstance(body, (bytes, bytearray, memoryview)):
            self._outgoing = Pieces([head, cast("BytesLike", body)])
        else:
            self._outgoing = Pieces([head, *body])
        return False

    def _encoded(self, exchange: Exchange, response: Response) -> tuple[bytes, Body]:
        """The head, and the body that follows it. An answer that cannot be sent becomes a 500."""
        size = length(response.body)
        if size is None and exchange.old:
            exchange.close = True
        try:
            head = encoded(response, size, method=exchange.method, old=exchange.old, close=exchange.close)
        except (HeadraceError, UnicodeEncodeError):
            _log.exception("an answer's headers cannot be sent; this is a defect in the application")
            self._drop(response)
            exchange.close = True
            return encoded(Response(500), 0, method=exchange.method, old=exchange.old, close=True), b""
        if exchange.method == "HEAD" or response.status in (204, 304):
            self._drop(response)
            return head, b""
        return head, response.body

    def _sent(self, exchange: Exchange) -> bool:
        self._queue.popleft()
        if not self._queue:
            self._since = self._loop.now
        if not exchange.close:
            return True
        if exchange is self._coming and exchange.stream is not None:
            exchange.stream.fail("the request has been answered")
            self._unread = True
        self._end()
        return False

    def _end(self) -> None:
        """All that will be answered has been. What still comes is read for a moment: closing at once could make the
        client's kernel throw away the answer.
        """
        self._leave()
        try:
            unread = self._unread or bool(self._sock.recv(1, socket.MSG_PEEK))
        except OSError:
            unread = False
        if not unread:
            self.close()
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._lingering = True
        self._since = self._loop.now

    # What is waited for

    def _watch(self) -> None:
        reading = self._lingering or not (
            self._held_back
            or len(self._queue) >= self._loop.limits.depth
            or (self._coming is not None and self._coming.stream is not None and self._coming.stream.stalled)
        )
        outgoing = self._outgoing
        wanted = select.EPOLLRDHUP if not self._lingering else 0
        if reading:
            wanted |= _IN
        if outgoing is not None and outgoing.blocked:
            wanted |= _OUT
        if wanted != self._watched:
            if wanted & _IN and not self._watched & _IN:
                self._since = self._loop.now
            if wanted & _OUT and not self._watched & _OUT:
                self._written = self._loop.now  # until now it was not the client that was waited for
            self._watched = wanted
            self._loop.watch(self, wanted)

    @property
    def idle(self) -> bool:
        """No request is under way."""
        return not self._queue and not self._parser.begun and not self._lingering

    @property
    def since(self) -> float:
        """When the present wait began, monotonic seconds."""
        return self._since

    def check(self, now: float) -> None:
        """Cut, or refuse, what takes too long."""
        limits, waited = self._loop.limits, now - self._since
        outgoing = self._outgoing
        if self._lingering:
            late = waited > limits.linger_s
        elif outgoing is not None and outgoing.blocked:
            late = now - self._written > limits.write_s
        elif self._coming is not None and self._watched & _IN:
            if waited > limits.body_s + self._gathered / limits.body_rate:
                self.refuse(408, "the body comes too slowly")
            return
        elif self._parser.begun and self._coming is None and self._watched & _IN:
            if waited > limits.head_s:
                self.refuse(408, "the head comes too slowly")
            return
        else:
            late = not self._queue and waited > limits.idle_s
        if late:
            self.close()

    def close(self) -> None:
        """End it now. Whatever was under way is told."""
        if not self.open:
            return
        self.open = False
        self._loop.forget(self)
        self._sock.close()
        self._parser.close()
        outgoing, self._outgoing = self._outgoing, None
        if outgoing is not None:
            outgoing.close()
        self._leave()

    def _leave(self) -> None:
        for exchange in self._queue:
            if exchange.stream is not None:
                exchange.stream.fail()
            if exchange.response is not None:
                self._drop(exchange.response)
            exchange.leave()
        self._queue.clear()


_SENDING = Response(200)
"""In the place of an answer whose body has been taken over."""
