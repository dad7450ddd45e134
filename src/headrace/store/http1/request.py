"""Heads of requests: what several writers of them share. A head is complete and signed before it comes to this room."""

from __future__ import annotations

from headrace.base.account import Kind


def byte_range(start: int, stop: int | None) -> str:
    """The value of a Range header for bytes [start, stop); empty where that is all of the object."""
    return f"bytes={start}-{'' if stop is None else stop - 1}" if start or stop is not None else ""


def range_line(start: int, stop: int | None) -> str:
    """The same as a header line, or nothing."""
    return f"range: {byte_range(start, stop)}\r\n" if start or stop is not None else ""


def kind_of(head: bytes) -> Kind:
    """What providers charge a request for; `head`: all of it."""
    method, _, rest = head.partition(b" ")
    query = rest.partition(b" ")[0].partition(b"?")[2]
    if method == b"GET":
        return "list" if query.startswith(b"uploads") or b"list-type=" in query else "get"
    if method == b"HEAD":
        return "head"
    return "delete" if method == b"DELETE" or query.startswith(b"delete") else "put"
