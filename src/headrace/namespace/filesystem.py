"""The namespace as an fsspec file system, protocol ``headrace://``: for pandas, pyarrow, Dask and friends.

Source of the interface: fsspec's ``AbstractFileSystem`` (https://filesystem-spec.readthedocs.io/en/latest/api.html).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import infer_compression

from headrace.base.errors import (
    AlreadyExistsError,
    ArchivedError,
    DeadlineError,
    DeniedError,
    HeadraceError,
    NotFoundError,
    UnreachableError,
    UnsupportedError,
)
from headrace.namespace.entry import Entry
from headrace.namespace.literal import check_below, expand, pairs, several
from headrace.namespace.namespace import Namespace
from headrace.namespace.paths import is_url
from headrace.namespace.writer import TextWriter, Writer

_OS_ERRORS: tuple[tuple[type[HeadraceError], type[OSError], int], ...] = (
    (AlreadyExistsError, FileExistsError, errno.EEXIST),
    (NotFoundError, FileNotFoundError, errno.ENOENT),
    (DeniedError, PermissionError, errno.EACCES),
    (ArchivedError, PermissionError, errno.EACCES),
    (DeadlineError, TimeoutError, errno.ETIMEDOUT),
    (UnreachableError, ConnectionError, errno.ECONNREFUSED),
    (UnsupportedError, OSError, errno.ENOTSUP),
    (HeadraceError, OSError, errno.EIO),
)


@contextmanager
def _os_errors() -> Generator[None]:
    """What fsspec's callers catch: our errors as the OSError of their kind, ours as the cause."""
    try:
        yield
    except HeadraceError as error:
        kind, number = next((kind, number) for ours, kind, number in _OS_ERRORS if isinstance(error, ours))
        raise kind(number, f"{error.reason} ({error.hint})" if error.hint else error.reason, error.path) from error


