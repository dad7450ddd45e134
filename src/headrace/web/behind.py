"""Work that takes longer than anybody waits for a page: done behind it, once for all who ask, its progress told."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from headrace.base.account import carried
from headrace.base.errors import TryAgainError
from headrace.base.progress import Progress

T = TypeVar("T")
PATIENCE_S: Final = 1.0
"""How long a page waits before it says that work is under way."""
_KEPT: Final = 32
"""Results that are held."""


@dataclass(frozen=True, slots=True)
class Underway:
    """What is being done, and how far it is. `total` None: nobody knows yet."""

    what: str
    done: int
    total: int | None

    def error(self) -> TryAgainError:
        """For who can do nothing before it is done."""
        return TryAgainError(self.what[:1].lower() + self.what[1:], hint="ask again in a minute")


@dataclass(eq=False)
class _Job(Generic[T]):
    """Also the `Progress` of its own work."""

    what: str
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: int = 0
    of: int | None = None
    result: Any = None
    error: Exception | None = None

    def total(self, items: int | None, size: int | None = None) -> None:  # noqa: ARG002
        """A new stage begins."""
        with self.lock:
            self.done, self.of = 0, items

    def advance(self, items: int = 1, size: int = 0) -> None:  # noqa: ARG002
        with self.lock:
            self.done += items


class Behind:
    """Any thread. Results are held as long as there is room; what failed is told once, and then forgotten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heavy = threading.Lock()
        self._jobs: OrderedDict[str, _Job[Any]] = OrderedDict()

    def ask(
        self, key: str, what: str, work: Callable[[Progress], T], *, heavy: bool = False, wait_s: float = PATIENCE_S
    ) -> T | Underway:
        """The result of `work`, which is begun unless it was; where it takes longer than `wait_s`, how far it is.

        `key`: names the work; `heavy`: one such at a time, as it takes memory. Raises what the work raises.
        """
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job(what)
                self._forget_old()
                do, args = carried(self._do), (job, work, heavy)
                run = threading.Thread(target=do, args=args, name="headrace-web-work", daemon=True)
                run.start()
            self._jobs.move_to_end(key)
        if not job.over.wait(wait_s):
            return Underway(job.what, job.done, job.of)
        if job.error is None:
            return job.result
        with self._lock:
            if self._jobs.get(key) is job:
                del self._jobs[key]
        raise job.error

    def get(self, key: str, what: str, work: Callable[[Progress], T], *, wait_s: float) -> T:
        """As `ask`, for who can do nothing without. Raises TryAgainError: it is not there within `wait_s`."""
        found = self.ask(key, what, work, wait_s=wait_s)
        if isinstance(found, Underway):
            raise found.error()
        return found

    def _do(self, job: _Job[T], work: Callable[[Progress], T], heavy: bool) -> None:
        with self._heavy if heavy else nullcontext():
            try:
                job.result = work(job)
            except Exception as error:  # told to who asks
                job.error = error
        job.over.set()

    def _forget_old(self) -> None:
        """Of the results that nobody has asked for lately."""
        for key in [key for key, job in self._jobs.items() if job.over.is_set()]:
            if len(self._jobs) <= _KEPT:
                return
            del self._jobs[key]
