"""Who fetches what: a claim is the lock on a name. Its owner fetches the object, writes it to a temporary file and
renames that into place.

A dead owner's lock is free, so the next one takes over, temporary file and all. The locks are this machine's own:
machines that share a cache folder may both fetch an object, but never write to the same file. Where locks do not work,
each process writes files of its own, and only the saving of work is lost.
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Self

import xxhash

from headrace.base.errors import InternalError
from headrace.base.metrics import Metrics
from headrace.cache.entry import EntryLabel, Seal, Seals, checksum, checksum_of_file, write_all
from headrace.cache.health import NO_ROOM, Health
from headrace.cache.names import Layout, charge_of, rename_into, size_of
from headrace.cache.owners import Owners
from headrace.cache.reservations import Reservations
from headrace.store.protocol import Buffer

_CREATE = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class Claim:
    """The right and the duty to fetch one object version. Publish it, or abandon it; as a context manager it abandons.

    Any one thread at a time. Forgotten, it is abandoned when collected; a killed process abandons all of its claims.
    After a fork it stays the parent's.
    """

    __slots__ = ("_claims", "_token", "name")

    def __init__(self, claims: Claims, name: str, token: object) -> None:
        self._claims = claims
        self._token: object | None = token
        self.name = name

    def publish(self, data: Buffer, label: EntryLabel, *, more: bool = False) -> bool:
        """Make `data` the entry, at once and whole. False when it was not kept (no room, failing disk); ends the claim.

        `more`: others follow at once, so room may be reserved for them too; call `Cache.settle` after the last.

        Raises:
            InternalError: `data` has not the size that the name says.
        """
        view = memoryview(data).cast("B")
        if len(view) != size_of(self.name):
            self.abandon()
            raise InternalError(f"{len(view)} bytes offered as an object of {size_of(self.name)}", path=label.key)
        token, self._token = self._token, None
        return token is not None and self._claims.publish(self.name, token, view, label, more=more)

    def abandon(self) -> None:
        """Let another one fetch it. Idempotent."""
        token, self._token = self._token, None
        if token is not None:
            self._claims.owners.give(self.name, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def __del__(self) -> None:
        self.abandon()


class BlockClaim:
    """The right to fetch one block of an object version; let go of by `release`, or when the process ends."""

    __slots__ = ("_name", "_owners", "_token")

    def __init__(self, owners: Owners, name: str, token: object) -> None:
        self._owners = owners
        self._name = name
        self._token = token

    def release(self) -> None:
        """Idempotent. Any thread."""
        self._owners.give(self._name, self._token)


class Busy:
    """Another thread or process is fetching this object version, or has just done so."""

    __slots__ = ("_layout", "_name", "_owners")

    def __init__(self, owners: Owners | None, name: str, layout: Layout | None = None) -> None:
        self._owners = owners
        self._name = name
        self._layout = layout

    @property
    def done(self) -> bool:
        """The entry is there: it was just published."""
        return self._owners is None

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
        try:
            if self._owners is None or not self._owners.busy(self._name):
                return True
            return self._layout is not None and self._layout.holds(self._name)
        except OSError:
            return True


class Claims:
    """Makes claims and carries them out. Any thread."""

    def __init__(
        self, layout: Layout, owners: Owners, room: Reservations, seals: Seals, health: Health, metrics: Metrics
    ) -> None:
        self.owners = owners
        self._layout = layout
        self._room = room
        self._seals = seals
        self._health = health
        self._metrics = metrics

    def make(self, name: str) -> Claim | Busy | None:
        """Claim, or tell who is busy with it; None when nothing can be kept just now."""
        try:
            token = self.owners.take(name)
        except OSError as error:
            self._failed(error)
            return None
        if token is None:
            return Busy(self.owners, name, self._layout)
        if self._layout.holds(name):  # published between the caller's look and now
            self.owners.give(name, token)
            return Busy(None, name)
        return Claim(self, name, token)

    def block(self, name: str, index: int) -> BlockClaim | Busy | None:
        """As `make`, for one block of an object. Whether it is there already, the caller finds out."""
        block = xxhash.xxh3_128_hexdigest(f"{name}/{index}".encode())
        try:
            token = self.owners.take(block)
        except OSError as error:
            self._failed(error)
            return None
        return Busy(self.owners, block) if token is None else BlockClaim(self.owners, block, token)

    def publish(self, name: str, token: object, data: memoryview, label: EntryLabel, *, more: bool) -> bool:
        """Write, seal, rename, let go. For `Claim` only."""
        charge = charge_of(len(data))
        reserved = published = False
        try:
            reserved = self._room.take(charge, ahead=more)
            if reserved:
                self._write(name, data, label)
                published = True
        except OSError as error:
            self._failed(error, charge)
        if reserved and not published:
            self._room.give(charge)
        self.owners.give(name, token)
        if published:
            self._metrics.add("cache.fill")
            self._metrics.add("cache.bytes_filled", len(data))
        else:
            self._metrics.add("cache.fill_shed")
        return published

    def adopt(self, name: str, path: str, fd: int, label: EntryLabel, total: int | None) -> bool:
        """For `Cache.adopt`. Needs no claim: whoever else publishes this version renames the same bytes into place."""
        charge, size = charge_of(size_of(name)), size_of(name)
        reserved = adopted = False
        try:
            reserved = not self._layout.holds(name) and self._room.take(charge, ahead=True)
            if reserved and total is None:
                total = checksum_of_file(fd, size, 0)
            if reserved and total is not None and os.fstat(fd).st_size == size:
                self._seals.put(name, fd, Seal(label, total))
                rename_into(path, self._layout.entry(name))
                adopted = True
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOENT):
                self._failed(error, charge)
        if reserved and not adopted:
            self._room.give(charge)
        if adopted:
            self._metrics.add("cache.fill")
            self._metrics.add("cache.bytes_filled", size)
        return adopted

    def _write(self, name: str, data: memoryview, label: EntryLabel) -> None:
        path = self._layout.claim(name)
        if not self.owners.shared:
            path = f"{path}.{uuid.uuid4().hex}"
        try:
            fd = os.open(path, _CREATE, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd = os.open(path, _CREATE, 0o600)
        try:
            write_all(fd, data)
            self._seals.put(name, fd, Seal(label, checksum(data)))
            rename_into(path, self._layout.entry(name))
        except OSError:
            with suppress(OSError):
                os.unlink(path)
            raise
        finally:
            os.close(fd)

    def _failed(self, error: OSError, charge: int = 0) -> None:
        if error.errno not in NO_ROOM:
            self._health.write_failed(error)
            return
        with suppress(OSError):  # the disk is full whatever the count says: give way at once
            self._room.make(charge)
