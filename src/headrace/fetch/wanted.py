"""One read that goes through the cache."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.cache import EntryLabel
from headrace.fetch.operation import Operation
from headrace.fetch.read import Read
from headrace.store.protocol import Blob, ObjectInfo


@dataclass(frozen=True, slots=True)
class Wanted:
    """An operation with the name of its cache entry. Its read has a version and a size."""

    operation: Operation
    name: str

    @property
    def read(self) -> Read:
        return self.operation.read

    @property
    def span(self) -> tuple[int, int]:
        """First byte, and the byte after the last."""
        read = self.operation.read
        assert read.size is not None
        return read.start, read.size if read.stop is None else min(read.stop, read.size)

    def label(self) -> EntryLabel:
        """What the entry says of itself."""
        read = self.read
        assert read.size is not None
        assert read.version is not None
        return EntryLabel(read.store.identity, read.key, read.version, read.size)

    def hit(self, data: memoryview, more: tuple[memoryview, ...] = ()) -> None:
        """These are the bytes."""
        read = self.read
        self.operation.done(Blob(data, ObjectInfo(read.key, read.size or 0, read.version), more))