class HeadraceFileSystem(AbstractFileSystem):
    """``headrace:///path`` by fsspec. Any thread.

    Args:
        mounts: attachments beside those of the settings: path → URL, or path → a table as in ``headrace.toml``.
        namespace: use this one instead; see `over`.
        read_only: refuse every write, wherever it goes.

    A folder of a store has no time of its own: it has that at which this file system was made, as in a mount.
    A name that ends in ``/`` cannot be reached this way: fsspec drops a trailing ``/``. Errors are OSErrors.

    Names are literal, whatever they hold. Patterns (``*``, ``?``, ``[…]``) are taken by `glob`; and by `expand_path`,
    `cat`, `cp`, `get` and `put`, as fsspec promises, for a source that nothing is called, unless `assume_literal`.
    `rm`, `rm_file` and `mv` take none: ``fs.rm(fs.glob(pattern))``.
    """

    protocol: str | tuple[str, ...] = "headrace"
    root_marker = "/"

    def __init__(
        self,
        mounts: Mapping[str, str | Mapping[str, Any]] | None = None,
        namespace: Namespace | None = None,
        read_only: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._made = time.time()
        self.namespace = namespace if namespace is not None else Namespace.load(read_only=read_only)
        for path, table in (mounts or {}).items():
            keywords: dict[str, Any] = {"url": table} if isinstance(table, str) else dict(table)
            self.namespace.attach(path, keywords.pop("url"), **keywords)

    @classmethod
    def over(cls, namespace: Namespace) -> HeadraceFileSystem:
        """A file system over this very namespace, never shared with another."""
        return cls(namespace=namespace, skip_instance_cache=True)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        text = os.fspath(path).removeprefix("headrace://").rstrip("/")
        return text if text.startswith("/") or is_url(text) else f"/{text}"

    @property
    def fsid(self) -> str:
        return "headrace"

    # looking

    def ls(self, path: Any, detail: bool = True, refresh: bool = False, **kwargs: Any) -> Any:  # noqa: ARG002
        with _os_errors():
            path = self._strip_protocol(path)
            entries = self.namespace.list(path, refresh=refresh)
        # A folder whose name is empty has no spelling here.
        infos = [self._info(entry, path) for entry in entries if not entry.path.endswith("/")]
        return infos if detail else sorted({info["name"] for info in infos})

    def info(self, path: Any, refresh: bool = False, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002
        with _os_errors():
            path = self._strip_protocol(path)
            return self._info(self.namespace.stat(path, refresh=refresh), path)

    def exists(self, path: Any, **kwargs: Any) -> bool:  # noqa: ARG002
        with _os_errors():
            return self.namespace.exists(self._strip_protocol(path))

    def find(
        self,
        path: Any,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        """As fsspec's, by one streamed listing where the whole tree is wanted."""
        if maxdepth is not None or withdirs:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        path = self._strip_protocol(path)
        try:
            with _os_errors():
                entries = list(self.namespace.walk(path))
        except FileNotFoundError:
            entries = []
        found = {_name(entry, path): self._info(entry, path) for entry in entries if not entry.path.endswith("/")}
        return found if detail else sorted(found)

    def expand_path(
        self,
        path: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
        **kwargs: Any,
    ) -> list[str]:
        """As fsspec's, but a name that is there is no pattern."""
        return expand(self, path, recursive, maxdepth, literal=assume_literal, **kwargs)

    def modified(self, path: Any) -> datetime:
        """Time of the last change, UTC; where there is none, that at which this file system was made."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def created(self, path: Any) -> datetime:
        """As `modified`: an object is made anew each time it is written."""
        return self.modified(path)

    def sign(self, path: Any, expiration: int = 100, **kwargs: Any) -> str:  # noqa: ARG002
        """A URL by which anybody can read the file for `expiration` seconds. Raises OSError: the store has none."""
        with _os_errors():
            at = self.namespace.resolve(self._strip_protocol(path))
            return at.store.presigned(at.key, expiration)

    def checksum(self, path: Any) -> Any:
        """The ETag, or size and time where there is none."""
        with _os_errors():
            return self.namespace.stat(self._strip_protocol(path)).version

    def invalidate_cache(self, path: Any = None) -> None:
        super().invalidate_cache(path)
        self.namespace.refresh()

    # reading and writing

    def open(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, path: Any, mode: str = "rb", *, compression: str | None = None, **kwargs: Any
    ) -> Any:
        """As fsspec's; a file left by an exception is not written, text and compressed ones included."""
        if "r" in mode:
            return super().open(path, mode, compression=compression, **kwargs)
        text = {name: kwargs.pop(name, None) for name in ("encoding", "errors", "newline")}
        file: Any = super().open(path, mode.replace("t", "").replace("b", "") + "b", **kwargs)
        name = infer_compression(str(path)) if compression == "infer" else compression
        if name is not None:
            file = _Compressed(file, name)
        return file if "b" in mode else TextWriter(file, text["encoding"], text["newline"], text["errors"])

    def _open(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        path: Any,
        mode: str = "rb",
        *,
        block_size: int | None = None,
        autocommit: bool = True,
        cache_type: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if mode == "rb" and cache_type is not None:  # who names one of fsspec's caches reads through it
            size: Any = block_size or "default"
            return _Fetched(self, path, mode, size, cache_type=cache_type, **kwargs)
        with _os_errors():
            if "r" not in mode and not autocommit:
                return _Deferred(self, path)
            return self.namespace.open(path, mode)

    def cat_file(self, path: Any, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:  # noqa: ARG002
        path = self._strip_protocol(path)
        with _os_errors():
            if (start or 0) < 0 or (end or 0) < 0:
                start, end, _ = slice(start, end).indices(self.namespace.stat(path).size)
            start = start or 0
            return bytes(self.namespace.read(path, start, end if end is None else max(end, start)))

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:  # noqa: ARG002
        with _os_errors():
            self.namespace.write(self._strip_protocol(path), value, create=mode == "create")

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:  # noqa: ARG002
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        with _os_errors():
            try:
                self.namespace.copy(source, target)
            except NotFoundError:
                if not self.isdir(source):  # Folders need no making.
                    raise

    # copying

    def copy(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None,
        on_error: str | None = None, assume_literal: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        """As fsspec's. A name that is there is no pattern, and with `assume_literal` none is."""
        sources, targets = pairs(
            self, path1, self, path2, recursive=recursive, maxdepth=maxdepth, literal=assume_literal, **kwargs
        )
        on_error = on_error or ("ignore" if recursive else "raise")
        super().copy(sources, targets, on_error=on_error, **kwargs)

    def get(
        self, rpath: Any, lpath: Any, recursive: bool = False, callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None, assume_literal: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        """As fsspec's. A name that is there is no pattern, and with `assume_literal` none is.

        Raises ValueError: a name leads out of `lpath`, by a ``..``; nothing is written then.
        """
        here = make_path_posix(lpath) if isinstance(lpath, str) else lpath
        sources, targets = pairs(
            self, rpath, LocalFileSystem(), here, recursive=recursive, maxdepth=maxdepth, literal=assume_literal,
            **kwargs,
        )  # fmt: skip
        if isinstance(here, str):
            check_below(here, targets)
        super().get(sources, targets, callback=callback, **kwargs)

    def put(
        self, lpath: Any, rpath: Any, recursive: bool = False, callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None, assume_literal: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        """As fsspec's. A name that is there is no pattern, and with `assume_literal` none is."""
        here = make_path_posix(lpath) if isinstance(lpath, str) else lpath
        sources, targets = pairs(
            LocalFileSystem(), here, self, rpath, recursive=recursive, maxdepth=maxdepth, literal=assume_literal
        )
        super().put(sources, targets, callback=callback, **kwargs)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        """Copy, then delete what was copied. Names are literal.

        Raises FileNotFoundError, IsADirectoryError (a folder, and not `recursive`), OSError (into itself): then nothing
        is moved. With `maxdepth`, what is deeper stays where it is.
        """
        if self._strip_protocol(path1) == self._strip_protocol(path2):
            return
        sources, targets = pairs(self, path1, self, path2, recursive=recursive, maxdepth=maxdepth, literal=True)
        below = recursive and not isinstance(path2, list)  # of two lists, each name is copied as it is
        moved = [(old, new) for old, new in zip(sources, targets, strict=True) if self.info(old)["type"] == "file"]
        if not below and (len(moved) < len(sources) or not sources):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path1)
        self._check_apart(moved, several(path1) if below else ())
        files = [old for old, _ in moved]
        super().copy(files, [new for _, new in moved], on_error="raise", **kwargs)
        whole = below and maxdepth is None
        self.rm(path1 if whole else files, recursive=whole)

    def _check_apart(self, moved: Sequence[tuple[Any, Any]], folders: Iterable[Any]) -> None:
        """Nothing may be moved to where something is moved from: it would be gone."""
        files = {self._strip_protocol(old) for old, _ in moved}
        roots = tuple(self._strip_protocol(folder).rstrip("/") + "/" for folder in folders)
        for old, new in moved:
            if self._strip_protocol(new) in files or self._strip_protocol(new).startswith(roots):
                raise OSError(errno.EINVAL, "cannot be moved into itself", old, None, new)

    # removing

    def rm_file(self, path: Any) -> None:
        self.rm(path)

    def _rm(self, path: Any) -> None:
        self.rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files; with `recursive`, folders with all they hold, or their files down to `maxdepth`.

        Names are literal. Raises FileNotFoundError, and IsADirectoryError: a folder, and not `recursive`; nothing is
        deleted then.
        """
        named = [self._strip_protocol(each) for each in several(path)]
        for each in named:
            if self.info(each)["type"] != "file" and not recursive:
                raise IsADirectoryError(errno.EISDIR, "is a folder", each)
        if recursive and maxdepth is not None:
            below = expand(self, named, recursive, maxdepth, literal=True)
            named, recursive = [each for each in below if self.isfile(each)], False
        with _os_errors():
            self.namespace.delete(named, recursive=recursive)

    def _info(self, entry: Entry, asked: str) -> dict[str, Any]:
        """What fsspec calls info: sizes in bytes, times in seconds."""
        known = entry.mtime_us / 1e6 or self._made
        return {
            "name": _name(entry, asked),
            "size": entry.size,
            "type": "file" if entry.is_file else "directory",
            "mtime": known,
            "created": known,
            "ETag": entry.etag,
        }


class _Fetched(AbstractBufferedFile):
    """A file that is read through one of fsspec's own caches."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs.cat_file(self.path, start, end)


class _Deferred(Writer):
    """A file written inside an fsspec transaction: published when that commits."""

    def __init__(self, system: HeadraceFileSystem, path: str) -> None:
        super().__init__(self._hold, path)
        self._system = system
        self._held: bytes | None = None

    def _hold(self, data: memoryview) -> None:
        self._held = bytes(data)

    def commit(self) -> None:
        """Called by the transaction."""
        self.close()
        if self._held is not None:
            self._system.pipe_file(self.name, self._held)

    def discard(self) -> None:
        self._held = None
        super().discard()


class _Compressed(Writer):
    """Compresses into another file, and ends with it: closed, committed or discarded together."""

    def __init__(self, file: Writer, name: str) -> None:
        super().__init__(self._compress, file.name)
        self._file = file
        self._name = name

    def _compress(self, data: memoryview) -> None:
        pack: Any = compr[self._name]  # pyright: ignore[reportArgumentType] - fsspec's table is untyped
        with pack(self._file, mode="w") as packed:
            packed.write(data)
        self._file.close()

    def discard(self) -> None:
        super().discard()
        self._file.discard()


def _name(entry: Entry, asked: str) -> str:
    """As it was asked for: where that was no URL, a file of this machine is ``/path``, not ``file:///path``."""
    return entry.path if is_url(asked) else entry.path.removeprefix("file://")
