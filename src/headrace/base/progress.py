"""Progress: one small protocol; long work reports to it, the command line draws it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """What long work reports to. Every method may be called from any thread, and often."""

    def total(self, items: int | None, size: int | None = None) -> None:
        """How much there is: items, and bytes where known. May be called again as more is found."""
        ...

    def advance(self, items: int = 1, size: int = 0) -> None:
        """Work done since the last call: items and bytes."""
        ...


class Silent:
    """Reports nowhere."""

    def total(self, items: int | None, size: int | None = None) -> None:
        """Ignore."""

    def advance(self, items: int = 1, size: int = 0) -> None:
        """Ignore."""


SILENT = Silent()
