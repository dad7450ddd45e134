"""An object that is sent while it is being made: part by part, each as soon as its bytes are there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from headrace.base.errors import HeadraceError, TryAgainError, UnsupportedError
from headrace.store.protocol import Assembly, Buffer, ObjectInfo, Store
from headrace.upload.job import GRACE_S, LOOK_S, Cancel
from headrace.upload.outcome import failure

_T = TypeVar("_T")


class Means:
    """What an object on its way takes from its uploader: memory, threads and bandwidth."""

    def __init__(
        self,
        part: int,
        take: Callable[[int, ExitStack], memoryview],
        start: Callable[[Callable[[], None]], None],
        pace: Callable[[int, Callable[[], bool]], None],
    ) -> None:
        self.part, self.take, self.start, self.pace = part, take, start, pace


class Outgoing:
    """Write to it, then `finish`, or `abort`. One thread; parts go on others. From `Uploader.outgoing`.

    Memory: one part that is being filled and those under way, all within the uploader's bound.
    """

    def __init__(
        self, store: Store, key: str, means: Means, *, create: bool, insist: bool, cancel: Cancel | None
    ) -> None:
        self.size = 0
        self._insist = insist
        self._store, self._key, self._means, self._create, self._cancel = store, key, means, create, cancel
        self._assembly: Assembly | None = None
        self._changed = threading.Condition()
        self._under_way = self._number = self._sent = 0
        self._error: HeadraceError | None = None
        self._ended = False
        self._held = ExitStack()
        self._part: memoryview | None = None
        self._filled = 0

    def write(self, data: Buffer, /) -> None:
        """The next bytes. They are copied.

        Raises:
            UnsupportedError: the store takes no parts, or no such condition. TryAgainError: also when cancelled. What
            sending has come to so far.
        """
        view = memoryview(data).cast("B")
        self.size += len(view)
        while len(view):
            if self._part is None:
                self._part, self._filled = self._means.take(self._means.part, self._held), 0
            count = min(len(view), len(self._part) - self._filled)
            self._part[self._filled : self._filled + count] = view[:count]
            self._filled += count
            view = view[count:]
            if self._filled == len(self._part):
                self._send()

    def flush(self) -> None:
        """Nothing: a part goes when it is full."""

    def finish(self) -> ObjectInfo:
        """Make the object visible, whole.

        Raises:
            AlreadyExistsError: there is one. As `write`. After any of them nothing is left.
        """
        try:
            if self._assembly is None:
                self._refuse()
                part = memoryview(b"") if self._part is None else self._part[: self._filled]
                self._means.pace(len(part), self._stopped)
                return self._kept(lambda: self._store.put(self._key, part, create=self._create))
            if self._part is not None:
                self._send()
            self._wait()
            return self._assembly.complete()
        except BaseException:
            self.abort()
            raise
        finally:
            self._end()

    def abort(self) -> None:
        """Throw away what was sent, once what is under way has ended or was given 5 s to. Idempotent; nothing after
        `finish`.
        """
        if not self._ended:
            self._end()
            with self._changed:  # a part that arrives after the end could stay behind
                self._changed.wait_for(lambda: not self._under_way, GRACE_S)
            if self._assembly is not None:
                self._assembly.abort()

    def _end(self) -> None:
        self._ended, self._part = True, None
        self._held.close()

    def _send(self) -> None:
        self._refuse()
        assert self._part is not None
        if self._assembly is None:
            self._assembly = self._kept(lambda: self._store.assemble(self._key, create=self._create))
        assembly, part, held = self._assembly, self._part[: self._filled], self._held
        self._number += 1
        number, at = self._number, self._sent
        self._sent += len(part)
        self._part, self._held = None, ExitStack()
        with self._changed:
            self._under_way += 1

        def part_sent() -> None:
            self._means.pace(len(part), self._stopped)
            if not self._stopped():
                assembly.part(number, at, part)

        def send() -> None:
            with held:
                error = failure(part_sent)
            with self._changed:
                self._error = self._error or error
                self._under_way -= 1
                self._changed.notify_all()

        self._means.start(send)

    def _kept(self, begin: Callable[[], _T]) -> _T:
        """`begin()`, on the condition if the store can keep it, or if that is insisted on."""
        try:
            return begin()
        except UnsupportedError:
            if self._insist or not self._create:
                raise
            self._create = False
            return begin()

    def _stopped(self) -> bool:
        return self._ended or self._error is not None or (self._cancel is not None and self._cancel.is_set())

    def _refuse(self) -> None:
        if self._error is not None:
            raise self._error
        if self._stopped():
            raise TryAgainError("stopped before it was all sent", path=f"{self._store.url}/{self._key}")

    def _wait(self) -> None:
        with self._changed:
            while self._under_way and not self._stopped():
                self._changed.wait(LOOK_S)
        self._refuse()
