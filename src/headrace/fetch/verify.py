"""Whole objects compared with their ETag, where it is an MD5: S3's form for single-part uploads without SSE-KMS.

TCP's 16-bit checksum lets about one corrupted segment in 65,536 through; TLS does not need this. Off by default: MD5
costs about 1.5 ms of CPU a megabyte (`fetch.verify`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from headrace.base.errors import CorruptError, HeadraceError
from headrace.base.metrics import Metrics
from headrace.base.threads import Crew, by_cores
from headrace.fetch.operation import Operation
from headrace.store.protocol import Blob

_MD5 = re.compile(r"[0-9a-f]{32}\Z")
_TRIES = 3
"""A damaged transfer is rare, two in a row mean damage on the way that a third repeats."""
_MOST_THREADS = 8
"""Threads that add up MD5, at most, one to a core: that frees the interpreter's lock. Other cores are for decoding."""


class Verifier:
    """Wraps operations so that a body which does not match is read again, up to three times. Any thread."""

    def __init__(self, send: Callable[[Operation], None], metrics: Metrics) -> None:
        self._send = send
        self._metrics = metrics
        self._workers = Crew("verify", by_cores(1, 2, _MOST_THREADS))

    def wrap(self, operation: Operation, tries: int = 1) -> Operation:
        """The same read, whose `done` is called only with bytes that match."""
        if not operation.read.whole:
            return operation

        def done(result: Blob | HeadraceError) -> None:
            etag = None if isinstance(result, HeadraceError) else result.info.etag
            if isinstance(result, HeadraceError) or etag is None or not _MD5.match(etag):
                operation.done(result)
            else:
                self._workers.add(lambda: self._check(operation, result, etag, tries))

        return Operation(operation.read, done, operation.ticket, operation.demand)

    def close(self) -> None:
        """Stop the threads."""
        self._workers.close(drop=True)

    def _check(self, operation: Operation, blob: Blob, etag: str, tries: int) -> None:
        if hashlib.md5(blob.data, usedforsecurity=False).hexdigest() == etag:
            operation.done(blob)
            return
        self._metrics.add("fetch.corrupt")
        if tries < _TRIES:
            self._send(self.wrap(operation, tries + 1))
            return
        reason = f"does not match its MD5 after {_TRIES} reads"
        hint = "something damages data on the way; with SSE-KMS an ETag is no MD5: set fetch.verify = false"
        operation.done(CorruptError(reason, path=operation.read.path, hint=hint))
