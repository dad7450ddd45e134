"""Stores that fail or dawdle on purpose, around any other store: deterministic, for tests of everything above.

They speak the `Store` protocol only: `wire()` is None, so readers use `get`. For faults on the wire itself see
`headrace.testing.http`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from headrace.base.errors import (
    ArchivedError,
    ChangedError,
    CredentialsError,
    DeadlineError,
    HeadraceError,
    SlowDownError,
    TryAgainError,
    UnreachableError,
)
from headrace.store.protocol import Blob, Buffer, Capabilities, Described, Folder, ObjectInfo, Store
from headrace.testing.plan import Fault, Kind, Plan

_T = TypeVar("_T")

OTHER_ETAG = "0123456789abcdef0123456789abcdef"
"""What a CHANGED answer carries."""


class FaultStore(Store):
    """`inner`, struck by `plan`. The keys that faults match are the store's keys.

    How each kind shows at this level: SLOW_DOWN, INTERNAL, EXPIRED, ARCHIVED, RESET, REFUSE and STALL (after its delay)
    raise SlowDownError, TryAgainError, CredentialsError, ArchivedError, UnreachableError twice and DeadlineError.
    TRUNCATE and SHORT return half of the bytes beside the full size, CORRUPT a flipped byte, CHANGED another ETag (with
    `if_match`: ChangedError). The kinds that spoil a body strike only `get`; elsewhere they are RESETs after the work
    was done, which is what a writer must survive.
    """

    def __init__(self, inner: Store, plan: Plan) -> None:
        self.inner = inner
        self.plan = plan
        self.url = inner.url
        self._closed = threading.Event()

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def record(self, seen: Capabilities) -> None:
        self.inner.record(seen)

    @property
    def identity(self) -> str:
        return self.inner.identity

    def check_key(self, key: str) -> None:
        """Never struck: in most stores it is no request."""
        self.inner.check_key(key)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        """See `Store.get`; the range is asked of `inner`, then spoilt."""
        fault = self._meet("get", key)
        if fault is None:
            return self.inner.get(key, start, stop, if_match=if_match)
        if fault.kind is Kind.CHANGED and if_match is not None:
            raise ChangedError("the object has changed", path=f"{self.url}/{key}")
        blob = self.inner.get(key, start, stop, if_match=if_match)
        return _spoil(blob, fault)

    def head(self, key: str) -> ObjectInfo:
        fault = self._meet("head", key)
        info = self.inner.head(key)
        if fault is not None and fault.kind is Kind.CHANGED:
            return info._replace(etag=OTHER_ETAG)
        return _after(fault, info)

    def describe(self, key: str) -> Described:
        return _after(self._meet("head", key), self.inner.describe(key))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        """Each page is one request, named by the prefix."""
        for page in self.inner.list(prefix, start_after=start_after):
            yield _after(self._meet("list", prefix), page)

    def list_folder(self, prefix: str = "") -> Folder:
        return _after(self._meet("list", prefix), self.inner.list_folder(prefix))

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        fault = self._meet("put", key)
        info = self.inner.put(key, data, if_match=if_match, create=create, metadata=metadata, headers=headers)
        return _after(fault, info)

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        fault = self._meet("copy", source)
        _after(fault, self.inner.copy(source, target, metadata=metadata, headers=headers))

    def delete(self, keys: Sequence[str]) -> None:
        """One request for all keys, named by the first."""
        fault = self._meet("delete", keys[0] if keys else "")
        _after(fault, self.inner.delete(keys))

    def close(self) -> None:
        """Ends delays under way, then closes `inner`."""
        self._closed.set()
        self.inner.close()

    def _meet(self, operation: str, key: str) -> Fault | None:
        """Wait out the latency; raise what strikes before any work; else the fault to apply to the answer."""
        fate = self.plan.decide(operation, key)
        if fate.delay_s:
            self._closed.wait(fate.delay_s)
        fault = fate.fault
        if fault is not None and fault.kind is Kind.STALL:
            self._closed.wait(fault.delay_s)
        refusal = _REFUSALS.get(fault.kind) if fault is not None else None
        if refusal is not None:
            error, reason = refusal
            raise error(reason, path=f"{self.url}/{key}", hint="injected by a fault plan")
        return fault


class LatencyStore(FaultStore):
    """`inner`, answering `latency_s` late, and a share `straggler_rate` of the requests by `straggler_s` more."""

    def __init__(
        self, inner: Store, latency_s: float, *, straggler_rate: float = 0.0, straggler_s: float = 1.0, seed: int = 0
    ) -> None:
        everything = frozenset({"get", "head", "list", "put", "copy", "delete"})
        late = Fault(Kind.LATENCY, operations=everything, delay_s=latency_s)
        straggler = Fault(Kind.LATENCY, operations=everything, rate=straggler_rate, delay_s=straggler_s)
        super().__init__(inner, Plan((late, straggler), seed=seed))


_REFUSALS: dict[Kind, tuple[type[HeadraceError], str]] = {
    Kind.SLOW_DOWN: (SlowDownError, "the store asks for fewer requests"),
    Kind.INTERNAL: (TryAgainError, "the store failed internally"),
    Kind.EXPIRED: (CredentialsError, "the token has expired"),
    Kind.ARCHIVED: (ArchivedError, "the object is archived"),
    Kind.REFUSE: (UnreachableError, "the connection was closed"),
    Kind.STALL: (DeadlineError, "no answer within the deadline"),
}


def _after(fault: Fault | None, answer: _T) -> _T:
    """The answer to a request without a body, or the loss of it after the work was done."""
    if fault is None or fault.kind is Kind.CHANGED:
        return answer
    raise UnreachableError("the connection was reset", hint="injected by a fault plan")


def _spoil(blob: Blob, fault: Fault) -> Blob:
    if fault.kind is Kind.RESET:
        raise UnreachableError("the connection was reset", path=blob.info.key, hint="injected by a fault plan")
    if fault.kind is Kind.CHANGED:
        return Blob(blob.data, blob.info._replace(etag=OTHER_ETAG, mtime_us=time.time_ns() // 1000))
    middle = len(blob.data) // 2
    if fault.kind in (Kind.TRUNCATE, Kind.SHORT):
        return Blob(blob.data[:middle], blob.info)
    spoilt = bytearray(blob.data)
    if spoilt:
        spoilt[middle] ^= 0xFF
    return Blob(memoryview(spoilt), blob.info)
