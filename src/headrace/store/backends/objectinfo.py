"""What the headers of an HTTP answer tell of an object, and how its size is found where they do not tell it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.base.errors import InputError
from headrace.store.backends.s3xml import clean_etag
from headrace.store.http1 import Response, http_time
from headrace.store.protocol import ObjectInfo


def measured(key: str, head: Response, get: Callable[[Mapping[str, str]], Response]) -> ObjectInfo:
    """From the answer to a HEAD. Where that tells no length (RFC 9110 lets it), a GET of one byte is asked, and where
    this tells none either, the object is read to its end: an unknown size is not 0.

    `get`: an answer to a GET with these headers. Raises what it raises.
    """
    if _told_size(head) is not None:
        return info_of(key, head)
    try:
        answer = get({"range": "bytes=0-0"})
    except InputError:  # 416: it is empty, perhaps
        answer = get({})
    if answer.status == 206 and _told_size(answer) is None:
        answer = get({})
    return info_of(key, answer)


def _told_size(answer: Response) -> int | None:
    """The whole object's size, by the headers alone."""
    total = (answer.header("content-range") or "").rpartition("/")[2]
    if answer.status == 206 or total.isdigit():
        return int(total) if total.isdigit() else None
    length = answer.header("content-length") or ""
    return int(length) if length.isdigit() and not answer.header("transfer-encoding") else None


def info_of(key: str, answer: Response) -> ObjectInfo:
    """From the headers of a GET, HEAD or PUT. Size -1: of a part, whose answer does not tell the whole's."""
    size = _told_size(answer)
    if size is None:
        size = -1 if answer.status == 206 else len(answer.body)
    modified = answer.header("last-modified") or answer.header("date")
    return ObjectInfo(
        key, size, clean_etag(answer.header("etag")), http_time(modified), answer.header("x-amz-version-id")
    )
