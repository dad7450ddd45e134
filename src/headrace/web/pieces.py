"""Parts of samples as pages need them: their names, their first bytes, all of them, or a stretch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headrace.base.errors import ChangedError, HeadraceError, NotFoundError, UnsupportedError
from headrace.base.threads import Threads
from headrace.catalog import Part
from headrace.fetch import Fetcher, Read
from headrace.loader import PICTURE_SIDE, PartShown, bytes_needed, shown_part
from headrace.store.protocol import Blob, Store

_HEADS: Final = 16
"""Objects that are asked about at once."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of an object version. `where`: for messages; `name`: of the part; `whole`: the read of all of them."""

    where: str
    name: str
    whole: Read
    fetcher: Fetcher

    @staticmethod
    def of(store: Store, part: Part, where: str, fetcher: Fetcher) -> Stored:
        """Of what an index of samples says of a part."""
        size = part.size if part.size >= 0 else None
        return Stored(where, part.name, Read(store, part.key, size, part.version, part.start, part.stop), fetcher)

    @property
    def id(self) -> str:
        """Names what can be made of it: another one for other bytes."""
        read = self.whole
        told = (read.store.identity, read.key, read.version, read.size, read.start, read.stop, self.name, PICTURE_SIDE)
        return hashlib.sha256("\0".join(map(str, told)).encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @property
    def size(self) -> int | None:
        """Bytes."""
        return self.whole.length(-1) if self.whole.size is not None or self.whole.stop is not None else None

    def load(self) -> memoryview:
        """All of it. Raises as the store does."""
        return self.fetcher.get(self.whole).data

    def read(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop), cut off at the end. Raises as the store does."""
        return bytes(self.fetcher.get(self.stretch(start, stop)).data)

    def stretch(self, start: int, stop: int) -> Read:
        """The read of some of it."""
        first = self.whole.start
        end = first + stop if self.whole.stop is None else min(first + stop, self.whole.stop)
        return self.whole._replace(start=first + start, stop=end)


@dataclass(frozen=True, slots=True)
class Valued:
    """A value of a record or a table's row, which is there already. `source`: names it among all of its kind."""

    where: str
    name: str
    source: str
    value: Any

    @property
    def id(self) -> str:
        """As `Stored.id`."""
        return hashlib.sha256(f"{self.source}\0{self.where}\0{PICTURE_SIDE}".encode()).hexdigest()[:32]

    @property
    def size(self) -> int | None:
        """Bytes; None: it has none."""
        return len(self.value) if isinstance(self.value, (bytes, bytearray, memoryview)) else None

    def load(self) -> Any:
        """Itself."""
        return self.value

    def read(self, start: int, stop: int) -> bytes:
        """As `Stored.read`. Raises UnsupportedError: it has no bytes."""
        if self.size is None:
            raise UnsupportedError("is a value, no bytes", path=self.where)
        return bytes(self.value[start:stop])


Piece: TypeAlias = Stored | Valued
"""One part of a sample."""


def looked_at(pieces: Sequence[Stored]) -> list[PartShown]:
    """What is said of each, from its first bytes, read side by side. What cannot be read says why."""
    wanted = [(place, bytes_needed(piece.name, piece.size or 0)) for place, piece in enumerate(pieces)]
    asked = [(place, count) for place, count in wanted if count]
    reads = [pieces[place].stretch(0, count) for place, count in asked]
    results = pieces[0].fetcher.start(reads, here=True).wait() if reads else []
    found = dict(zip((place for place, _ in asked), results, strict=True))
    return [_shown(piece, found.get(place)) for place, piece in enumerate(pieces)]


def readable(pieces: Sequence[Stored]) -> list[bool]:
    """Whether their object versions can still be had: from the node's cache, or because the store holds no other one
    yet. One HEAD for each key that the cache does not hold.

    Raises what the store raises but NotFoundError.
    """
    held = [_held(piece) for piece in pieces]
    asked = {_object(piece): piece for piece, has in zip(pieces, held, strict=True) if not has}
    with Threads(_HEADS, thread_name_prefix="headrace-web") as pool:
        versions = dict(zip(asked, pool.map(_version_now, asked.values()), strict=True))
    return [has or versions[_object(one)] == one.whole.version for one, has in zip(pieces, held, strict=True)]


def _object(piece: Stored) -> tuple[str, str]:
    return piece.whole.store.identity, piece.whole.key


def _held(piece: Stored) -> bool:
    fd = piece.fetcher.file(piece.whole)
    if fd is not None:
        os.close(fd)
    return fd is not None


def _version_now(piece: Stored) -> str | None:
    try:
        return piece.fetcher.head(piece.whole.store, piece.whole.key).version
    except NotFoundError:
        return None


def _shown(piece: Stored, found: Blob | HeadraceError | None) -> PartShown:
    if isinstance(found, ChangedError | NotFoundError):
        return PartShown(piece.name, "gone", piece.size, "the store no longer gives this version")
    if isinstance(found, HeadraceError):
        return PartShown(piece.name, "gone", piece.size, f"cannot be read: {found.reason}")
    return shown_part(piece.name, memoryview(b"") if found is None else found.data, piece.size)


__all__ = ["Piece", "Stored", "Valued", "looked_at", "readable"]
