"""Files in a tar that somebody made, read forward, by Python's `tarfile`, which is laxer than it may be here.

`tarfile` takes a header that is cut short or damaged for the end of the archive: then samples would be missing in
silence. So every header is looked at once more, and the end must be marked by a block of zeros (POSIX.1-2017, pax).
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, Protocol, Self

from headrace.base.errors import CorruptError, HeadraceError
from headrace.pack.tar import BLOCK

SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_PIECE = 1 << 20  # bytes read at a time
_MOST_EXTENSION = 1 << 20
"""Bytes of one long name or pax header; real ones have some hundreds."""
_EXTENSIONS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


class Readable(Protocol):
    """What a member's bytes are read from."""

    def read(self, size: int, /) -> bytes: ...


class File(NamedTuple):
    """A member that is a file. Its pieces must be taken before the next member is."""

    name: str
    size: int
    content: Readable

    def pieces(self) -> Iterator[bytes]:
        """The bytes. Raises CorruptError, and what reading the archive raises."""
        left = self.size
        while left:
            piece = self.content.read(min(left, _PIECE))
            left -= len(piece)
            yield piece


class Unpackable(NamedTuple):
    """A member that is no file."""

    name: str


def files_of(file: Any, shard: str) -> Iterator[File | Unpackable]:
    """The members of the tar in `file` (readable, from its start; any compression `tarfile` knows); no folders.

    Raises:
        CorruptError: what is there is no tar, is cut short or damaged, or a name is absolute or leads out of the
            folder; says after how many members. What reading `file` raises.
    """
    count = 0
    archive = _guarded(shard, count, lambda: _open(file))
    with archive:
        while (info := _guarded(shard, count, archive.next)) is not None:
            count += 1
            archive.members = []  # type: ignore[attr-defined]
            if info.isdir():
                continue
            name = safe(info.name, shard)
            if not info.isreg() or info.issparse():
                yield Unpackable(name)
                continue
            content = archive.extractfile(info)
            assert content is not None
            yield File(name, info.size, _Content(content, shard, name, count))


class _Content:
    """A member's bytes, whose errors are ours."""

    def __init__(self, content: IO[bytes], shard: str, name: str, count: int) -> None:
        self._content, self._shard, self._name, self._count = content, shard, name, count

    def read(self, size: int) -> bytes:
        piece = _guarded(self._shard, self._count, lambda: self._content.read(size))
        if not piece:
            raise _corrupt(self._shard, self._count, f"{self._name[:200]!r} is cut short")
        return piece


class _Strict(tarfile.TarInfo):
    """A header that says so when it is none."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) < BLOCK:
            raise tarfile.ReadError("ends without an end mark (a block of zeros)")
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not any(buf):
                raise
            raise tarfile.ReadError(str(error)) from error
        if info.size < 0 or (info.type in _EXTENSIONS and info.size > _MOST_EXTENSION):
            raise tarfile.ReadError(f"a header of {info.size} bytes")
        return info


def _open(file: Any) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r|*", bufsize=_PIECE, tarinfo=_Strict, errors="strict", encoding="utf-8")


def _guarded(shard: str, count: int, call: Any) -> Any:
    """`call()`, with everything that a hostile archive makes `tarfile` and the decompressors raise in one error."""
    try:
        return call()
    except HeadraceError:
        raise
    except Exception as error:
        raise _corrupt(shard, count, str(error) or type(error).__name__) from error


def _corrupt(shard: str, count: int, reason: str) -> CorruptError:
    return CorruptError(
        f"after {count} members: {reason}", path=shard, hint="is it a tar, and whole? Copy it again, or make it again"
    )


def safe(name: str, shard: str) -> str:
    """The name as part of a key. Raises CorruptError."""
    text = name
    while text.startswith("./"):
        text = text[2:]
    if not text or "\0" in text or any(part in ("", ".", "..") for part in text.split("/")):
        raise CorruptError(
            f"the name {name[:200]!r} is absolute, or leads out of the folder",
            path=shard,
            hint="make the shard again with relative names",
        )
    return text
