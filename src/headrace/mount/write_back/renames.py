"""Renames of objects in the bucket: copied, then deleted; one step to programs that look through the mount.

A rename stands in the journal from before its first request until after its last, so that a crash does not break it
off. Its phases are ``copy`` (the old name shows), then, in one step, ``delete`` (the new name shows). A folder that
cannot be copied to the end is undone (``undo``), so a rename that fails has changed nothing. Whatever else writes below
the two names waits meanwhile.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.base.errors import HeadraceError, InternalError, NameRefusedError, NotFoundError
from headrace.mount.write_back.copied_objects import (
    CopiedVersions,
    copy_object,
    copy_objects,
    delete_copied,
    delete_keys,
    in_parallel,
    is_copy,
)
from headrace.mount.write_back.record_journal import RecordJournal
from headrace.mount.write_back.staged_tree import StagedTree, overlap
from headrace.namespace import Location, Namespace
from headrace.store.protocol import ObjectInfo, Store

_log = logging.getLogger("headrace.mount")
Phase = Literal["copy", "delete", "undo"]


@dataclass(slots=True, eq=False)
class Rename:
    """A rename under way, or waiting to be tried again. Times are seconds on the monotonic clock."""

    number: int
    old: str
    new: str
    folder: bool
    phase: Phase = "copy"
    running: bool = False
    error: HeadraceError | None = None
    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    tried_at: float = 0.0
    retry_at: float = 0.0

    def record(self) -> dict[str, Any]:
        """As the journal keeps it."""
        return {"kind": "move", "old": self.old, "new": self.new, "folder": self.folder, "phase": self.phase}

    def blocks(self, path: str) -> bool:
        """Whether nothing may be written at `path` before the rename is done.

        The new name too, to the end: by what is there the rename knows which of the old objects were copied.
        """
        return overlap(path, self.old) or overlap(path, self.new)


class Renames:
    """All renames of a mount. Any thread."""

    def __init__(
        self,
        ns: Namespace,
        journal: RecordJournal,
        tree: StagedTree,
        backoff: Callable[[int], float],
        moved: Callable[[str, str], None],
        wake: Callable[[], None],
    ) -> None:
        """`moved`: what was staged at the first path belongs at the second from now on; the tree's lock is held.
        `wake`: there is something to be tried again (`waiting`).
        """
        self._moved = moved
        self._wake = wake
        self._ns = ns
        self._journal = journal
        self._tree = tree
        self._backoff = backoff
        self._changed = threading.Condition()
        self._active: dict[int, Rename] = {}
        self.late: Callable[[Iterable[str]], object] = _nobody
        self._writing: dict[object, Sequence[str]] = {}

    @contextmanager
    def steady(self, *paths: str, wait: bool = True) -> Generator[None]:
        """Inside, no rename touches `paths`. A rename that does is waited for first, or finished if it had failed.

        Raises:
            HeadraceError: it fails again. BlockingIOError: not `wait`, and there is one.
        """
        token = object()
        while not self._enter(token, paths, wait=wait):
            pass
        try:
            yield
        finally:
            with self._changed:
                del self._writing[token]
                if self._active:
                    self._changed.notify_all()

    def _enter(self, token: object, paths: Sequence[str], *, wait: bool) -> bool:
        with self._changed:
            rename = self._blocking(paths)
            if rename is None:
                self._writing[token] = paths
                return True
            if not wait:
                raise BlockingIOError(f"{rename.old} is being renamed")
            if rename.running:
                self._changed.wait(1.0)
                return False
            rename.running = True
        self._resume(rename)
        return False

    def _blocking(self, paths: Sequence[str]) -> Rename | None:
        if not self._active:
            return None
        return next((rename for rename in self._active.values() if any(map(rename.blocks, paths))), None)

    @contextmanager
    def _alone(self, rename: Rename) -> Generator[None]:
        """`rename` is under way inside, and nothing else below its two names is."""
        paths = (rename.old, rename.new)
        while True:
            with self._changed:
                other = self._blocking(paths)
                if other is None:
                    rename.running = True
                    self._active[rename.number] = rename
                    break
                if other.running:
                    self._changed.wait(1.0)
                    continue
                other.running = True
            self._resume(other)
        with self._changed:
            while any(overlap(path, each) for busy in self._writing.values() for path in busy for each in paths):
                self._changed.wait(1.0)
        try:
            yield
        finally:
            with self._changed:
                rename.running = False
                self._changed.notify_all()

    # renaming

    def rename_file(self, number: int, old: Location, new: Location) -> None:
        """Move one object.

        Raises:
            NotFoundError, DeniedError, TryAgainError: nothing has changed (or the new name holds a copy, where an
            answer was lost).
        """
        rename = Rename(number, old.path, new.path, folder=False)
        with self._alone(rename):
            try:
                self._journal.set(number, rename.record())
                copy_object(old.store, ObjectInfo(old.key, -1), new.key)
            except BaseException:
                self._end(rename)
                raise
            self._switch(rename)
            self._try(rename, lambda: old.store.delete([old.key]))

    def rename_folder(self, number: int, old: Location, new: Location) -> None:
        """Move every object below `old`. Raises as `rename_file`; OSError ENOTEMPTY where something is at `new`."""
        rename = Rename(number, old.path, new.path, folder=True)
        prefix, target = f"{old.key}/", f"{new.key}/"
        with self._alone(rename):
            try:
                if any(info.key != target for page in new.store.list(target) for info in page):
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new.path)
            except BaseException:
                self._end(rename)
                raise
            copied = CopiedVersions()
            begun = False
            try:
                self._journal.set(number, rename.record(), sync=True)
                self._tree.hide(new.path)
                for page in old.store.list(prefix):
                    begun = True
                    copy_objects(old.store, page, prefix, target)
                    copied.add(page)
            except BaseException:
                self._undo(rename, old, begun=begun)
                raise
            self._switch(rename)
            self._try(rename, lambda: delete_copied(old, old.store.list(prefix), copied.of))

    def _switch(self, rename: Rename) -> None:
        rename.phase = "delete"
        with suppress(HeadraceError, OSError):  # where the journal is full: after a crash it is copied once more
            self._journal.set(rename.number, rename.record(), sync=rename.folder)
        with self._tree.lock:
            self._tree.hide(rename.old)
            self._tree.show(rename.new)
            self._moved(rename.old, rename.new)
        with self._changed:
            self._changed.notify_all()
        self._ns.forget(rename.new)

    def _try(self, rename: Rename, work: Callable[[], object]) -> None:
        """The new name shows: from here on it is done, and what fails is left for later."""
        try:
            work()
        except HeadraceError as error:
            self._failed(rename, error)
        else:
            self._end(rename)

    def _undo(self, rename: Rename, old: Location, *, begun: bool) -> None:
        rename.phase = "undo"
        if not begun:
            self._end(rename)
            return
        with suppress(HeadraceError, OSError):
            self._journal.set(rename.number, rename.record())
        try:
            self._run_undo(rename, old)
        except HeadraceError as error:
            self._failed(rename, error)
        else:
            self._end(rename, late=True)

    def _end(self, rename: Rename, *, late: bool = False) -> None:
        with suppress(HeadraceError, OSError):
            self._journal.drop(rename.number)
        if late:
            self.late((rename.old, rename.new))
        for path in (rename.old, rename.new):
            self._tree.show(path)
        if rename.folder:
            self._ns.refresh()
        else:
            self._ns.forget(rename.old)
            self._ns.forget(rename.new)
        with self._changed:
            self._active.pop(rename.number, None)
            self._changed.notify_all()

    def _failed(self, rename: Rename, error: HeadraceError) -> None:
        with self._changed:
            rename.error = error
            rename.tries += 1
            rename.tried_at = time.monotonic()
            rename.retry_at = rename.tried_at + self._backoff(rename.tries)
            rename.running = False
            self._changed.notify_all()
        self._wake()

    # later, or after a crash: what is at the new name shows how far it came

    def restore(self, number: int, record: dict[str, Any]) -> None:
        """A rename that a crash left in the journal."""
        rename = Rename(number, record["old"], record["new"], record["folder"], record["phase"])
        self._active[number] = rename
        if rename.phase == "delete":
            self._tree.hide(rename.old)
        elif rename.folder:
            self._tree.hide(rename.new)

    def waiting(self) -> list[Rename]:
        """Renames that are not done, and that no thread works on."""
        if not self._active:
            return []
        with self._changed:
            return [rename for rename in self._active.values() if not rename.running]

    @property
    def active(self) -> list[Rename]:
        """All renames that are not done."""
        with self._changed:
            return list(self._active.values())

    def retry(self, rename: Rename) -> None:
        """Try again; a failure is kept in `rename`."""
        with self._changed:
            if rename.running or rename.number not in self._active:
                return
            rename.running = True
        with suppress(HeadraceError):
            self._resume(rename)

    def _resume(self, rename: Rename) -> None:
        """`rename.running` has been set by the caller."""
        try:
            old, new = self._ns.resolve(rename.old), self._ns.resolve(rename.new)
            if rename.phase == "copy":
                self._copy_on(rename, old, new)
            if rename.phase == "undo":
                self._run_undo(rename, old)
            else:
                delete_copied(old, self._sources(rename, old), lambda page: self._copied(rename, old.store, page))
        except Exception as error:
            known = error if isinstance(error, HeadraceError) else InternalError(repr(error), path=rename.old)
            self._failed(rename, known)
            raise
        self._end(rename, late=True)

    def _copy_on(self, rename: Rename, old: Location, new: Location) -> None:
        """Go on with copying that a crash broke off; undo the rename where a name can never be copied."""
        try:
            self._run_copy(rename, old, new)
        except NameRefusedError as error:
            _log.warning("%s: not renamed to %s: %s", rename.old, rename.new, error)
            rename.phase = "undo"
        else:
            self._switch(rename)

    def _copied(self, rename: Rename, store: Store, page: Sequence[ObjectInfo]) -> list[ObjectInfo]:
        """Those of `page` that are at the new name already. One request each."""
        found = in_parallel(lambda info: is_copy(store, info, self._there(rename, info)), page)
        return [info for info, yes in zip(page, found, strict=True) if yes]

    def _sources(self, rename: Rename, old: Location) -> Iterable[Sequence[ObjectInfo]]:
        if rename.folder:
            return old.store.list(f"{old.key}/")
        try:
            return [[old.store.head(old.key)]]
        except NotFoundError:
            return []

    def _there(self, rename: Rename, info: ObjectInfo) -> str:
        old, new = self._ns.resolve(rename.old), self._ns.resolve(rename.new)
        return new.key + info.key[len(old.key) :]

    def _run_copy(self, rename: Rename, old: Location, new: Location) -> None:
        for page in self._sources(rename, old):
            done = set(self._copied(rename, old.store, page))
            copy_objects(old.store, [info for info in page if info not in done], old.key, new.key)

    def _run_undo(self, rename: Rename, old: Location) -> None:
        for page in self._sources(rename, old):
            delete_keys(old.store, [self._there(rename, info) for info in self._copied(rename, old.store, page)])


def _nobody(_: Iterable[str]) -> None:
    """The `late` of a rename that nobody watches."""
