"""A store that holds exactly what was pinned: what a mount of an input shows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from headrace.base.errors import ChangedError, NotFoundError, ReadOnlyError
from headrace.catalog import Objects
from headrace.store.protocol import Assembly, Blob, Buffer, Described, Folder, ObjectInfo, Store, Wire
from headrace.store.wrappers import ForwardingStore

_PAGE = 4096  # objects told of at a time
_AFTER: Final = chr(ord("/") + 1)


class PinnedStore(ForwardingStore):
    """`inner`, but names, sizes and versions come from `objects`, and nothing can be written. Any thread.

    No listing or HEAD reaches the store. Bytes do: whoever reads compares their version with the one told here.

    Args:
        prefix: of the keys in `inner` (empty, or ending in ``/``); `objects` has them without it.
        objects: what is pinned, ascending by key in UTF-8 byte order.
        mtimes: microseconds since the epoch, one for each object, or one for all.
    """

    def __init__(self, inner: Store, prefix: str, objects: Objects, mtimes: npt.NDArray[np.int64] | int) -> None:
        super().__init__(inner)
        self._prefix, self._objects, self._mtimes = prefix, objects, mtimes

    def wire(self) -> Wire | None:
        return self.inner.wire()

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        wanted = self.head(key).version
        blob = self.inner.get(key, start, stop)
        if blob.info.version != wanted or if_match not in (None, wanted):
            raise ChangedError("has changed since it was pinned", path=f"{self.url}/{key}")
        return blob

    def head(self, key: str) -> ObjectInfo:
        row = self._at(key)
        found = self._read(row, row + 1) if row < len(self._objects) else []
        if not found or found[0].key != key:
            raise NotFoundError("is not among what was pinned", path=f"{self.url}/{key}")
        return found[0]

    def describe(self, key: str) -> Described:
        return Described(self.head(key), {})

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        row = self._at(prefix) if start_after is None else max(self._at(prefix), self._at(start_after + "\0"))
        while row < len(self._objects):
            page = self._read(row, row + _PAGE)
            inside = [info for info in page if info.key.startswith(prefix)]
            if inside:
                yield inside
            if len(inside) < len(page):
                return
            row += len(page)

    def list_folder(self, prefix: str = "") -> Folder:
        pages = list(self.list_pages(prefix))
        folders = chain.from_iterable(page.folders for page in pages)
        return Folder(tuple(folders), tuple(chain.from_iterable(page.objects for page in pages)))

    def list_pages(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Folder]:
        if start_after is not None:
            yield from super().list_pages(prefix, start_after=start_after)
            return
        row, cut = self._at(prefix), len(prefix)
        while row < len(self._objects):
            folders: list[str] = []
            objects: list[ObjectInfo] = []
            page, index = self._read(row, row + _PAGE), 0
            while index < len(page) and page[index].key.startswith(prefix):
                slash = page[index].key.find("/", cut)
                if slash < 0:
                    objects.append(page[index])
                    index += 1
                    continue
                folders.append(page[index].key[: slash + 1])
                after = page[index].key[:slash] + _AFTER  # what follows all that lies in that folder
                index = bisect_left(page, after, lo=index, key=lambda info: info.key)
                if index == len(page):
                    index = self._at(after) - row
            yield Folder(tuple(folders), tuple(objects))
            if index < len(page):
                return
            row += index

    def put(
        self,
        key: str,
        data: Buffer,  # noqa: ARG002
        *,
        if_match: str | None = None,  # noqa: ARG002
        create: bool = False,  # noqa: ARG002
        metadata: Mapping[str, str] | None = None,  # noqa: ARG002
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> ObjectInfo:
        self._refuse(key)

    def copy(
        self,
        source: str,  # noqa: ARG002
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,  # noqa: ARG002
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> None:
        self._refuse(target)

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,  # noqa: ARG002
        create: bool = False,  # noqa: ARG002
        metadata: Mapping[str, str] | None = None,  # noqa: ARG002
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> Assembly:
        self._refuse(key)

    def delete(self, keys: Sequence[str]) -> None:
        self._refuse(next(iter(keys), ""))

    def _refuse(self, key: str) -> NoReturn:
        raise ReadOnlyError("inputs are read-only", path=f"{self.url}/{key}")

    def _at(self, key: str) -> int:
        """The first row whose key is not before `key`."""
        low, high = 0, len(self._objects)
        if not key.startswith(self._prefix):
            return 0 if key < self._prefix else high
        wanted = key[len(self._prefix) :]
        while low < high:
            middle = (low + high) // 2
            if self._objects.read(np.array([middle]))[0][0] < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def _read(self, start: int, stop: int) -> Sequence[ObjectInfo]:
        rows = np.arange(start, min(stop, len(self._objects)))
        mtimes = self._mtimes
        times = [mtimes] * len(rows) if isinstance(mtimes, int) else mtimes[rows].tolist()
        found = zip(self._objects.read(rows), times, strict=True)
        return [info_of(self._prefix + key, size, version or "", time) for (key, _, size, version), time in found]


def info_of(key: str, size: int, version: str, mtime_us: int) -> ObjectInfo:
    """An object as pinned: where the store had no ETag, the version is made of size and time."""
    head, dash, tail = version.partition("-")
    if dash and head == str(size) and tail.isdigit():
        return ObjectInfo(key, size, None, int(tail))
    return ObjectInfo(key, size, version, mtime_us)
