"""Many files, small ones above all: a few threads, each with one file under way."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import NamedTuple

from headrace.base.errors import HeadraceError, InternalError
from headrace.base.progress import SILENT, Progress
from headrace.base.threads import Crew
from headrace.store.protocol import ObjectInfo, Store
from headrace.upload.job import Cancel
from headrace.upload.uploader import File, Uploader

_GRACE_S = 2.0
"""What is under way ends at its next part; Ctrl-C ends any command within two seconds."""


class Item(NamedTuple):
    """One file to send, and the key it gets."""

    key: str
    file: File
    metadata: dict[str, str] | None = None


class Outcome(NamedTuple):
    """What became of one item: `info`, or else `error`."""

    item: Item
    info: ObjectInfo | None
    error: HeadraceError | None


def put_many(
    uploader: Uploader,
    store: Store,
    items: Iterable[Item],
    *,
    progress: Progress = SILENT,
    cancel: Cancel | None = None,
) -> Generator[Outcome]:
    """Send files, as many at once as the uploader has threads; the order of the outcomes is that of their ends.

    One that fails does not stop the others. `items` is read a little ahead only, by one thread at a time, and may
    raise: then that ends the sending, and is raised when the others have ended. Closing the iterator early stops what
    has not begun.
    """
    shift = _Shift(uploader, store, iter(items), progress, cancel)
    crew = Crew("upload-many", uploader.options.threads)
    count = uploader.options.threads
    for _ in range(count):
        crew.add(shift.work)
    try:
        while count:
            outcome = shift.outcomes.get()
            if outcome is None:
                count -= 1
            else:
                yield outcome
    finally:
        shift.over.set()  # what is under way ends at its next part
        crew.close(_GRACE_S)
    if shift.broken is not None:
        raise shift.broken


@dataclass
class _Shift:
    """What the threads of one call share."""

    uploader: Uploader
    store: Store
    items: Iterator[Item]
    progress: Progress
    cancel: Cancel | None
    outcomes: SimpleQueue[Outcome | None] = field(default_factory=SimpleQueue[Outcome | None])
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: BaseException | None = None

    def is_set(self) -> bool:
        """Whether to end early: as a `Cancel` for the uploader."""
        return self.over.is_set() or (self.cancel is not None and self.cancel.is_set())

    def work(self) -> None:
        """One thread's whole life."""
        try:
            while (item := self._next()) is not None:
                self.outcomes.put(self._send(item))
        finally:
            self.outcomes.put(None)

    def _next(self) -> Item | None:
        with self.lock:
            if self.is_set() or self.broken is not None:
                return None
            try:
                return next(self.items, None)
            except BaseException as error:
                self.broken = error
                return None

    def _send(self, item: Item) -> Outcome:
        try:
            info = self.uploader.put_file(
                self.store, item.key, item.file, metadata=item.metadata, progress=self.progress, cancel=self
            )
        except HeadraceError as error:
            return Outcome(item, None, error)
        except Exception as error:
            return Outcome(item, None, InternalError(f"{type(error).__name__}: {error}", path=item.key))
        return Outcome(item, info, None)
