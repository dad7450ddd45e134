"""The heads of answers, as bytes."""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from headrace.base.errors import InternalError
from headrace.http_server.messages import Pairs, Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_OURS = frozenset(("connection", "content-length", "date", "transfer-encoding"))


class _Clock:
    second = 0
    line = ""


def encoded(response: Response, length: int | None, *, method: str, old: bool, close: bool) -> bytes:
    """A head. `length` is the body's, None when it is not known; `old`: the client speaks HTTP/1.0.

    Raises:
        InternalError: the application's headers are none.
    """
    status = response.status
    head = [_status_line(status), _date(), _block(response.headers, method == "HEAD")]
    if status != HTTPStatus.NO_CONTENT and status != HTTPStatus.NOT_MODIFIED:
        if length is None:
            head.append("" if old else "Transfer-Encoding: chunked\r\n")
        elif method != "HEAD" or length or not _names_length(response.headers):
            head.append(f"Content-Length: {length}\r\n")
    if close:
        head.append("Connection: close\r\n\r\n")
    else:
        head.append("Connection: keep-alive\r\n\r\n" if old else "\r\n")
    return "".join(head).encode("latin-1")


def _names_length(headers: Pairs) -> bool:
    return any(name.lower() == "content-length" for name, _ in headers)


def _date() -> str:
    second = int(time.time())
    if second != _Clock.second:
        _Clock.line = f"Date: {formatdate(second, usegmt=True)}\r\n"
        _Clock.second = second
    return _Clock.line


@lru_cache(1024)
def _status_line(status: int) -> str:
    if not 200 <= status <= 599:
        raise InternalError(f"{status} is no status to answer with")
    try:
        return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
    except ValueError:
        return f"HTTP/1.1 {status} \r\n"


def _block(headers: Pairs, bodiless: bool) -> str:
    block = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if block.count("\n") != len(headers) or block.count("\r") != len(headers) or "\0" in block:
        raise InternalError("a header holds a line's end")
    for name, _ in headers:
        if name.lower() in _OURS and not (bodiless and name.lower() == "content-length"):
            raise InternalError(f"the header {name} is the server's to write")
    return block
