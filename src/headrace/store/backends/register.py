"""Uploads under way on this node: whoever is killed in the middle of one leaves parts that cost money and that no
listing shows, so the next writer to the same bucket throws them away.

``<state>/headrace/uploads/<machine>-<pid>-<random>`` is one process's, locked (flock(2)) for as long as it lives: JSON
lines ``{"n": 1, "bucket": …, "key": …, "at": seconds}`` before an upload is begun, ``{"n": 1, "id": …}`` once the store
has named it, ``{"n": 1, "over": true}`` at its end. Nothing is flushed to disk: this guards against killed processes;
after a crash of the machine a lifecycle rule of the bucket does. Where the folder cannot be written, nothing is kept.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import json
import os
import platform
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.locks import try_lock
from headrace.base.places import own_folder

_ROOM: Final = 1 << 16
"""Bytes after which a file is begun anew, when nothing is under way."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An upload of a process that is no more. `id` None: it died before it was told; `at`: seconds since the epoch, by
    the store's clock.
    """

    bucket: str
    key: str
    at: float
    id: str | None


class Register:
    """Of this process, which a child that it forks is not. Any thread; raises nothing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._mine: tuple[int, str] | None = None
        """The descriptor that holds the lock, and its file."""
        self._open: set[int] = set()
        self._size = 0

    def begin(self, bucket: str, key: str, at: float) -> int:
        """Before the store is asked to begin one: its number here."""
        with self._lock:
            number = next(self._numbers)
            self._open.add(number)
            self._write({"n": number, "bucket": bucket, "key": key, "at": at})
        return number

    def named(self, number: int, id_: str) -> None:
        """The store has begun it."""
        with self._lock:
            if number in self._open:
                self._write({"n": number, "id": id_})

    def end(self, number: int) -> None:
        """It is completed, or thrown away; or was never begun."""
        with self._lock:
            if number not in self._open:
                return
            self._open.discard(number)
            self._write({"n": number, "over": True})
            if not self._open and self._size > _ROOM and self._mine is not None:
                with suppress(OSError):
                    os.ftruncate(self._mine[0], 0)
                    os.lseek(self._mine[0], 0, os.SEEK_SET)
                    self._size = 0

    def hand_over(self, bucket: str, discard: Callable[[Begun], bool]) -> None:
        """Hand over what dead processes had under way in `bucket`; what `discard` says is gone is forgotten."""
        for path in self._others():
            with suppress(OSError):
                lock = try_lock(path, make=False)
                if lock is None:
                    continue
                try:
                    left = [one for one in _read(lock) if one.bucket != bucket or not discard(one)]
                    if left:
                        _rewrite(lock, left)
                    else:
                        os.unlink(path)
                finally:
                    os.close(lock)

    def close(self) -> None:
        """Forget this process, if nothing is under way. Idempotent."""
        with self._lock:
            if self._mine is not None and not self._open:
                with suppress(OSError):
                    os.unlink(self._mine[1])
                os.close(self._mine[0])
                self._mine = None

    def leave(self) -> None:
        """In a forked child: what is the parent's stays so."""
        if self._mine is not None:
            os.close(self._mine[0])
            self._mine = None

    def _others(self) -> list[str]:
        """Of this machine: another's may live, where a home is shared by machines whose locks are their own."""
        mine = self._mine[1] if self._mine is not None else None
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        paths = [os.path.join(self._folder, name) for name in names if name.startswith(f"{self._machine}-")]
        return [path for path in paths if path != mine]

    def _write(self, line: dict[str, Any]) -> None:
        with suppress(OSError):
            if self._mine is None:
                self._mine = self._made()
                self._size = 0
            self._size += os.write(self._mine[0], f"{json.dumps(line)}\n".encode())

    def _made(self) -> tuple[int, str]:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        while True:
            path = os.path.join(self._folder, f"{self._machine}-{os.getpid()}-{secrets.token_hex(4)}")
            lock = try_lock(path)
            if lock is not None and os.path.exists(path):  # else who looks for dead ones was quicker
                os.set_inheritable(lock, False)
                return lock, path
            if lock is not None:
                os.close(lock)


def _read(file: int) -> Iterator[Begun]:
    found: dict[int, dict[str, Any]] = {}
    for line in os.pread(file, os.fstat(file).st_size, 0).splitlines():
        try:
            told = json.loads(line)
            if "over" in told:
                found.pop(told["n"], None)
            elif "id" in told:
                found[told["n"]]["id"] = told["id"]
            else:
                found[told["n"]] = told
        except (ValueError, KeyError, TypeError):  # cut short, as its writer was
            continue
    for one in found.values():
        with suppress(KeyError):
            yield Begun(one["bucket"], one["key"], float(one["at"]), one.get("id"))


def _rewrite(file: int, left: list[Begun]) -> None:
    lines: list[str] = []
    for number, one in enumerate(left):
        lines.append(json.dumps({"n": number, "bucket": one.bucket, "key": one.key, "at": one.at}))
        lines += [json.dumps({"n": number, "id": one.id})] if one.id is not None else []
    os.ftruncate(file, 0)
    os.pwrite(file, "".join(f"{line}\n" for line in lines).encode(), 0)


class _Shared:
    """The process's, made when it is first asked for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.register: Register | None = None

    def in_child(self) -> None:
        """The lock may have been held by a thread that is not here."""
        register = self.register
        self.__init__()
        if register is not None:
            atexit.unregister(register.close)
            register.leave()


_shared: Final = _Shared()
os.register_at_fork(after_in_child=_shared.in_child)


def register() -> Register:
    """This process's. Any thread."""
    with _shared.lock:
        if _shared.register is None:
            _shared.register = Register(own_folder("state", "uploads"))
            atexit.register(_shared.register.close)
        return _shared.register
