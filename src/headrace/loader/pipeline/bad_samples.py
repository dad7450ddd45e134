"""What did not go as it should: bad samples, how many may be left out, and objects that changed; each is named in a
book.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.base.errors import BadSampleError, DeniedError, HeadraceError, InputError, InternalError, NoRoomError

_FIRST_KEYS = 3  # samples of a batch that an error names
_NAMED = 5  # bad samples named in the error
_MOST_CHANGED = 100_000  # objects noted, so that a source that is written anew does not fill the memory
_MOST_WARNINGS = 20  # lines in the log, so that they do not hide what else is there
_LOG = logging.getLogger("headrace.dataset")


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave out samples that cannot be read or decoded, up to a budget for each epoch and rank; then fail.

    `max_rate`: share of the epoch's samples on this rank, rounded up (0.001 of 1,797 allows two). `max_count`:
    a number. With both, the smaller holds. Objects in an archive count as unreadable; refused access and faults of
    this machine are never skipped.
    """

    max_rate: float | None = None
    max_count: int | None = None

    def __post_init__(self) -> None:
        if self.max_rate is None and self.max_count is None:
            raise InputError("Skip without a budget", hint="Skip(max_rate=0.001) or Skip(max_count=10)")
        if self.max_rate is not None and not 0 <= self.max_rate <= 1:
            raise InputError(f"Skip(max_rate={self.max_rate})", hint="a share between 0 and 1")
        if self.max_count is not None and self.max_count < 0:
            raise InputError(f"Skip(max_count={self.max_count})", hint="zero or more")

    def allowed(self, total: int | None, seen: int) -> int:
        """Samples that may be missing from an epoch of `total` (None: endless, then of the `seen` so far)."""
        limits: list[int] = []
        if self.max_rate is not None:
            limits.append(math.ceil(self.max_rate * (max(seen, 1) if total is None else total)))
        if self.max_count is not None:
            limits.append(self.max_count)
        return min(limits)


@dataclass(frozen=True, slots=True)
class Skipped:
    """One sample left out: its key, where it failed (``"fetch"`` or the function's name) and why."""

    key: str
    stage: str
    reason: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Changed:
    """An object that is no longer the version its snapshot (or listing) names, and was read as it is now."""

    url: str
    listed: str
    """Its version when it was listed: the ETag, or size and mtime where the store has none."""
    found: str


class Changes:
    """Objects found changed, each named once: the first 100,000 in the book, the first 20 of them by a warning too.

    Any thread. In another process, where it arrives empty, it only collects, for the parent to say it.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._found: dict[str, Changed] = {}
        self._lock = threading.RLock()

    def note(self, changed: Iterable[Changed]) -> None:
        """Enter what is new among them."""
        for one in changed:
            with self._lock:
                if one.url in self._found or len(self._found) >= _MOST_CHANGED:
                    continue
                self._found[one.url] = one
                count = len(self._found)
                if not self._quiet and count <= _MOST_WARNINGS:  # with the lock held: the last warning says it is
                    _warn(one, last=count == _MOST_WARNINGS)

    def since(self, count: int) -> list[Changed]:
        """All but the first `count`, in the order they were found."""
        with self._lock:
            return list(islice(self._found.values(), count, None))

    def __len__(self) -> int:
        return len(self._found)

    def __reduce__(self) -> tuple[Any, ...]:
        return _quiet, ()


def _quiet() -> Changes:
    return Changes(quiet=True)


def _warn(one: Changed, *, last: bool) -> None:
    more = "; loader.changed names it and all that follow" if last else ""
    says = "%s is no longer the version listed (%s, was %s): read as it is now%s"
    _LOG.warning(says, one.url, one.found, one.listed, more)


class Judge:
    """Decides over failed samples of one epoch. Used by one thread."""

    def __init__(self, policy: Skip | None, total: int | None, epoch: int, ledger: list[Skipped]) -> None:
        self._policy, self._total, self._epoch, self._ledger = policy, total, epoch, ledger
        self._own: list[Skipped] = []

    def skip(self, key: str, stage: str, error: BaseException, seen: int) -> None:
        """Enter the sample in the ledger.

        Raises:
            The error itself, for one of ours that may not be skipped or where nothing may be.
            BadSampleError: the user's function failed and nothing may be skipped, or the budget is spent.
        """
        if not isinstance(error, Exception) or isinstance(error, (DeniedError, NoRoomError, InternalError)):
            raise error
        if self._policy is None:
            raise failure(key, stage, error) from (None if isinstance(error, HeadraceError) else error)
        entry = Skipped(key, stage, f"{type(error).__name__}: {error}", self._epoch)
        self._own.append(entry)
        self._ledger.append(entry)
        allowed = self._policy.allowed(self._total, seen)
        if len(self._own) > allowed:
            raise self._spent(allowed) from error

    def _spent(self, allowed: int) -> BadSampleError:
        named = "; ".join(f"{one.key} ({one.stage}: {one.reason})" for one in self._own[-_NAMED:])
        more = "" if len(self._own) <= _NAMED else f" and {len(self._own) - _NAMED} before"
        return BadSampleError(
            f"{len(self._own)} bad samples, {allowed} allowed: {named}{more}",
            hint="loader.ledger names all of them; mend the data or raise the budget of Skip",
        )


def first_keys(keys: Sequence[object]) -> str:
    """Of a batch's samples, for messages."""
    named = ", ".join(map(str, keys[:_FIRST_KEYS]))
    return named if len(keys) <= _FIRST_KEYS else f"{named} and {len(keys) - _FIRST_KEYS} more"


def failure(key: str, stage: str, error: BaseException) -> BaseException:
    """What is raised for a sample that failed where none may be left out: a store's error, and what is no fault of the
    sample, as it is; else BadSampleError.
    """
    if not isinstance(error, Exception) or isinstance(error, (DeniedError, NoRoomError, InternalError)):
        return error
    if isinstance(error, HeadraceError) and stage == "fetch":
        return error
    return BadSampleError(
        f"{stage} failed: {type(error).__name__}: {error}",
        path=key,
        hint="on_error=Skip(max_rate=0.001) leaves out a few such samples",
    )
