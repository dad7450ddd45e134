"""Whether two objects hold the same bytes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import BinaryIO

from headrace.namespace.entry import Entry

_MD5 = re.compile(r"[0-9a-f]{32}")
_PIECE = 8 << 20
"""Bytes of a file read at a time: its read-ahead keeps more under way."""


def same_bytes(
    one: Entry, other: Entry, opened: Callable[[str], AbstractContextManager[BinaryIO]], *, local: Callable[[str], bool]
) -> bool:
    """Told by size and ETag where these are enough, else by reading: what lies on this machine first.

    The ETag of an object that was sent in one request is the MD5 of its bytes in S3 and most of its servers, not in
    all. So where it is that of the other's bytes they are the same; where it is not, both are read.

    Args:
        one: as listed now.
        other: likewise.
        opened: opens a path for reading.
        local: whether a path's bytes are on this machine.
    """
    if one.size != other.size:
        return False
    if one.etag == other.etag and _is_md5(one.etag):
        return True
    here, there = (one, other) if local(one.path) else (other, one)
    digest = _digest(here.path, opened)
    return digest == there.etag or digest == _digest(there.path, opened)


def _is_md5(etag: str | None) -> bool:
    return etag is not None and _MD5.fullmatch(etag) is not None


def _digest(path: str, opened: Callable[[str], AbstractContextManager[BinaryIO]]) -> str:
    md5 = hashlib.md5(usedforsecurity=False)
    with opened(path) as file:
        while piece := file.read(_PIECE):
            md5.update(piece)
    return md5.hexdigest()
