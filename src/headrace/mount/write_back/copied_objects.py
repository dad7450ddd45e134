"""Copying and deleting the objects of a rename."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import xxhash

from headrace.base.errors import NameRefusedError, NotFoundError
from headrace.store.protocol import ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.namespace import Location

_AT_ONCE: Final = 16
"""Objects copied or deleted side by side: the store does the work."""
Result = TypeVar("Result")


class CopiedVersions:
    """Which object versions have been copied, 8 bytes each: a rename of a million objects remembers 8 MB."""

    def __init__(self) -> None:
        self._digests = array("Q")
        self._sorted = np.empty(0, np.uint64)

    def add(self, page: Sequence[ObjectInfo]) -> None:
        """All of `page` have been."""
        self._digests.extend(map(_digest, page))

    def of(self, page: Sequence[ObjectInfo]) -> list[ObjectInfo]:
        """Those of `page` among them. Call it once all have been added."""
        if len(self._sorted) != len(self._digests):
            self._sorted = np.sort(np.array(self._digests, dtype=np.uint64))
        found = np.isin(np.fromiter(map(_digest, page), np.uint64, len(page)), self._sorted)
        return [info for info, yes in zip(page, found, strict=True) if yes]


def copy_objects(store: Store, page: Sequence[ObjectInfo], old: str, new: str) -> None:
    """Copy objects whose keys begin with `old` to keys that begin with `new`; refused before any of them is copied.

    Raises:
        NameRefusedError, NameTooLongError: a new key. HeadraceError: as the store does.
    """
    for info in page:
        store.check_key(new + info.key[len(old) :])
    in_parallel(lambda info: copy_object(store, info, new + info.key[len(old) :]), page)


def copy_object(store: Store, info: ObjectInfo, target: str) -> None:
    """A folder's marker is written, not copied: some servers know it only as something they made themselves."""
    if info.key.endswith("/") and info.size == 0:
        store.put(target, b"", metadata=store.describe(info.key).metadata or None)
    else:
        store.copy(info.key, target)


def delete_copied(
    old: Location, pages: Iterable[Sequence[ObjectInfo]], copied: Callable[[Sequence[ObjectInfo]], list[ObjectInfo]]
) -> None:
    """Delete those objects that `copied` picks. What was written at the old names since they were copied stays."""
    folders: set[str] = set()
    for page in pages:
        keys = [info.key for info in copied(page)]
        delete_keys(old.store, keys)
        for key in keys:
            end = key.rfind("/")
            while end >= len(old.key) and key[: end + 1] not in folders:
                folders.add(key[: end + 1])
                end = key.rfind("/", 0, end)
    if old.store.url.startswith("s3://") and folders:  # some servers go on listing emptied folders
        delete_keys(old.store, sorted(folders, key=len, reverse=True))


def is_copy(store: Store, info: ObjectInfo, target: str) -> bool:
    """Whether `target` holds what `info` is: the same ETag, or as large and, to the second, not written before it."""
    try:
        store.check_key(target)
        there = store.head(target)
    except (NotFoundError, NameRefusedError):
        return False
    if info.etag is not None and there.etag == info.etag:
        return True
    return there.size == info.size and there.mtime_us // 1_000_000 >= info.mtime_us // 1_000_000


def in_parallel(work: Callable[[ObjectInfo], Result], page: Sequence[ObjectInfo]) -> list[Result]:
    """The results of `work`, in the order of `page`. Raises the first error; the others are cancelled."""
    if len(page) <= 1:
        return [work(info) for info in page]
    with ThreadPoolExecutor(min(_AT_ONCE, len(page)), "headrace-rename") as pool:
        jobs = [pool.submit(work, info) for info in page]
        try:
            return [job.result() for job in jobs]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def delete_keys(store: Store, keys: Sequence[str]) -> None:
    """Delete, if there is anything to delete."""
    if keys:
        store.delete(keys)


def _digest(info: ObjectInfo) -> int:
    return xxhash.xxh3_64_intdigest(f"{info.key}\0{info.version}".encode("utf-8", "surrogatepass"))
