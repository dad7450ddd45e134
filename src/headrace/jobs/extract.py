"""Laying out the archive of a tree (archive.py has the format). An archive is somebody's word, and is not believed."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from dataclasses import dataclass
from typing import Any, Final

import pyarrow

from headrace.base.errors import CorruptError
from headrace.jobs.archive import PIECE, TreeDigest, Written
from headrace.jobs.tree import shown

_HEADERS: Final = 32 << 10
"""Bytes of tar that a member takes beside its content, at most: names and targets are 4,096 bytes long, at most."""
_NAMES: Final[Any] = {"encoding": "utf-8", "errors": "surrogateescape"}
_DAMAGED = "is it damaged? Copy it again"

pa: Any = pyarrow


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an archive may hold, as its record says."""

    files: int
    bytes: int
    outside: int


def read(path: str, folder: str, bounds: Bounds) -> Written:
    """Write the members of an archive below an empty folder. Never writes elsewhere, whatever the archive says.

    Raises:
        CorruptError: it is damaged, cut short, or none of ours: an absolute name, ``..``, a name below a link, a
        device, more than `bounds` say. OSError: the folder.
    """
    into = _Into(folder, bounds, path)
    try:
        with pa.OSFile(path, "rb") as raw, pa.CompressedInputStream(raw, "zstd") as stream:
            bounded: Any = _Bounded(stream, bounds, path)
            with tarfile.open(fileobj=bounded, mode="r|", bufsize=256 << 10, **_NAMES) as tar:
                kept: Any = tar
                for member in tar:
                    into.add(tar, member)
                    kept.members = []  # it keeps them all, for those who seek
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise CorruptError(f"is no archive of a run's code: {error}", path=path, hint=_DAMAGED) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise CorruptError("its zstd stream is damaged or cut short", path=path, hint=_DAMAGED) from error
    return into.digest.done()


class _Bounded:
    """A stream that ends in an error where more comes out than the record says: few may hold any number."""

    def __init__(self, stream: Any, bounds: Bounds, path: str) -> None:
        self._stream, self._path = stream, path
        self._left = bounds.bytes + (bounds.files + 4) * _HEADERS

    def read(self, size: int) -> bytes:
        data: bytes = self._stream.read(min(size, PIECE))
        self._left -= len(data)
        if self._left < 0:
            raise CorruptError("holds more than its record says", path=self._path, hint=_DAMAGED)
        return data


class _Into:
    """An empty folder that is filled. What is in it was made here, so that nothing is ever written through a link."""

    def __init__(self, folder: str, bounds: Bounds, path: str) -> None:
        self._folder, self._bounds, self._path = folder, bounds, path
        self._folders = {""}
        self._last = b""
        self.digest = TreeDigest()

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name, raw = member.name, os.fsencode(member.name)
        if not raw or b"\0" in raw or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
            raise self._refused(name, "a name that leads elsewhere")
        if raw <= self._last:
            raise self._refused(name, "twice, or not in order")
        self._last = raw
        self._make(name.rpartition("/")[0], name)
        if member.type == tarfile.SYMTYPE:
            self._link(name, member.linkname)
        elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
            self._file(tar, member)
        else:
            raise self._refused(name, "neither a file nor a link")
        if self.digest.files > self._bounds.files or self.digest.bytes > self._bounds.bytes:
            raise self._refused(name, "more than its record says")

    def _make(self, folder: str, name: str) -> None:
        if folder in self._folders:
            return
        self._make(folder.rpartition("/")[0], name)
        try:
            os.mkdir(f"{self._folder}/{folder}")
        except FileExistsError:
            raise self._refused(name, "below a file or a link") from None
        self._folders.add(folder)

    def _link(self, name: str, target: str) -> None:
        if not target or "\0" in target:
            raise self._refused(name, "a link to nothing")
        self.digest.link(name, target)
        if len(self.digest.outside) > self._bounds.outside:
            raise self._refused(name, "a link that leads out of the tree, of which its record knows nothing")
        try:
            os.symlink(target, f"{self._folder}/{name}")
        except FileExistsError:
            raise self._refused(name, "twice") from None

    def _file(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        executable = bool(member.mode & stat.S_IXUSR)
        content = hashlib.sha256()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(f"{self._folder}/{member.name}", flags, 0o777 if executable else 0o666)
        except (FileExistsError, IsADirectoryError):
            raise self._refused(member.name, "twice") from None
        with open(fd, "wb") as file:
            data = tar.extractfile(member)
            while data is not None and (piece := data.read(PIECE)):
                file.write(piece)
                content.update(piece)
        self.digest.add("exec" if executable else "file", member.name, member.size, content.digest())

    def _refused(self, name: str, what: str) -> CorruptError:
        reason = f"holds {shown(name)!r}, {what}: it was not written by headrace"
        return CorruptError(reason, path=self._path, hint="do not use it; capture the code again")
