"""On whose account requests to stores are made: who shows a page can tell what it cost the bucket, while others do the
same at the same time.

An account is in force on a thread, in a block of code; `headrace.base.threads.Threads` and `carried` take it along to
other threads. Counted is what goes over the wire, so that a second try counts too. What is answered from memory or a
cache costs nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, ParamSpec, TypeAlias, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
Kind: TypeAlias = Literal["get", "head", "list", "put", "delete"]
"""``put``: copies, parts and what completes them too; ``delete``: one request, however many keys it names."""


class Account:
    """Requests by kind. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Kind] = Counter()
        self._behind = 0

    def count(self, kind: Kind, times: int = 1) -> None:
        """So many requests more."""
        with self._lock:
            self._counts[kind] += times

    def counts(self) -> dict[Kind, int]:
        """What was made so far."""
        with self._lock:
            return dict(self._counts)

    @property
    def goes_on(self) -> bool:
        """Whether work that was begun on this account is not over."""
        return self._behind > 0

    def behind(self, by: int) -> None:
        """So many pieces of such work more, or fewer."""
        with self._lock:
            self._behind += by


_IN_FORCE: Final[ContextVar[Account | None]] = ContextVar("headrace-account", default=None)


def account() -> Account | None:
    """That of this thread; None: nobody counts."""
    return _IN_FORCE.get()


def count(kind: Kind, times: int = 1) -> None:
    """Requests on this thread's account."""
    if (one := _IN_FORCE.get()) is not None:
        one.count(kind, times)


@contextmanager
def on(one: Account | None) -> Generator[None]:
    """In this block requests are on the account `one`; None: on nobody's."""
    before = _IN_FORCE.set(one)
    try:
        yield
    finally:
        _IN_FORCE.reset(before)


def carried(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """`work` for a thread that outlasts the call: on the account of who begins it, which goes on until that is over."""
    one = account()
    if one is None:
        return work
    one.behind(1)

    def carrying(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            with on(one):
                return work(*args, **kwargs)
        finally:
            one.behind(-1)

    return carrying
