"""Conditions and ranges of a request, as RFC 9110 and S3 read them."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache

from headrace.gateway.failures import S3Failure

_RANGE = re.compile(r"bytes=(\d{1,19})?-(\d{1,19})?\Z")


def etag_of(version: str) -> str:
    """As an ETag header says it."""
    return f'"{version}"'


@lru_cache(4096)
def http_date(mtime_us: int) -> str:
    """As a Last-Modified header says it."""
    return formatdate(mtime_us // 1_000_000, usegmt=True)


def matches(given: str, version: str) -> bool:
    """Whether a list of ETags in If-Match or If-None-Match holds this one."""
    for one in given.split(","):
        one = one.strip().removeprefix("W/")
        if one == "*" or one.strip('"') == version:
            return True
    return False


def check(headers: Mapping[str, str], version: str, mtime_us: int, *, prefix: str = "") -> None:
    """Whether the conditions hold. `prefix`: ``x-amz-copy-source-`` for those of a copy's source.

    Raises:
        S3Failure: PreconditionFailed, NotModified.
    """
    wanted, none = headers.get(prefix + "if-match"), headers.get(prefix + "if-none-match")
    if wanted is not None:
        if not matches(wanted, version):
            raise _failed("If-Match")
    elif _later(mtime_us, headers.get(prefix + "if-unmodified-since")):
        raise _failed("If-Unmodified-Since")
    if none is not None:
        if matches(none, version):
            raise _not_modified(version, prefix, "If-None-Match")
    elif _later(mtime_us, headers.get(prefix + "if-modified-since")) is False:
        raise _not_modified(version, prefix, "If-Modified-Since")


def _later(mtime_us: int, than: str | None) -> bool | None:
    """None: one of both is not known."""
    seconds = _seconds(than)
    return None if seconds is None or not mtime_us else mtime_us // 1_000_000 > seconds


def any_in(headers: Mapping[str, str]) -> bool:
    """Whether there are conditions at all."""
    return any(name in headers for name in _NAMES)


_NAMES = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range")


def span(headers: Mapping[str, str], size: int, version: str) -> tuple[int, int] | None:
    """Bytes [start, stop) that are asked for; None: all. What is no single range is passed over, as S3 does.

    Raises:
        S3Failure: InvalidRange.
    """
    text = headers.get("range")
    if text is None:
        return None
    match = _RANGE.match(text.replace(" ", ""))
    if match is None or (match[1] is None and match[2] is None):
        return None
    condition = headers.get("if-range")
    if condition is not None and condition.strip('"') != version:
        return None
    if match[1] is None:
        start, stop = max(0, size - int(match[2])), size
        if int(match[2]) == 0:
            start = size
    else:
        start = int(match[1])
        stop = size if match[2] is None else min(size, int(match[2]) + 1)
        if match[2] is not None and int(match[2]) < start:
            return None
    if start >= size:
        raise S3Failure("InvalidRange", "The requested range is not satisfiable",
                        headers=(("Content-Range", f"bytes */{size}"),))  # fmt: skip
    return start, stop


def _seconds(text: str | None) -> int | None:
    if not text:
        return None
    for form in ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%Y-%m-%dT%H:%M:%SZ"):
        try:
            return calendar.timegm(time.strptime(text, form))
        except ValueError:
            continue
    return None


def _failed(which: str) -> S3Failure:
    return S3Failure("PreconditionFailed", f"At least one of the pre-conditions you specified did not hold ({which})")


def _not_modified(version: str, prefix: str, which: str) -> S3Failure:
    if prefix:
        return _failed(which)
    return S3Failure("NotModified", "Not Modified", headers=(("ETag", etag_of(version)),))
