"""``file://``: a folder whose files are the objects.

Symbolic links are followed, in reading and in listing, also out of the folder: a data set is often a folder of
links. A link to one of its own parents is listed once, not for ever; a dangling one is not an object. Writing to a
key replaces a link, not what it points to. A write is a hidden temporary file, synced and renamed, so no reader
sees half of it and a crash leaves at most a file that is never listed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    DeadlineError,
    HeadraceError,
    InputError,
    NameRefusedError,
    NameTooLongError,
    NotFoundError,
    UnsupportedError,
)
from headrace.base.memory import take
from headrace.store.backends.errors import from_os
from headrace.store.backends.parts import Parts, UnderWay, pwrite
from headrace.store.protocol import (
    Assembly,
    Blob,
    Buffer,
    Capabilities,
    Folder,
    ObjectInfo,
    Store,
    StoreOptions,
    Unfinished,
)
from headrace.store.url import StoreUrl

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_HIDDEN = ".headrace-tmp-"
_LONGEST_PART, _LONGEST_PATH = 255, 4095  # bytes: Linux's NAME_MAX, and PATH_MAX without the zero at its end
_ELSEWHERE = "such keys live in object stores only"
_PAGE = 1000  # files told of at a time, as by S3
_CHUNK = 1 << 20  # bytes copied at a time where the kernel cannot do it
_FOLDER_RACES = 5
"""Times that a folder is made anew which deletions take away meanwhile."""
_SEEN = Capabilities(
    has_etag=False,
    create_only_put=True,
    conditional_put=True,
    conditional_get=True,
    start_after=True,
    metadata=False,
    parts=True,
    copied_parts=True,
    conditional_parts=True,
)
_LARGEST_FILE = (1 << 63) - 1  # bytes: an offset has 64 bits, with a sign


class LocalStore(Store):
    """Files below one folder. Any thread, fork-safe. Versions are ``size-mtime_us``; there are no ETags."""

    def __init__(self, url: StoreUrl, options: StoreOptions) -> None:
        self.url = str(url)
        self._folder = url.prefix
        self._timeout_s = options.timeout_s

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    @property
    def capabilities(self) -> Capabilities:
        return _SEEN

    @property
    def local_root(self) -> str | None:
        return self._folder

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        try:
            descriptor = os.open(self._file(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                info = _info(key, os.fstat(descriptor), self._path(key))
                self._check_range(key, info, start)
                if if_match is not None and info.version != if_match:
                    raise ChangedError("the file has changed", path=self._path(key))
                return Blob(_read(descriptor, start, info.size if stop is None else min(stop, info.size)), info)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise from_os(self._path(key), error) from error

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        return None if self.head(key).version == version else self.get(key)

    def _check_range(self, key: str, info: ObjectInfo, start: int) -> None:
        if not 0 <= start <= info.size:
            raise InputError(f"the range starts at {start}, the file ends at {info.size}", path=self._path(key))

    def head(self, key: str) -> ObjectInfo:
        try:
            return _info(key, os.stat(self._file(key)), self._path(key))
        except OSError as error:
            raise from_os(self._path(key), error) from error

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
        view = memoryview(data).cast("B")
        assembly = self.assemble(key, if_match=if_match, create=create, metadata=metadata)
        try:
            assembly.part(1, 0, view)
            return assembly.complete()
        finally:
            assembly.abort()

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> FileAssembly:
        if metadata:
            raise UnsupportedError("files hold no metadata", path=self._path(key))
        target = self._file(key)
        try:
            descriptor, temporary = self._temporary(target)
        except OSError as error:
            raise self._clash(key, error) from error
        return FileAssembly(self, key, descriptor, temporary, if_match, create)

    def _temporary(self, target: str) -> tuple[int, str]:
        """A new hidden file beside `target`, open for writing. From now on no deletion takes the folder away."""
        folder = os.path.dirname(target)
        temporary = os.path.join(folder, _HIDDEN + secrets.token_hex(8))
        mode = _mode_of(target)
        for left in reversed(range(_FOLDER_RACES)):
            os.makedirs(folder, exist_ok=True)
            try:
                if mode is None:
                    return os.open(temporary, _NEW, 0o666), temporary
                descriptor = os.open(temporary, _NEW, 0o600)
                with suppress(OSError):  # a file system that has no modes
                    os.fchmod(descriptor, mode)
                return descriptor, temporary
            except FileNotFoundError:  # a deletion took the emptied folder away between making it and writing into it
                if not left:
                    raise
        raise AssertionError

    def publish(self, key: str, temporary: str, if_match: str | None, create: bool) -> None:
        """Give a finished temporary file its name. For `FileAssembly`. Raises as `put`."""
        target = self._file(key)
        try:
            checks = if_match is not None or create
            with self._locked(os.path.dirname(target), key, fcntl.LOCK_EX if checks else fcntl.LOCK_SH):
                if if_match is not None:
                    self._must_match(key, if_match)
                if create:
                    os.link(temporary, target)
                else:
                    os.replace(temporary, target)
        except FileExistsError as error:
            if create and error.filename2 == target:
                raise AlreadyExistsError("already exists", path=self._path(key)) from error
            raise self._clash(key, error) from error
        except OSError as error:
            raise self._clash(key, error) from error

    def _must_match(self, key: str, if_match: str) -> None:
        try:
            version = self.head(key).version
        except NotFoundError as error:
            raise ChangedError("the file is gone", path=self._path(key)) from error
        if version != if_match:
            raise ChangedError("the file has changed", path=self._path(key))

    def _clash(self, key: str, error: OSError) -> HeadraceError:
        if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY):
            return UnsupportedError(
                "on a disk a name cannot be a file and a folder at once", path=self._path(key), hint="use another key"
            )
        return from_os(self._path(key), error)

    @contextmanager
    def _locked(self, folder: str, key: str, how: int) -> Generator[None]:
        """While one writer that checks publishes in a folder (``LOCK_EX``), no other does: what makes check-then-rename
        one step, on this machine. Those that check nothing do not wait for each other (``LOCK_SH``).
        """
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        deadline = time.monotonic() + self._timeout_s
        try:
            while True:
                try:
                    fcntl.flock(descriptor, how | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise DeadlineError("another writer holds the folder", path=self._path(key)) from None
                    time.sleep(0.002)
            yield
        finally:
            os.close(descriptor)

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
            raise UnsupportedError("files hold no metadata", path=self._path(source))
        if source == target:
            return
        assembly = self.assemble(target)
        try:
            assembly.copy_part(1, 0, source, 0, info.size, if_match=None)
            assembly.complete()
        finally:
            assembly.abort()

    def open_version(self, key: str, if_match: str | None) -> int:
        """A descriptor of the file, for reading. Raises ChangedError where it is another version, OSError."""
        descriptor = os.open(self._file(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            info = _info(key, os.fstat(descriptor), self._path(key))
            if if_match is not None and info.version != if_match:
                raise ChangedError("the file has changed", path=self._path(key))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def open_file(self, key: str, version: str | None) -> int:
        try:
            return self.open_version(key, version)
        except OSError as error:
            raise from_os(self._path(key), error) from error

    def unfinished(self, prefix: str = "") -> Sequence[Unfinished]:
        """Temporary files, by their own names: which object each was to be is not written anywhere."""
        base = prefix.rpartition("/")[0]
        if base and self._inexpressible(base):
            return ()
        found: list[Unfinished] = []
        for folder, _, names in os.walk(os.path.join(self._folder, base)):
            below = os.path.relpath(folder, self._folder)
            for name in (name for name in names if name.startswith(_HIDDEN)):
                key = name if below == "." else f"{below}/{name}"
                with suppress(OSError):
                    found.append(Unfinished(key, os.stat(os.path.join(folder, name)).st_mtime_ns // 1000, key))
        return found

    def discard(self, left: Unfinished) -> None:
        if not os.path.basename(left.token).startswith(_HIDDEN) or self._inexpressible(os.path.dirname(left.token)):
            raise InputError("no unfinished write", path=self._path(left.token))
        try:
            os.unlink(f"{self._folder}/{left.token}")
        except FileNotFoundError:
            pass
        except OSError as error:
            raise from_os(self._path(left.token), error) from error
        self._prune(os.path.dirname(left.token))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                os.unlink(self._file(key))
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                continue
            except OSError as error:
                raise from_os(self._path(key), error) from error
            self._prune(os.path.dirname(key))

    def _prune(self, folder: str) -> None:
        """Folders that a deletion has emptied go too, as in a bucket."""
        while folder:
            try:
                os.rmdir(os.path.join(self._folder, folder))
            except OSError:
                return
            folder = os.path.dirname(folder)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        folder, _, _ = prefix.rpartition("/")
        if folder and self._inexpressible(folder):
            return
        base = f"{folder}/" if folder else ""
        page: list[ObjectInfo] = []
        for info in self._walk(os.path.join(self._folder, folder), base, prefix, start_after or "", ()):
            page.append(info)
            if len(page) == _PAGE:
                yield page
                page = []
        if page:
            yield page

    def list_folder(self, prefix: str = "") -> Folder:
        if prefix and (not prefix.endswith("/") or self._inexpressible(prefix[:-1])):
            return Folder((), ())
        folders: list[str] = []
        objects: list[ObjectInfo] = []
        for name, entry, is_folder in self._scan(os.path.join(self._folder, prefix)):
            if is_folder:
                folders.append(prefix + name)
            elif (info := _listed(prefix + name, entry)) is not None:
                objects.append(info)
        return Folder(tuple(folders), tuple(objects))

    def _walk(
        self, folder: str, base: str, prefix: str, after: str, above: tuple[tuple[int, int], ...]
    ) -> Iterator[ObjectInfo]:
        """Depth first. A folder sorts as its name with ``/``, which gives the order of whole keys."""
        try:
            status = os.stat(folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return
            raise from_os(f"file://{folder}", error) from error
        mark = (status.st_dev, status.st_ino)
        if mark in above:
            return
        for name, entry, is_folder in self._scan(folder):
            key = base + name
            if not (key.startswith(prefix) or (is_folder and prefix.startswith(key))):
                continue
            if is_folder:
                if key > after or after.startswith(key):
                    yield from self._walk(entry.path, key, prefix, after, (*above, mark))
            elif key > after and (info := _listed(key, entry)) is not None:
                yield info

    def _scan(self, folder: str) -> list[tuple[str, os.DirEntry[str], bool]]:
        """The entries of a folder in key order: (name, ending in ``/`` for folders; entry; is it a folder)."""
        found: list[tuple[str, os.DirEntry[str], bool]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(_HIDDEN):
                        continue
                    is_folder = _is_folder(entry)
                    found.append((entry.name + "/" if is_folder else entry.name, entry, is_folder))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise from_os(f"file://{folder}", error) from error
        # Code points sort as UTF-8 bytes do, but for the surrogates that stand for bytes that are not UTF-8.
        found.sort(key=lambda item: item[0])
        for name, _, _ in found:
            if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
                raise UnsupportedError(
                    f"holds a name that is not UTF-8: {os.fsencode(name)!r}", path=f"file://{folder}", hint="rename it"
                )
        return found

    def _path(self, key: str) -> str:
        return f"{self.url}{'' if self.url.endswith('/') else '/'}{key}"

    def _inexpressible(self, key: str) -> str | None:
        """Why a key can be no file name, or None."""
        if "\0" in key or not key:
            return "the empty key" if not key else "NUL"
        parts = key.split("/")
        if "" in parts:
            return "an empty part between or beside slashes"
        if "." in parts or ".." in parts:
            return "a part '.' or '..'"
        if any(part.startswith(_HIDDEN) for part in parts):
            return f"a part that starts with {_HIDDEN}"
        return None

    def _file(self, key: str) -> str:
        try:
            reason, raw = self._inexpressible(key), os.fsencode(key)
        except UnicodeEncodeError:
            reason, raw = "characters that are not UTF-8", b""
        if reason is not None:
            raise NameRefusedError(f"a file cannot be named {key!r}: {reason}", path=self.url, hint=_ELSEWHERE)
        if len(raw) > _LONGEST_PART and any(len(part) > _LONGEST_PART for part in raw.split(b"/")):
            reason = f"a part longer than {_LONGEST_PART} bytes"
            raise NameTooLongError(f"a file cannot be named {key!r}: {reason}", path=self.url, hint=_ELSEWHERE)
        return f"{self._folder}/{key}" if self._folder != "/" else f"/{key}"

    @property
    def largest(self) -> int:
        return _LARGEST_FILE  # the file system says so itself

    def check_key(self, key: str) -> None:
        if len(os.fsencode(self._file(key))) > _LONGEST_PATH:
            raise NameTooLongError("a path longer than Linux takes", path=self._path(key), hint=_ELSEWHERE)


class FileAssembly(Assembly):
    """See `headrace.store.protocol.Assembly`: a hidden file beside the object, written at any place, then renamed."""

    most = 1 << 30
    largest = 1 << 62

    def __init__(
        self, store: LocalStore, key: str, descriptor: int, temporary: str, if_match: str | None, create: bool
    ) -> None:
        self.key = key
        self._store = store
        self._path = f"{store.url}/{key}"
        self._descriptor = descriptor
        self._temporary: str | None = temporary
        self._if_match = if_match
        self._create = create
        self._parts = Parts(self._path)
        self._under_way = UnderWay(lambda: os.close(descriptor))

    def part(self, number: int, at: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        with self._use():
            pwrite(self._descriptor, view, at)
        self._parts.add(number, at, len(view))

    def copy_part(self, number: int, at: int, source: str, start: int, stop: int, *, if_match: str | None) -> None:
        with self._use():
            origin = self._store.open_version(source, if_match)
            try:
                if _copy_range(origin, start, stop, self._descriptor, at) < stop - start:
                    raise ChangedError("the file has become shorter", path=f"{self._store.url}/{source}")
            finally:
                os.close(origin)
        self._parts.add(number, at, stop - start)

    @contextmanager
    def _use(self) -> Generator[None]:
        """The descriptor stays open inside."""
        if not self._under_way.enter():
            raise NotFoundError("the upload has been thrown away", path=self._path)
        try:
            yield
        except OSError as error:
            raise from_os(self._path, error) from error
        finally:
            self._under_way.leave()

    def complete(self) -> ObjectInfo:
        size = self._parts.size()
        with self._use():
            os.ftruncate(self._descriptor, size)  # a part given twice may have been longer at first
            os.fsync(self._descriptor)
            info = _info(self.key, os.fstat(self._descriptor), self._path)
            temporary = self._temporary
            assert temporary is not None
            self._store.publish(self.key, temporary, self._if_match, self._create)
        if not self._create:
            self._temporary = None  # renamed; a link leaves the first name for `abort`
        self.abort()
        return info

    def abort(self) -> None:
        self._under_way.end()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _info(key: str, status: os.stat_result, path: str) -> ObjectInfo:
    if stat.S_ISDIR(status.st_mode):
        raise NotFoundError("is a folder, not an object", path=path)
    if not stat.S_ISREG(status.st_mode):
        raise UnsupportedError("is neither a file nor a folder", path=path)
    return ObjectInfo.of_file(key, status)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Also behind links. Raises OSError."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself: as one to nothing
            return False
        raise


def _listed(key: str, entry: os.DirEntry[str]) -> ObjectInfo | None:
    """What a listing tells of an entry; None if it is no object (socket, dangling link, just deleted)."""
    try:
        status = entry.stat()
    except OSError:
        return None
    return ObjectInfo.of_file(key, status) if stat.S_ISREG(status.st_mode) else None


def _read(descriptor: int, start: int, stop: int) -> memoryview:
    data = take(max(0, stop - start))
    done = 0
    while done < len(data):
        count = os.preadv(descriptor, [data[done:]], start + done)
        if count == 0:  # cut shorter while being read
            return data[:done]
        done += count
    return data


def _copy_range(origin: int, start: int, stop: int, target: int, at: int) -> int:
    """Bytes copied, inside the kernel; fewer than asked where the file ends before."""
    done = 0
    while done < stop - start:
        try:
            count = os.copy_file_range(origin, target, stop - start - done, start + done, at + done)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF):
                raise
            piece = os.pread(origin, min(_CHUNK, stop - start - done), start + done)  # two file systems, or an old one
            pwrite(target, memoryview(piece), at + done)
            count = len(piece)
        if count == 0:
            break
        done += count
    return done


def _mode_of(target: str) -> int | None:
    """What a file that is replaced lets others do; its successor lets them do the same. None: there is none."""
    try:
        status = os.lstat(target)
    except OSError:
        return None
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else None
