"""What an answer comes to: bytes of the version that was asked for, or the error that says why not."""

from __future__ import annotations

import random

from headrace.base.errors import ChangedError, HeadraceError
from headrace.fetch.read import Read
from headrace.fetch.wire import Response
from headrace.store.protocol import Blob, ObjectInfo


def pause(attempt: int) -> float:
    """Seconds before the retry after so many failures, 1 or more."""
    return random.uniform(0.2, 1.0) * min(0.05 * 2**attempt, 5.0)


def blob_of(read: Read, response: Response) -> Blob | HeadraceError:
    """Of a whole response: the bytes, or that they are of another version."""
    total = response.total
    version = etag = response.etag
    if read.version is None or etag is None:
        info = ObjectInfo(read.key, -1 if total is None else total, etag, response.mtime_us)
        version = info.version
    else:
        info = ObjectInfo(read.key, -1 if total is None else total, etag)
    if read.version is not None and version != read.version:
        reason = f"has changed: its version is {version}, expected {read.version}"
        return ChangedError(reason, path=read.path, hint="take a new snapshot, or refresh the listing")
    data = response.body[: response.got]
    if response.status == 200 and not read.whole:  # a server that ignores Range
        data = data[read.start : read.stop]
    return Blob(data, info)


def is_short(read: Read, blob: Blob) -> bool:
    """An answer that is well-formed but not as long as it must be: a proxy or a server cut it off."""
    if read.size is not None:
        return len(blob.data) != read.length()
    return read.stop is not None and len(blob.data) != max(min(read.stop, blob.info.size) - read.start, 0)


def wrong_length(read: Read, blob: Blob) -> HeadraceError:
    """Of an answer that `is_short`."""
    reason = f"answered with {len(blob.data)} bytes, expected {read.length()}"
    return ChangedError(reason, path=read.path, hint="something on the way cuts answers off, or the object has changed")
