"""What should go wrong, when: a seeded plan shared by the failing store and the failing HTTP server.

The nth request for one (operation, key) always meets the same fate, whatever the other threads do: the choice is a
hash of (seed, fault, operation, key, n), never a shared random generator.
"""

from __future__ import annotations

import fnmatch
import hashlib
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.base.errors import InputError


class Kind(StrEnum):
    """Ways to fail."""

    LATENCY = "latency"
    """Answers late by `Fault.delay_s`, otherwise well: a slow store, or a straggler at a low rate."""
    SLOW_DOWN = "slow-down"
    """503 SlowDown, without doing the work."""
    INTERNAL = "internal"
    """500 InternalError, without doing the work."""
    EXPIRED = "expired"
    """403 ExpiredToken, without doing the work."""
    ARCHIVED = "archived"
    """403 InvalidObjectState, without doing the work."""
    RESET = "reset"
    """Half of the body, then RST."""
    REFUSE = "refuse"
    """The connection is closed (FIN) before any answer, as a stale keep-alive connection is."""
    TRUNCATE = "truncate"
    """Half of the body under a Content-Length that promises all of it, then FIN."""
    SHORT = "short"
    """Half of the body under a Content-Length that agrees with the half: only the expected size tells."""
    CORRUPT = "corrupt"
    """One byte in the middle of the body is flipped; nothing but a checksum tells."""
    STALL = "stall"
    """Half of the body, then silence for `Fault.delay_s`, then the connection is closed."""
    CHANGED = "changed"
    """The answer carries the ETag of another version."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Args:
        key: shell pattern for the keys it strikes (``*`` also matches ``/``).
        operations: which calls it strikes: "get", "head", "list", "put", "copy", "delete".
        rate: share of the matching requests struck, 0 to 1.
        count: most strikes in all; None for no limit. Under concurrency, *which* requests use it up may vary.
        per_key: most strikes for one (operation, key); 1 makes the first retry succeed.
        after: matching requests for one (operation, key) that are let through before it may strike.
        delay_s: seconds, for LATENCY and STALL.
    """

    kind: Kind
    key: str = "*"
    operations: frozenset[str] = frozenset({"get"})
    rate: float = 1.0
    count: int | None = None
    per_key: int | None = None
    after: int = 0
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rate <= 1.0:
            raise InputError(f"rate: {self.rate} is not a share", hint="between 0 and 1")
        if self.delay_s < 0 or self.after < 0:
            raise InputError("delay_s and after must not be negative")


class Plan:
    """Decides the fate of each request and counts what it did. Any thread may ask.

    Args:
        faults: in order of precedence: the first that strikes decides, but every LATENCY that matches adds up.
        seed: the same seed gives the same fates.
    """

    def __init__(self, faults: Sequence[Fault] = (), *, seed: int = 0) -> None:
        self.seed = seed
        self.faults = tuple(faults)
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._struck: Counter[int] = Counter()
        self._struck_key: Counter[tuple[int, str, str]] = Counter()

    def decide(self, operation: str, key: str) -> Fate:
        """The fate of the next request of this operation on this key."""
        with self._lock:
            nth = self._requests[operation, key]
            self._requests[operation, key] += 1
            delay_s, struck = 0.0, None
            for index, fault in enumerate(self.faults):
                if fault.kind is not Kind.LATENCY and struck is not None:
                    continue
                if not self._strikes(index, fault, operation, key, nth):
                    continue
                self._struck[index] += 1
                self._struck_key[index, operation, key] += 1
                if fault.kind is Kind.LATENCY:
                    delay_s += fault.delay_s
                else:
                    struck = fault
            return Fate(delay_s, struck)

    def _strikes(self, index: int, fault: Fault, operation: str, key: str, nth: int) -> bool:
        return (
            operation in fault.operations
            and nth >= fault.after
            and (fault.count is None or self._struck[index] < fault.count)
            and (fault.per_key is None or self._struck_key[index, operation, key] < fault.per_key)
            and fnmatch.fnmatchcase(key, fault.key)
            and _chance(self.seed, index, operation, key, nth) < fault.rate
        )

    def struck(self, kind: Kind) -> int:
        """How many requests met this kind of fault so far: a test that sees zero tested nothing."""
        with self._lock:
            return sum(count for index, count in self._struck.items() if self.faults[index].kind is kind)

    def requests(self, operation: str | None = None) -> int:
        """Requests seen so far: all, or those of one operation."""
        with self._lock:
            return sum(count for (name, _), count in self._requests.items() if operation in (None, name))

    def requests_for(self, operation: str, key: str) -> int:
        """Requests seen so far of one operation on one key."""
        with self._lock:
            return self._requests[operation, key]


@dataclass(frozen=True, slots=True)
class Fate:
    """What one request meets: seconds of latency first, then `fault` (None: a proper answer)."""

    delay_s: float
    fault: Fault | None


def _chance(seed: int, index: int, operation: str, key: str, nth: int) -> float:
    """A number in [0, 1), uniform over keys and requests."""
    text = f"{seed}\0{index}\0{operation}\0{nth}\0{key}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest()) / (1 << 56)
