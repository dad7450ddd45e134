"""The namespace as an fsspec file system, protocol ``headrace://``: for pandas, pyarrow, Dask and friends.

Source of the interface: fsspec's ``AbstractFileSystem`` (https://filesystem-spec.readthedocs.io/en/latest/api.html).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from fsspec.compression import compr
from fsspec.spec import AbstractFileSystem
from fsspec.utils import infer_compression

from headrace.base.errors import (
    AlreadyExistsError,
    DeadlineError,
    DeniedError,
    HeadraceError,
    NotFoundError,
    UnreachableError,
    UnsupportedError,
)
from headrace.namespace.entry import Entry
from headrace.namespace.namespace import Namespace
from headrace.namespace.writer import TextWriter, Writer

_OS_ERRORS: tuple[tuple[type[HeadraceError], type[OSError], int], ...] = (
    (AlreadyExistsError, FileExistsError, errno.EEXIST),
    (NotFoundError, FileNotFoundError, errno.ENOENT),
    (DeniedError, PermissionError, errno.EACCES),
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

    A name that ends in ``/`` cannot be reached this way: fsspec drops a trailing ``/``. Errors are OSErrors.
    """

    protocol: str | tuple[str, ...] = "headrace"
    root_marker = "/"

    def __init__(
        self,
        mounts: Mapping[str, str | Mapping[str, Any]] | None = None,
        namespace: Namespace | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.namespace = namespace if namespace is not None else Namespace.load()
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
        return text if text.startswith("/") else f"/{text}"

    @property
    def fsid(self) -> str:
        return "headrace"

    # looking

    def ls(self, path: Any, detail: bool = True, refresh: bool = False, **kwargs: Any) -> Any:  # noqa: ARG002
        with _os_errors():
            entries = self.namespace.list(self._strip_protocol(path), refresh=refresh)
        # A folder whose name is empty has no spelling here.
        infos = [_info(entry) for entry in entries if not entry.path.endswith("/")]
        return infos if detail else sorted({info["name"] for info in infos})

    def info(self, path: Any, refresh: bool = False, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002
        with _os_errors():
            return _info(self.namespace.stat(self._strip_protocol(path), refresh=refresh))

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
        try:
            with _os_errors():
                entries = list(self.namespace.walk(self._strip_protocol(path)))
        except FileNotFoundError:
            entries = []
        found = {entry.path: _info(entry) for entry in entries if not entry.path.endswith("/")}
        return found if detail else sorted(found)

    def modified(self, path: Any) -> datetime:
        """Time of the last change, UTC."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def checksum(self, path: Any) -> Any:
        """The ETag, or size and time where there is none."""
        info = self.info(path)
        return info["ETag"] or f"{info['size']}-{info['mtime']}"

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
        autocommit: bool = True,
        **kwargs: Any,  # noqa: ARG002
    ) -> Any:
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

    # removing

    def rm_file(self, path: Any) -> None:
        self.rm(path)

    def _rm(self, path: Any) -> None:
        self.rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete files; with `recursive`, folders with all they hold."""
        if maxdepth is not None:
            super().rm(path, recursive=recursive, maxdepth=maxdepth)
            return
        found: list[str] = self.expand_path(path, recursive=False)
        with _os_errors():
            for each in found:
                if not self.namespace.stat(each).is_file and not recursive:
                    raise IsADirectoryError(errno.EISDIR, "is a folder", each)
            self.namespace.delete(found, recursive=recursive)


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


def _info(entry: Entry) -> dict[str, Any]:
    """What fsspec calls info: sizes in bytes, times in seconds."""
    return {
        "name": entry.path,
        "size": entry.size,
        "type": "file" if entry.is_file else "directory",
        "mtime": entry.mtime_us / 1e6,
        "ETag": entry.etag,
    }
