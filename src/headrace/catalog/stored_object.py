"""Objects that are read where somebody looks, in the place of their bytes: `Dataset.open(lazy=)`."""

from __future__ import annotations

from typing import Any, Final

from headrace.base.errors import UnsupportedError
from headrace.catalog.sample_index import Part
from headrace.namespace import File, open_version
from headrace.namespace.home import url_of
from headrace.store.protocol import ObjectInfo, Store

_TAKEN: Final = 8 << 20
"""Bytes that somebody may have read of one at a time, roughly, for the loader's window of bytes."""


class StoredObject:
    """One object of a store, not read yet. Any thread; each handle that `open` gives is for one thread at a time.

    Stays in its process: what becomes of it can be sent, it cannot.
    """

    __slots__ = ("_pinned", "_store", "key", "size", "version")

    def __init__(self, store: Store, part: Part, *, pinned: bool) -> None:
        self._store, self._pinned = store, pinned
        self.key = part.key
        self.size: int | None = part.size if part.size >= 0 else None
        """Bytes; None where nobody listed it."""
        self.version = part.version
        """Its ETag, or size and time where the store has none; None where nobody listed it."""

    @property
    def url(self) -> str:
        return url_of(self._store, self.key)

    @property
    def nbytes(self) -> int:
        """Bytes that it may come to hold while it is read: what the loader counts."""
        return _TAKEN if self.size is None else min(self.size, _TAKEN)

    def open(self) -> File:
        """A seekable file over the version that was listed. What is read of it comes by ranges, ahead of who reads on,
        and through the node's cache. Close it.

        Raises, also when it is read:
            ChangedError: of a snapshot, it is no longer the version recorded. NotFoundError, DeniedError,
            TryAgainError.
        """
        listed = None
        if self.size is not None and self.version is not None:
            listed = ObjectInfo(self.key, self.size, self.version)
        return open_version(self._store, self.key, listed, pinned=self._pinned)

    def __repr__(self) -> str:
        return f"<StoredObject {self.url}, {'size unknown' if self.size is None else f'{self.size:,} bytes'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedError(
            "an object that is not read yet stays in its process", path=self.url,
            hint="decode it on threads, before batches or samples go elsewhere; or leave out lazy=",
        )  # fmt: skip
