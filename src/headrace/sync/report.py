"""What a sync tells of itself."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headrace.base.errors import ChangedError, TryAgainError
from headrace.base.progress import Progress


@dataclass(frozen=True, slots=True)
class Left:
    """A file that is not sent as it is here. `age`: seconds since the change; `error`: of the last try, if any."""

    path: str
    bytes: int
    age: float
    error: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a sync has done. `requests`: roughly; `skipped`: names that no object can stand for, with the reason.

    `deleted`: objects; `refused`: why what is gone here was not deleted there, empty where nothing was refused.
    """

    files: int
    bytes: int
    requests: int
    checkpoints: int
    seconds: float
    left: tuple[Left, ...]
    skipped: tuple[tuple[str, str], ...]
    deleted: int = 0
    refused: str = ""

    def check(self, folder: str) -> None:
        """Raises TryAgainError: something is left. ChangedError: what is gone here was not deleted there."""
        if self.left:
            hint = f"send them: headrace sync --recover {folder}"
            raise TryAgainError(f"{len(self.left)} files are not sent", path=folder, hint=hint)
        if self.refused:
            hint = "look at the folder; --force deletes in the store what is gone here"
            raise ChangedError(f"nothing is deleted in the store: {self.refused}", path=folder, hint=hint)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is not sent yet. `oldest`: seconds since the first of these changes."""

    files: int = 0
    bytes: int = 0
    oldest: float = 0.0


class Meter:
    """Counts what is sent, and passes it on. Any thread."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self.files = self.bytes = 0

    def total(self, items: int | None, size: int | None = None) -> None:
        """Passed on."""
        self._progress.total(items, size)

    def advance(self, items: int = 1, size: int = 0) -> None:
        """Counted, and passed on."""
        with self._lock:
            self.files += items
            self.bytes += size
        self._progress.advance(items, size)
