"""A request of the kernel's, and the threads for those that must wait."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger("headrace.mount")
_IDLE_S = 30.0  # seconds without a request that must wait, after which its thread ends


Answer = bytes | tuple[bytes | memoryview, ...] | None
"""A complete answer; or its header and its bytes in pieces; or none: there is none (FORGET), or it comes later."""


class Answers(Protocol):
    """What a request needs of the session."""

    def hold(self, request: Request) -> None: ...
    def answer(self, request: Request, result: Answer | Exception) -> bool: ...


class WouldBlock(Exception):  # noqa: N818
    """Raised by an operation that would have to wait and may not: it is called again on a thread that may."""


class Request:
    """One request. `body` is good until the operation returns. `may_wait`: on a thread of its own.

    `interrupted`: the caller has to stop waiting; see `check`. `group`: the caller's process group, known while it
    waits. `limit`: when, on the monotonic clock, the caller is answered that it takes too long; what was begun goes on.
    """

    __slots__ = (
        "_cancel", "_session", "began", "body", "gid", "group", "interrupted", "limit", "may_wait", "node", "op", "pid",
        "uid", "unique",
    )  # fmt: skip

    def __init__(self, session: Answers) -> None:
        self._session = session
        self._cancel: Callable[[], None] | None = None
        self.began = 0.0
        self.limit = float("inf")
        self.op = self.unique = self.node = self.uid = self.gid = self.pid = self.group = 0
        self.body = memoryview(b"")
        self.may_wait = False
        self.interrupted = False

    def deferred(self, cancel: Callable[[], None]) -> Request:
        """A copy to be answered later, by `finish` or `fail`; the operation returns None now.

        `cancel`: called once, when the caller has to stop waiting; the caller is answered EINTR.
        """
        copy = self.waiting()
        copy._cancel = cancel
        self._session.hold(copy)
        return copy

    def finish(self, answer: Answer) -> bool:
        """Answer a deferred request. Any thread. False: it has been answered already."""
        return self._session.answer(self, answer)

    def fail(self, error: Exception) -> bool:
        """Answer a deferred request with an error. Any thread."""
        return self._session.answer(self, error)

    def interrupt(self) -> None:
        """The caller has to stop waiting."""
        self.interrupted = True
        if self._cancel is not None and self.fail(InterruptedError()):
            self._cancel()

    def check(self) -> None:
        """To be called now and then by an operation that waits.

        Raises:
            InterruptedError: the caller has to stop waiting.
        """
        if self.interrupted:
            raise InterruptedError

    def expire(self, error: Exception) -> None:
        """It has taken too long; one that waits on a thread of its own sees to that itself."""
        if self._cancel is not None and self.fail(error):
            self._cancel()

    @property
    def is_deferred(self) -> bool:
        """Whether it is answered later, by `finish` or `fail`."""
        return self._cancel is not None

    def waiting(self) -> Request:
        """A copy that outlives the buffer it was read into, and may wait."""
        copy = Request(self._session)
        copy.began = time.monotonic()
        copy.op, copy.unique, copy.node = self.op, self.unique, self.node
        copy.uid, copy.gid, copy.pid = self.uid, self.gid, self.pid
        copy.body = memoryview(bytes(self.body))
        copy.may_wait = True
        return copy

    def must_wait(self) -> None:
        """To be called before anything that takes long.

        Raises:
            WouldBlock: not on this thread.
        """
        if not self.may_wait:
            raise WouldBlock


class Waiters:
    """Daemon threads for work that waits: as many as wait at once, up to `most`. Idle ones end after 30 s."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._closed = False
        self.threads = 0

    def add(self, task: Callable[[], object]) -> None:
        """Run `task` soon. Any thread."""
        self._tasks.put(task)
        with self._lock:
            if self._idle > self._tasks.qsize() - 1 or self.threads >= self._most:
                return
            self.threads += 1
        threading.Thread(target=self._run, name="headrace-mount-wait", daemon=True).start()

    def close(self) -> None:
        """From now on a thread that has nothing to do ends. What was or will be added is done. Any thread."""
        with self._lock:
            self._closed = True
        self._tasks.put(_wake)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            try:
                task = self._tasks.get(timeout=0.0 if self._closed else _IDLE_S)
            except queue.Empty:
                task = None
            with self._lock:
                self._idle -= 1
                if (task is None or task is _wake) and self._tasks.empty():
                    self.threads -= 1
                    if self._closed and self.threads:
                        self._tasks.put(_wake)  # for the next: one of them at a time, so that nobody takes another's
                    return
            if task is None:
                continue
            try:
                task()
            except Exception:
                _log.exception("a task of the mount failed; this is a defect in headrace")
            del task


def _wake() -> None:
    """A task for a thread that waits for one: closed."""
