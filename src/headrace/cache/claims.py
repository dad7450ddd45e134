"""Who fetches what: a claim is a temporary file, created by one, held with flock, and renamed into place when filled.

A dead owner's lock is free, so the next one takes its claim over. The folder of claims is this machine's own: machines
that share a cache folder may both fetch an object, but never write to the same file. Where locks do not work each
claim has a file of its own, and only the saving of work is lost.
"""

from __future__ import annotations

import os
import time
import uuid
import weakref
from contextlib import suppress
from types import TracebackType
from typing import Self

from headrace.base.errors import InternalError
from headrace.base.metrics import Metrics
from headrace.cache.entry import EntryLabel, Seal, Seals, checksum, write_all
from headrace.cache.health import NO_ROOM, Health
from headrace.cache.locks import try_flock, unlock_and_close
from headrace.cache.names import Layout, charge_of, rename_into, size_of
from headrace.cache.room import Room
from headrace.store.protocol import Buffer

_CREATE = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Claim:
    """The right and the duty to fetch one object version. Publish it, or abandon it; as a context manager it abandons.

    Any one thread at a time. Forgotten, it is abandoned when collected; a killed process abandons all of its claims.
    """

    __slots__ = ("__weakref__", "_claims", "_fd", "_path", "name")

    def __init__(self, claims: Claims, name: str, path: str, fd: int) -> None:
        self._claims = claims
        self._fd = fd
        self._path = path
        self.name = name

    def publish(self, data: Buffer, label: EntryLabel) -> bool:
        """Make `data` the entry, at once and whole. False when it was not kept (no room, failing disk); ends the claim.

        Raises:
            InternalError: `data` has not the size that the name says.
        """
        view = memoryview(data).cast("B")
        if len(view) != size_of(self.name):
            self.abandon()
            raise InternalError(f"{len(view)} bytes offered as an object of {size_of(self.name)}", path=label.key)
        fd, self._fd = self._fd, -1
        return fd >= 0 and self._claims.publish(self.name, self._path, fd, view, label)

    def abandon(self) -> None:
        """Let another one fetch it. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._claims.discard(self._path, fd)

    def disown(self) -> None:
        """In a forked child: the claim stays the parent's."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def __del__(self) -> None:
        self.abandon()


class Busy:
    """Another thread or process is fetching this object version, or has just done so."""

    __slots__ = ("_path",)

    def __init__(self, path: str | None) -> None:
        self._path = path

    @property
    def done(self) -> bool:
        """The entry is there: it was just published."""
        return self._path is None

    def wait(self, timeout_s: float) -> bool:
        """True when it is worth looking again: the entry is there, or its owner gave up or died. False at timeout.

        Looks every 0.5 ms at first, every 20 ms after a while. Any thread.
        """
        deadline = time.monotonic() + timeout_s
        pause = 0.0005
        while not self._over():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, 0.02)
        return True

    def _over(self) -> bool:
        if self._path is None:
            return True
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            return try_flock(fd, shared=True)
        except OSError:
            return True
        finally:
            unlock_and_close(fd)


class Claims:
    """Makes claims and carries them out. Any thread."""

    def __init__(
        self, layout: Layout, room: Room, seals: Seals, health: Health, metrics: Metrics, *, locking: bool
    ) -> None:
        self._layout = layout
        self._room = room
        self._seals = seals
        self._health = health
        self._metrics = metrics
        self._locking = locking
        self._held: weakref.WeakSet[Claim] = weakref.WeakSet()

    def make(self, name: str) -> Claim | Busy | None:
        """Claim, or tell who is busy with it; None when nothing can be kept just now."""
        path = self._layout.claim(name) if self._locking else f"{self._layout.claim(name)}.{uuid.uuid4().hex}"
        try:
            fd = self._hold(path)
        except OSError as error:
            self._failed(error)
            return None
        if fd is None:
            return Busy(path)
        if self._present(name):
            self.discard(path, fd)
            return Busy(None)
        claim = Claim(self, name, path, fd)
        self._held.add(claim)
        return claim

    def publish(self, name: str, path: str, fd: int, data: memoryview, label: EntryLabel) -> bool:
        """Write, seal, rename; `fd` is closed. For `Claim` only."""
        charge = charge_of(len(data))
        reserved = published = False
        try:
            reserved = self._room.take(charge)
            if reserved:
                write_all(fd, data)
                self._seals.put(name, fd, Seal(label, checksum(data)))
                rename_into(path, self._layout.entry(name))
                published = True
        except OSError as error:
            self._failed(error, charge)
        if published:
            unlock_and_close(fd)
            self._metrics.add("cache.fill")
            self._metrics.add("cache.bytes_filled", len(data))
            return True
        self.discard(path, fd)
        if reserved:
            self._room.give(charge)
        self._metrics.add("cache.fill_shed")
        return False

    def discard(self, path: str, fd: int) -> None:
        """Unlink the temporary file, then let go of it. For `Claim` only."""
        with suppress(OSError):
            os.unlink(path)
        unlock_and_close(fd)

    def after_fork(self) -> None:
        """In a forked child: the claims under way are the parent's."""
        for claim in list(self._held):
            claim.disown()
        self._held = weakref.WeakSet()

    def _hold(self, path: str) -> int | None:
        """The open, locked, empty file of a claim; None when somebody else holds it. Raises OSError."""
        while True:
            try:
                fd = os.open(path, _CREATE, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
                fd = os.open(path, _CREATE, 0o600)
            try:
                if self._locking and not try_flock(fd):
                    os.close(fd)
                    return None
                # Between open and lock its owner may have published or abandoned it: then this is another's file.
                mine = os.fstat(fd)
                with suppress(FileNotFoundError):
                    if os.stat(path).st_ino == mine.st_ino:
                        if mine.st_size:
                            os.ftruncate(fd, 0)  # what a dead owner left
                        return fd
            except OSError:
                unlock_and_close(fd)
                raise
            unlock_and_close(fd)

    def _present(self, name: str) -> bool:
        try:
            return os.stat(self._layout.entry(name)).st_size == size_of(name)
        except OSError:
            return False

    def _failed(self, error: OSError, charge: int = 0) -> None:
        if error.errno not in NO_ROOM:
            self._health.write_failed(error)
            return
        with suppress(OSError):  # the disk is full whatever the count says: give way at once
            self._room.make(charge)
