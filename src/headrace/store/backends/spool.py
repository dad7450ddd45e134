"""Large objects for stores that take them whole: the parts gather in an unnamed temporary file, which is then sent.

Costs the object's size on the disk of temporary files, for as long as it takes; nothing of it outlives the process.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable
from typing import BinaryIO

from headrace.base.errors import NotFoundError
from headrace.base.places import temporary_folder
from headrace.store.backends.errors import from_os
from headrace.store.backends.parts import Parts, UnderWay, pwrite
from headrace.store.protocol import Assembly, Blob, Buffer, ObjectInfo, Store

_STEP = 16 << 20  # bytes copied at a time, in memory


class SpoolAssembly(Assembly):
    """See `headrace.store.protocol.Assembly`.

    Args:
        key: the object's key.
        path: its URL, for errors.
        get: reads a part of another object, as `Store.get`: (key, start, stop, if_match).
        publish: writes the whole object: (file, at its start; its size).
    """

    most = 1 << 30
    largest = 1 << 62

    def __init__(
        self,
        key: str,
        path: str,
        get: Callable[[str, int, int, str | None], Blob],
        publish: Callable[[BinaryIO, int], ObjectInfo],
    ) -> None:
        self.key = key
        self._path = path
        self._get = get
        self._publish = publish
        self._parts = Parts(path)
        try:
            self._file = tempfile.TemporaryFile(prefix="headrace-", dir=temporary_folder())  # noqa: SIM115 - closed by complete or abort
        except OSError as error:
            raise from_os(path, error) from error
        self._under_way = UnderWay(self._file.close)

    @staticmethod
    def before_put(store: Store, key: str, put: Callable[[Buffer], ObjectInfo]) -> SpoolAssembly:
        """Of a store that has nothing better than `put`, which is given the whole object, mapped."""

        def publish(file: BinaryIO, size: int) -> ObjectInfo:
            return put(memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)) if size else b"")

        def get(source: str, start: int, stop: int, if_match: str | None) -> Blob:
            return store.get(source, start, stop, if_match=if_match)

        return SpoolAssembly(key, f"{store.url}/{key}", get, publish)

    def part(self, number: int, at: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        self._write(at, view)
        self._parts.add(number, at, len(view))

    def copy_part(self, number: int, at: int, source: str, start: int, stop: int, *, if_match: str | None) -> None:
        for begin in range(start, stop, _STEP):
            blob = self._get(source, begin, min(stop, begin + _STEP), if_match)
            self._write(at + begin - start, blob.data)
        self._parts.add(number, at, stop - start)

    def _write(self, at: int, view: memoryview) -> None:
        if not self._under_way.enter():
            raise NotFoundError("the upload has been thrown away", path=self._path)
        try:
            pwrite(self._file.fileno(), view, at)
        except OSError as error:
            raise from_os(self._path, error) from error
        finally:
            self._under_way.leave()

    def complete(self) -> ObjectInfo:
        size = self._parts.size()
        if not self._under_way.enter():
            raise NotFoundError("the upload has been thrown away", path=self._path)
        try:
            self._file.truncate(size)  # a part given twice may have been longer at first
            self._file.seek(0)
            return self._publish(self._file, size)
        except OSError as error:
            raise from_os(self._path, error) from error
        finally:
            self._under_way.leave()
            self.abort()

    def abort(self) -> None:
        self._under_way.end()
