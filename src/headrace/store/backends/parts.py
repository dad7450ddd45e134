"""What writers of objects in parts share: which parts have arrived, and who is still writing into a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from headrace.base.errors import InputError


class Part(NamedTuple):
    """A part that has arrived: its number, first byte, size, and ETag where the store gave one."""

    number: int
    at: int
    size: int
    etag: str = ""


class Parts:
    """The parts of one object. Any thread. `path` is for errors."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._found: dict[int, Part] = {}

    def add(self, number: int, at: int, size: int, etag: str = "") -> None:
        """Note that a part has arrived; one of the same number is forgotten."""
        with self._lock:
            self._found[number] = Part(number, at, size, etag)

    def whole(self) -> list[Part]:
        """All parts in order.

        Raises:
            InputError: there is none, or they leave a gap or overlap.
        """
        with self._lock:
            found = [self._found[number] for number in sorted(self._found)]
        if not found:
            raise InputError("an object needs at least one part", path=self._path)
        end = 0
        for part in found:
            if part.at != end:
                reason = f"part {part.number} starts at {part.at}, where {end} was due"
                raise InputError(reason, path=self._path)
            end += part.size
        return found

    def size(self) -> int:
        """Bytes of the whole. Raises as `whole`."""
        last = self.whole()[-1]
        return last.at + last.size


class UnderWay:
    """Users of a file that must not be closed under them. Any thread. `close` is called once, by the last to leave."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._lock = threading.Lock()
        self._users = 0
        self._ended = False
        self._closed = False

    def enter(self) -> bool:
        """False once ended; else `leave` must follow."""
        with self._lock:
            if not self._ended:
                self._users += 1
            return not self._ended

    def leave(self) -> None:
        """After `enter` has returned True."""
        with self._lock:
            self._users -= 1
        self._close_once()

    def end(self) -> None:
        """Nobody may enter any more."""
        with self._lock:
            self._ended = True
        self._close_once()

    def _close_once(self) -> None:
        with self._lock:
            last = self._ended and not self._users and not self._closed
            self._closed = self._closed or last
        if last:
            self._close()


def pwrite(descriptor: int, view: memoryview, at: int) -> None:
    """Write all of it at a place. Raises OSError."""
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], at + done)
