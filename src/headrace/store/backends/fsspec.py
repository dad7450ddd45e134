"""Every other protocol (``sftp://``, ``webhdfs://``, ``hdfs://``, ``ftp://``, …) through its fsspec file system.

Such stores promise little: no ETags, no conditions, a listing is a walk. A write goes to a hidden name and is moved
into place; where moving cannot overwrite, the old file is removed first, which readers may notice.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO, Final

from headrace.base.errors import (
    ChangedError,
    HeadraceError,
    InputError,
    NameRefusedError,
    NotFoundError,
    UnreachableError,
    UnsupportedError,
)
from headrace.store.backends.errors import from_fsspec
from headrace.store.backends.spool import SpoolAssembly
from headrace.store.http1 import Patience, persist
from headrace.store.protocol import (
    Assembly,
    Blob,
    Buffer,
    Capabilities,
    Folder,
    ObjectInfo,
    Store,
    StoreOptions,
)
from headrace.store.url import StoreUrl

_ODD = re.compile(r"\x00|(?:^|/)\.{1,2}(?:/|\Z)|//|\A/|/\Z|\A\Z")
_HIDDEN = ".headrace-tmp-"
_PAGE = 1000  # files told of at a time
_PIECE = 4 << 20  # bytes sent at a time
_EXTRA: Final = {"sftp": "sftp", "ssh": "sftp"}
"""Protocols whose package is an extra of ours."""
_SEEN = Capabilities(
    has_etag=False,
    create_only_put=False,
    conditional_put=False,
    conditional_get=False,
    start_after=False,
    metadata=False,
    parts=False,
    copied_parts=False,
    conditional_parts=False,
)


_inherited: Final[list[Any]] = []
"""A forked child keeps its parent's file systems to its end. Were they collected, what their suspended tasks do on
closing would be written to the connection the parent goes on using."""


class FsspecStore(Store):
    """A folder of an fsspec file system.

    Any thread: calls are serialised unless the file system is asynchronous inside. Fork-safe: a child opens its own.
    A file system that lost its connection is opened anew by the next attempt. A server reached by SSH that says nothing
    for half of `StoreOptions.timeout_s` counts as lost; `extra` may give asyncssh's `keepalive_interval` and others.
    """

    def __init__(self, url: StoreUrl, options: StoreOptions) -> None:
        self.url = str(url)
        self._options = options
        self._patience = Patience(options.timeout_s, options.retries)
        self._lock = threading.RLock()
        self._opened: tuple[int, Any] | None = None
        self._root = ""
        self._open()  # so that a missing package is told at once

    def __repr__(self) -> str:
        return f"FsspecStore({self.url!r})"

    @property
    def capabilities(self) -> Capabilities:
        return _SEEN

    def _open(self) -> Any:
        """The file system of this process."""
        opened = self._opened
        if opened is not None:
            if opened[0] == os.getpid():
                return opened[1]
            _inherited.append(opened[1])
            self._lock = threading.RLock()  # a thread of the parent may have held it
        from fsspec.core import url_to_fs

        protocol = self.url.partition("://")[0]
        try:
            fs, root = url_to_fs(self.url, **_arguments(protocol, self._options))
        except ImportError as error:
            hint = f"pip install 'headrace[{_EXTRA[protocol]}]'" if protocol in _EXTRA else f"{error}"
            raise UnsupportedError(f"the package for {protocol}:// is missing", path=self.url, hint=hint) from error
        except ValueError as error:
            if "rotocol not known" not in str(error):
                raise from_fsspec(self.url, error) from error
            hint = "s3, gs, az, http, file, memory, and what fsspec knows"
            raise InputError(f"unknown kind of store {protocol}://", path=self.url, hint=hint) from error
        except Exception as error:
            raise from_fsspec(self.url, error) from error
        self._root = str(root).rstrip("/")
        self._opened = (os.getpid(), fs)
        return fs

    def _lose(self, fs: Any) -> None:
        """Have the next attempt open a new one: not all file systems connect again by themselves."""
        with self._lock:
            if self._opened is not None and self._opened[1] is fs:
                type(fs).clear_instance_cache()
                self._opened = None

    def _file(self, key: str) -> str:
        if _ODD.search(key):
            raise NameRefusedError(
                f"this kind of store cannot express the key {key!r}",
                path=self.url,
                hint="such keys live in object stores only",
            )
        return f"{self._root}/{key}"

    def check_key(self, key: str) -> None:
        self._file(key)

    def _path(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _do(self, key: str, name: str, *arguments: Any, **named: Any) -> Any:
        """One call of the file system, tried again while that may help."""
        return self._try(key, lambda fs: getattr(fs, name)(*arguments, **named))

    def _try(self, key: str, work: Callable[[Any], Any]) -> Any:
        def attempt(_: float) -> Any:
            fs = self._open()
            try:
                if getattr(fs, "async_impl", False):
                    return work(fs)
                with self._lock:
                    return work(fs)
            except Exception as error:
                told = from_fsspec(self._path(key), error)
                if isinstance(told, UnreachableError):
                    self._lose(fs)
                raise told from error

        return persist(self._patience, attempt)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        info = self.head(key)
        if if_match is not None and info.version != if_match:
            raise ChangedError("the object has changed", path=self._path(key))
        if not 0 <= start <= info.size:
            raise InputError(f"the range starts at {start}, the object ends at {info.size}", path=self._path(key))
        stop = info.size if stop is None else min(stop, info.size)
        if stop <= start:
            return Blob(memoryview(b""), info)
        file = self._file(key)
        if (start, stop) == (0, info.size):
            return Blob(memoryview(self._do(key, "cat_file", file)), info)
        return Blob(memoryview(self._try(key, lambda fs: _part(fs, file, start, stop))), info)

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        return None if self.head(key).version == version else self.get(key)

    def head(self, key: str) -> ObjectInfo:
        found = self._do(key, "info", self._file(key))
        if found.get("type") == "directory":
            raise NotFoundError("is a folder, not an object", path=self._path(key))
        return self._info(key, found)

    def _info(self, key: str, found: Mapping[str, Any]) -> ObjectInfo:
        """An unknown size is not 0: where none is told, the object is read to its end."""
        if found.get("size") is None:
            found = {**found, "size": len(self._do(key, "cat_file", self._file(key)))}
        return _info(key, found)

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> Assembly:
        self._check_promises(key, if_match, create, metadata)
        self._file(key)
        return SpoolAssembly(
            key,
            self._path(key),
            lambda source, start, stop, match: self.get(source, start, stop, if_match=match),
            lambda file, _: self._publish(key, lambda fs, name: _upload(fs, name, file)),
        )

    def _check_promises(self, key: str, if_match: str | None, create: bool, metadata: Mapping[str, str] | None) -> None:
        if create or if_match is not None or metadata:
            raise UnsupportedError("this kind of store promises no conditional writes", path=self._path(key))

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> ObjectInfo:
        self._check_promises(key, if_match, create, metadata)
        return self._publish(key, lambda fs, name: fs.pipe_file(name, bytes(data)))

    def _publish(self, key: str, write: Callable[[Any, str], object]) -> ObjectInfo:
        target = self._file(key)
        folder = target.rpartition("/")[0]
        temporary = f"{folder}/{_HIDDEN}{secrets.token_hex(8)}"
        self._do(key, "makedirs", folder, exist_ok=True)
        try:
            self._try(key, lambda fs: write(fs, temporary))
            self._move(key, temporary, target)
        except HeadraceError:
            self._remove(key, temporary)
            raise
        return self.head(key)

    def _move(self, key: str, temporary: str, target: str) -> None:
        if self._exists(key) and not _replaces(self._open()):
            self._remove(key, target)
        self._try(key, lambda fs: _rename(fs, temporary, target))

    def _exists(self, key: str) -> bool:
        try:
            self.head(key)
        except NotFoundError as error:
            if "folder" in error.reason:
                raise UnsupportedError("a name cannot be a file and a folder at once", path=self._path(key)) from error
            return False
        return True

    def _remove(self, key: str, file: str) -> None:
        try:
            self._do(key, "rm_file", file)
        except NotFoundError:
            pass

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> None:
        info = self.head(source)
        if metadata:
            raise UnsupportedError("this kind of store holds no metadata", path=self._path(source))
        if source == target:
            return
        assembly = self.assemble(target)
        try:
            assembly.copy_part(1, 0, source, 0, info.size, if_match=info.version)
            assembly.complete()
        finally:
            assembly.abort()

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._remove(key, self._file(key))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        folder = prefix.rpartition("/")[0]
        if folder and _ODD.search(folder):
            return
        page: list[ObjectInfo] = []
        for info in self._walk(f"{folder}/" if folder else "", prefix):
            if start_after is not None and info.key <= start_after:
                continue
            page.append(info)
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page

    def _walk(self, base: str, prefix: str) -> Iterator[ObjectInfo]:
        """Depth first in key order: a folder sorts as its name with ``/``."""
        for name, found in self._entries(base):
            key = base + name
            if not (key.startswith(prefix) or (name.endswith("/") and prefix.startswith(key))):
                continue
            if name.endswith("/"):
                yield from self._walk(key, prefix)
            else:
                yield self._info(key, found)

    def _entries(self, base: str) -> list[tuple[str, Mapping[str, Any]]]:
        try:
            found = self._do(base, "ls", f"{self._root}/{base}".rstrip("/") or "/", detail=True, refresh=True)
        except NotFoundError:
            return []
        entries: list[tuple[str, Mapping[str, Any]]] = []
        for one in found:
            name = str(one["name"]).rstrip("/").rpartition("/")[2]
            if name in ("", ".", "..") or name.startswith(_HIDDEN):
                continue
            entries.append((f"{name}/" if one.get("type") == "directory" else name, one))
        return sorted(entries, key=lambda entry: entry[0])

    def list_folder(self, prefix: str = "") -> Folder:
        if prefix and (not prefix.endswith("/") or _ODD.search(prefix[:-1])):
            return Folder((), ())
        entries = self._entries(prefix)
        folders = tuple(prefix + name for name, _ in entries if name.endswith("/"))
        files = (self._info(prefix + name, one) for name, one in entries if not name.endswith("/"))
        return Folder(folders, tuple(files))


def _rename(fs: Any, old: str, new: str) -> None:
    """By exact names: the `mv` that fsspec gives to a file system without one of its own takes them for patterns.

    Of an asynchronous one, each instance has functions of its own.
    """
    from fsspec.spec import AbstractFileSystem

    if getattr(fs.mv, "__func__", None) is AbstractFileSystem.mv:
        fs.cp_file(old, new)
        fs.rm_file(old)
    else:
        fs.mv(old, new)


def _replaces(fs: Any) -> bool:
    """Whether its `mv` takes the place of what has the name, so that a reader finds the one or the other."""
    return type(fs).__module__.startswith("sshfs")


def _upload(fs: Any, name: str, file: BinaryIO) -> None:
    file.seek(0)  # an earlier try may have read some
    with fs.open(name, "wb") as opened:
        shutil.copyfileobj(file, opened, _PIECE)


def _part(fs: Any, file: str, start: int, stop: int) -> bytes:
    """By seeking: some file systems' `cat_file` takes a range and returns the whole file."""
    with fs.open(file, "rb") as opened:
        opened.seek(start)
        pieces: list[bytes] = []
        left = stop - start
        while left and (piece := opened.read(left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)


def _arguments(protocol: str, options: StoreOptions) -> dict[str, Any]:
    """Names most fsspec file systems share; `extra` goes through as it is."""
    from fsspec import get_filesystem_class

    named: dict[str, Any] = dict(options.extra)
    if options.access_key_id:
        named.setdefault("username", options.access_key_id)
    if options.secret_access_key:
        named.setdefault("password", options.secret_access_key)
    if protocol in _EXTRA and get_filesystem_class(protocol).__module__.startswith("sshfs"):
        # Left to itself, asyncssh waits two minutes for a login, and for a server that has fallen silent for ever. Half
        # of the time is left for another connection. Not `connect_timeout_s`: asyncssh counts the login in.
        half = options.timeout_s / 2
        named.setdefault("connect_timeout", half)
        named.setdefault("keepalive_interval", half / 4)
        named.setdefault("keepalive_count_max", 3)  # the fourth finds three of them unanswered
    return named


def _info(key: str, found: Mapping[str, Any]) -> ObjectInfo:
    for name in ("mtime", "modified", "last_modified", "LastModified", "created", "modify"):
        if found.get(name) is not None:
            return ObjectInfo(key, int(found["size"]), None, _time_us(found[name]))
    return ObjectInfo(key, int(found["size"]))


def _time_us(value: object) -> int:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1_000_000)
    if isinstance(value, (int, float)):
        return round(value * 1000 if value > 1e11 else value * 1_000_000)  # webhdfs counts milliseconds
    try:
        return _time_us(datetime.fromisoformat(str(value)))
    except ValueError:
        return 0
