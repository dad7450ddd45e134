"""The archive of a tree: ``tree.tar.zst``. The same tree gives the same bytes; what comes out is what its digest says.

A tar in the pax format (POSIX.1-2001), with headers as Python's `tarfile` writes them, in one zstd stream (RFC 8878):
regular files (mode 0644, or 0755 where the owner may execute them) and links, in the order of their names' bytes; time,
owner and group zero; no folders, since git has none. Names are bytes (``hdrcharset=BINARY`` where they are no UTF-8).

The digest is a SHA-256 over one record a member, in the same order: ``<kind> <bytes of the name> <bytes of the
content>`` and a line feed, the name, the SHA-256 of the content. The kind is ``file``, ``exec`` or ``link``;
a link's content is its target.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import tarfile
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pyarrow

from headrace.base.errors import ChangedError
from headrace.jobs.tree import Stamp, Tree, shown, unreadable

NAME: Final = "tree.tar.zst"
PIECE = 1 << 20  # bytes read at a time
_YOUNG_NS = 3_000_000_000
"""Some file systems count the time of a change in seconds; Linux itself in ticks of 4 ms."""
_BLOCK = tarfile.BLOCKSIZE

pa: Any = pyarrow


class MovedError(ChangedError):
    """A file changed, or vanished, while it was read: look at the tree again."""


class Written(NamedTuple):
    """What is in an archive. `outside`: links that lead out of the tree."""

    digest: str
    files: int
    bytes: int
    outside: tuple[str, ...]


class TreeDigest:
    """What of a tree was seen, in order."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()
        self.files = self.bytes = 0
        self.outside: list[str] = []

    def add(self, kind: str, name: str, size: int, content: bytes) -> None:
        raw = os.fsencode(name)
        self._sum.update(f"{kind} {len(raw)} {size}\n".encode())
        self._sum.update(raw)
        self._sum.update(content)
        self.files += 1
        self.bytes += size

    def link(self, name: str, target: str) -> None:
        raw = os.fsencode(target)
        self.add("link", name, len(raw), hashlib.sha256(raw).digest())
        if leads_out(name, target):
            self.outside.append(name)

    def done(self) -> Written:
        return Written(self._sum.hexdigest(), self.files, self.bytes, tuple(self.outside))


def leads_out(name: str, target: str) -> bool:
    """Whether a link of that name leads out of the tree, by its words alone."""
    end = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return end == ".." or end.startswith(("/", "../"))


def write(path: str, tree: Tree) -> Written:
    """Write the files of a tree into a new file. Memory: one piece of a file.

    Raises:
        MovedError: a file is not what it was, or changed while it was read. DeniedError, TryAgainError: one cannot be
        read. OSError: the file written.
    """
    digest = TreeDigest()
    with pa.OSFile(path, "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as out:
        for name in sorted(tree.files, key=os.fsencode):
            try:
                if not _write_link(out, tree, name, digest):
                    _write_file(out, tree, name, digest)
            except _UnreadError as error:
                raise unreadable(tree.path(name), error.cause) from error.cause
        out.write(bytes(2 * _BLOCK))
    return digest.done()


class _UnreadError(Exception):
    """An error of the file that is read, not of the one that is written."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause)
        self.cause = cause


def _header(name: str, size: int = 0, target: str = "", *, executable: bool = False) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.linkname = size, target
    info.type = tarfile.SYMTYPE if target else tarfile.REGTYPE
    info.mode = 0o777 if target else 0o755 if executable else 0o644
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _write_link(out: Any, tree: Tree, name: str, digest: TreeDigest) -> bool:
    try:
        target = os.readlink(tree.path(name))
    except FileNotFoundError:
        raise _moved(tree, name, "vanished") from None
    except OSError:  # no link
        return False
    out.write(_header(name, target=target))
    digest.link(name, target)
    return True


def _write_file(out: Any, tree: Tree, name: str, digest: TreeDigest) -> None:
    try:
        fd = os.open(tree.path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise _moved(tree, name, "vanished") from None
    except OSError as error:
        raise _UnreadError(error) from error
    try:
        before = Stamp.of(os.fstat(fd))
        if not stat.S_ISREG(before.mode):
            raise _moved(tree, name, "changed")
        executable = bool(before.mode & stat.S_IXUSR)
        out.write(_header(name, before.size, executable=executable))
        content = hashlib.sha256()
        for piece in _pieces(fd, before.size):
            out.write(piece)
            content.update(piece)
        if not _settled(fd, before) and not _still_so(fd, before, content.digest()):
            raise _moved(tree, name, "changed")
        out.write(bytes(-before.size % _BLOCK))
    except EOFError:
        raise _moved(tree, name, "changed") from None
    finally:
        os.close(fd)
    digest.add("exec" if executable else "file", name, before.size, content.digest())


def _settled(fd: int, before: Stamp) -> bool:
    """Whether nothing was written while it was read. A stamp cannot tell while the next may still be the same."""
    young = time.time_ns() - max(before.mtime_ns, before.ctime_ns) < _YOUNG_NS
    return not young and Stamp.of(os.fstat(fd)) == before


def _still_so(fd: int, before: Stamp, content: bytes) -> bool:
    """Whether what was read is there when it is read again, as of a log that only grows."""
    if os.fstat(fd).st_mode != before.mode:
        return False
    os.lseek(fd, 0, os.SEEK_SET)
    again = hashlib.sha256()
    for piece in _pieces(fd, before.size):
        again.update(piece)
    return again.digest() == content


def _pieces(fd: int, size: int) -> Iterator[bytes]:
    """The first `size` bytes. Raises EOFError: there are fewer."""
    while size:
        try:
            piece = os.read(fd, min(size, PIECE))
        except OSError as error:
            raise _UnreadError(error) from error
        if not piece:
            raise EOFError
        size -= len(piece)
        yield piece


def _moved(tree: Tree, name: str, what: str) -> MovedError:
    hint = "start the run when nothing writes there, or leave it out: name it in .gitignore, or in code.ignore"
    return MovedError(f"{what} each time it was read for the code of this run", path=shown(tree.path(name)), hint=hint)
