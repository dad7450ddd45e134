"""Another node's cache: how it is asked for an object version, and whether it may be asked just now."""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import quote, urlsplit

from headrace.base.errors import DeniedError, HeadraceError, NotFoundError, SlowDownError, UnreachableError
from headrace.fetch.level import Latency
from headrace.fetch.read import Read
from headrace.store.http1 import Endpoint, range_line

PATH: Final = "/v1/object"
_FIRST_LATE_S: Final = 1.0  # seconds, until enough answers were seen
_LEAST_LATE_S: Final = 0.1  # seconds, never sooner
_SETTLE: Final = 64
"""When a node is late, seconds: until so many answers of it were seen; and never sooner than that."""
FAILURES: Final = 3  # in a row
_AWAY_S: Final = 5.0
"""So many in a row, and a node is asked by one read in so many seconds, until that is answered."""


class _Wire:
    """GETs of one node's cache. See `headrace.store.protocol.Wire`. A key is a target, as `target` makes it."""

    ranges = True

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self.url, self.endpoint = url, Endpoint(parts.hostname or "", parts.port or 80)  # never by a proxy
        self._tail = f" HTTP/1.1\r\nhost: {parts.netloc}\r\nauthorization: Bearer {token}\r\n"

    def request(self, key: str, start: int, stop: int | None, if_match: str | None) -> bytes:  # noqa: ARG002
        return f"GET {key}{self._tail}{range_line(start, stop)}\r\n".encode()

    def error(self, key: str, status: int, body: bytes) -> HeadraceError:  # noqa: ARG002
        if status in (401, 403):
            return DeniedError("does not take this job's token", path=self.url)
        if status in (404, 409):
            return NotFoundError("does not have it", path=self.url)
        if status == 503:
            return SlowDownError("has enough to do", path=self.url)
        return UnreachableError(f"answers with status {status}", path=self.url)

    def refresh(self) -> bool:
        return False


class Peer:
    """Another node's cache, and how it has answered so far. Any thread: what two do at once may count once."""

    def __init__(self, url: str, token: str) -> None:
        self.known_by, self.wire = (url, token), _Wire(url, token)
        self._latency, self._seen = Latency(), 0
        self._failures, self._away_until = 0, 0.0
        self.last = 0.0
        """When it last answered, monotonic seconds."""

    def may_be_asked(self) -> bool:
        """Whether it has answered lately, or it is time to find out."""
        if self._failures < FAILURES:
            return True
        now = time.monotonic()
        if now < self._away_until:
            return False
        self._away_until = now + _AWAY_S
        return True

    def answered(self, seconds: float) -> None:
        self._failures, self.last = 0, time.monotonic()
        self._latency.add(seconds)
        self._seen += 1
        if self._seen % _SETTLE == 0:
            self._latency.settle()

    def failed(self, weight: int) -> None:
        if self._failures < FAILURES:
            self._failures += weight
            self._away_until = time.monotonic() + _AWAY_S

    @property
    def late_after(self) -> float:
        """Seconds."""
        usual = self._latency.straggling_after if self._seen >= _SETTLE else None
        return _FIRST_LATE_S if usual is None else max(usual, _LEAST_LATE_S)


def target(read: Read) -> str:
    """What a node is asked for: the object version that this read is of."""
    told = {"root": read.store.url, "store": read.store.identity, "key": read.key, "version": read.version or ""}
    return f"{PATH}?size={read.size}" + "".join(f"&{name}={quote(text, safe='')}" for name, text in told.items())
