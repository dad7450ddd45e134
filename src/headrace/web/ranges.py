"""Which bytes of a file a request asks for. Source: RFC 9110, 14."""

from __future__ import annotations

import re
from typing import Final

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


def asked_range(text: str | None, size: int) -> tuple[int, int] | None:
    """The bytes [start, stop) that are asked for; None: all, also where it is not understood, or several."""
    match = _RANGE.fullmatch(text or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        return max(0, size - int(last)), size
    start, stop = int(first), int(last) + 1 if last else size
    return (start, stop) if start < stop else (None if start < size else (start, stop))
