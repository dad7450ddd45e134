"""Renames of what the mount shows: staged files, objects, folders with both, and folders of a store on this disk."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, NotFoundError
from headrace.mount.write_back.staged_file import StagedFile

if TYPE_CHECKING:
    from headrace.mount.write_back.publish_queue import PublishQueue
    from headrace.namespace import Location


class StagedRenames:
    """What `Staging.rename` does once it has refused what cannot be. Any thread."""

    def __init__(self, queue: PublishQueue) -> None:
        self._queue = queue
        self._tree = queue.tree
        self._renames = queue.renames

    def rename_file(self, old: Location, new: Location) -> None:
        """Rename a file: what is staged of it, the object, or both."""
        node = self._staged(old.path)
        if node is not None and self._rename_staged(node, old.path, new.path):
            return
        try:
            self._renames.rename_file(next(self._queue.numbers), old, new)
        except NotFoundError:
            if node is None or not self._rename_staged(node, old.path, new.path, absent=True):
                raise

    def rename_folder(self, old: Location, new: Location) -> None:
        """Rename a folder with all below it. Raises OSError ENOTEMPTY."""
        if self._tree.below(new.path) or old.path.startswith(new.path + "/"):
            raise refusal(errno.ENOTEMPTY, new.path)
        for path, node in self._tree.below(old.path):
            if isinstance(node, StagedFile):
                self._queue.nameable(new.path + path[len(old.path) :])
        root = old.store.local_root
        if root is None:
            self._renames.rename_folder(next(self._queue.numbers), old, new)
        else:
            self._rename_on_disk(root, old, new)
        with self._tree.lock:
            self._queue.keep_folder(new.path)

    def _staged(self, path: str) -> StagedFile | None:
        node = self._tree.get(path)
        return node if isinstance(node, StagedFile) else None

    def _rename_staged(self, file: StagedFile, old: str, new: str, *, absent: bool = False) -> bool:
        """A file that is no object yet is published at its new name. False: there is, or may be, an object already.

        `absent`: the caller knows that there is none.
        """
        with self._renames.steady(old, new), ExitStack() as locks:
            replaced = self._staged(new)
            for each in sorted((one for one in (file, replaced) if one is not None), key=lambda one: one.number):
                locks.enter_context(each.lock)
            if file.gone or file.path != old or not (absent or (file.fresh and file.trouble is None)):
                return False
            with self._tree.lock:
                self._queue.moved(old, new)
        if file.handles == 0:
            self._queue.retire(file)
        with suppress(HeadraceError):  # pending, then: what was at the new name is still in the bucket
            self._queue.publish(file, sync=False)
        return True

    def _rename_on_disk(self, root: str, old: Location, new: Location) -> None:
        """The file system does it in one step, empty folders and all."""
        with self._renames.steady(old.path, new.path), ExitStack() as locks:
            for file in sorted((one for one in self._tree.files() if one.path.startswith(old.path + "/")), key=_number):
                locks.enter_context(file.lock)
            target = os.path.join(root, new.key)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with self._tree.lock:
                try:
                    os.rename(os.path.join(root, old.key), target)
                except FileNotFoundError:  # a folder of this mount alone
                    if _holds_anything(target):
                        raise refusal(errno.ENOTEMPTY, new.path) from None
                self._queue.moved(old.path, new.path)
        self._queue.ns.refresh()


def _number(file: StagedFile) -> int:
    return file.number


def _holds_anything(folder: str) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def refusal(code: int, path: str) -> OSError:
    """An error that only the kernel has a word for."""
    return OSError(code, os.strerror(code), path)
