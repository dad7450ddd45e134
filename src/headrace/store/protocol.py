"""The one narrow protocol between headrace and an object store.

A key is the object's full name below the store's root (bucket + prefix for S3), any UTF-8, no leading ``/`` added or
removed. All calls are synchronous, may be made from any thread, end within the store's deadline, and raise only
`headrace.base.errors`.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from headrace.base.errors import HeadraceError, UnsupportedError
from headrace.store.http1 import Endpoint

Buffer: TypeAlias = "bytes | bytearray | memoryview"


_STAMP = re.compile(r"\d{1,18}-\d{1,18}")


class ObjectInfo(NamedTuple):
    """What a listing, a HEAD or a GET tells of one object. A tuple, because millions are made.

    `etag` is kept exactly as the store sent it, without the surrounding quotes; None where the store has none.
    `mtime_us`: last modification, microseconds since the epoch.
    """

    key: str
    size: int
    etag: str | None = None
    mtime_us: int = 0
    version_id: str | None = None

    @property
    def version(self) -> str:
        """Identity of the bytes: the ETag, or size and mtime where the store has no ETag."""
        return self.etag if self.etag is not None else f"{self.size}-{self.mtime_us}"

    @classmethod
    def of_file(cls, key: str, status: os.stat_result) -> ObjectInfo:
        """Of an object that is a file of this machine."""
        return cls(key, status.st_size, None, status.st_mtime_ns // 1000)


def is_stamp(version: str) -> bool:
    """Whether a `version` is no ETag, but size and time: S3's ETags with a dash have 32 digits before it."""
    return _STAMP.fullmatch(version) is not None


class Blob(NamedTuple):
    """Bytes read, and the object they came from. `data` supports the buffer protocol and ``len``. `more`: what follows
    it, only where the caller said that bytes in pieces will do.

    From `headrace.fetch` both are read-only: the same bytes may be on their way into the cache, or to somebody else.
    """

    data: memoryview
    info: ObjectInfo
    more: tuple[memoryview, ...] = ()


class Described(NamedTuple):
    """One object as HEAD tells it. `metadata`: the user's own, names in lower case; empty where there is none.

    `headers`: others that are lost where metadata is replaced, unless they are given again; names in lower case.
    """

    info: ObjectInfo
    metadata: Mapping[str, str]
    headers: Mapping[str, str] | None = None


HEADERS = ("content-type", "content-disposition", "content-language", "cache-control")
"""An object's own headers, which a write may give it. A content encoding is none: Google unpacks what says that it is
packed on its way out, whole where a range is asked for, and so does any server before a store that does as it does."""


class Unfinished(NamedTuple):
    """What a write that never ended has left behind. `token` names it to the store; `started_us` since the epoch."""

    key: str
    started_us: int
    token: str


@dataclass(frozen=True, slots=True)
class Folder:
    """One level of a listing: names of sub-folders (full key prefixes ending in ``/``) and the objects beside them."""

    folders: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What this store was *seen* to do (see `headrace.store.probe`); None: not tried yet."""

    has_etag: bool | None = None
    create_only_put: bool | None = None
    conditional_put: bool | None = None
    conditional_get: bool | None = None
    start_after: bool | None = None
    etag_is_md5: bool | None = None
    exact_keys: bool | None = None
    """Keys with ``//`` or at the end ``/`` are kept apart from their tidier neighbours, content and all."""
    metadata: bool | None = None
    """Objects carry metadata of the user's, and headers of their own."""
    parts: bool | None = None
    """`Store.assemble` sends each part as it comes; else parts gather in a file and go in one piece at the end."""
    copied_parts: bool | None = None
    """`Assembly.copy_part` copies inside the store; else the bytes come here and go back."""
    conditional_parts: bool | None = None
    """`Store.assemble` keeps `create` and `if_match`."""


LARGEST_OBJECT = 5 << 40
"""Bytes that an object may have in any store but files: Google's and most S3 servers' limit."""
RENEWALS = 3
"""So many times one request that was refused asks for other keys: they may be replaced again before it is sent."""


class Wire(Protocol):
    """A store that can be read by plain HTTP/1.1 GETs, for the multiplexing reader in `headrace.fetch`.

    `request` must be cheap (about 10 µs): it is called once for each object read, on the reader's thread.
    """

    ranges: bool
    """Whether every server of this kind sends parts of objects. Those that do not send all of it each time."""

    @property
    def endpoint(self) -> Endpoint: ...

    def request(self, key: str, start: int, stop: int | None, if_match: str | None) -> bytes:
        """The complete, signed head of a GET of bytes [start, stop) of `key`, ending in an empty line.

        No Range header when start == 0 and stop is None. Raises CredentialsError when none can be had.
        """
        ...

    def error(self, key: str, status: int, body: bytes) -> HeadraceError:
        """The headrace error for an HTTP answer that is neither 200 nor 206. `body`: at most its first 64 KiB."""
        ...

    def refresh(self) -> bool:
        """Drop cached credentials after a 401 or 403; True when a retry may now succeed."""
        ...


class Assembly(ABC):
    """A large object on its way, part by part: nothing of it is visible before `complete`. From `Store.assemble`.

    Parts are numbered from 1 and lie in the order of their numbers, without gaps; they may be given in any order, from
    several threads at once, and a number given twice counts once, the last. Every part but the last holds `smallest`
    to `largest` bytes, and there are at most `most`. Used once: after `complete` or `abort` no call is allowed, but
    `abort` at any time, also while parts are under way.
    """

    key: str
    smallest: int = 1
    largest: int = 5 << 30
    most: int = 10_000

    @abstractmethod
    def part(self, number: int, at: int, data: Buffer) -> None:
        """Part `number`, which starts at byte `at` of the object.

        Raises:
            NotFoundError: the upload has been aborted. NoRoomError, DeniedError, TryAgainError.
        """

    @abstractmethod
    def copy_part(self, number: int, at: int, source: str, start: int, stop: int, *, if_match: str | None) -> None:
        """Part `number`: bytes [start, stop) of the object `source` of the same store.

        `if_match`: the version of the source that is meant. Not every server looks at it, so who needs certainty
        compares `Store.head` once more before `complete`.

        Raises:
            ChangedError (the source is another version), NotFoundError, and as `part`.
        """

    @abstractmethod
    def complete(self) -> ObjectInfo:
        """Make the object visible, whole, in the place of what was there. At least one part is needed.

        Raises:
            ChangedError, AlreadyExistsError: the condition given to `assemble` does not hold. As `part`.
            InputError: the parts leave a gap.
        """

    @abstractmethod
    def abort(self) -> None:
        """Throw all parts away; no error if that fails. Safe to call twice, and after `complete`."""


class Store(ABC):
    """One object store reached through one set of credentials. See the module's docstring for the rules."""

    url: str
    """Normalised root without credentials and without trailing slash, ``s3://bucket/prefix``."""
    lists_by_pages: bool = False
    """Whether `list_pages` asks for one page at a time, in the store's order; else for the whole folder each time."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    def record(self, seen: Capabilities) -> None:  # noqa: B027
        """Remember what `headrace.store.probe` saw this store do. A store that knows itself ignores it."""

    @property
    def identity(self) -> str:
        """What the cache keys on: two stores with equal identity hold the same objects (URL + endpoint)."""
        return self.url

    @property
    def local_root(self) -> str | None:
        """Absolute folder whose files are the objects (``file://``), else None. Such a store is never cached."""
        return None

    @property
    def largest(self) -> int:
        """Bytes that one object may have."""
        return LARGEST_OBJECT

    def wire(self) -> Wire | None:
        """The fast way to read, where there is one."""
        return None

    def variables(self) -> Mapping[str, str]:
        """The environment in which another program reaches this store as we do. The values are secret.

        Raises CredentialsError.
        """
        return {}

    def presigned(self, key: str, seconds: int) -> str:  # noqa: ARG002
        """A URL by which anybody can GET the object for so long, without keys. Nothing is asked: it need not exist.

        Raises:
            UnsupportedError: this store has none. CredentialsError.
        """
        raise UnsupportedError("has no URLs that anybody can read by", path=f"{self.url}/{key}")

    def check_key(self, key: str) -> None:  # noqa: B027
        """Refuse a key that nothing can be written under, as `put` would, before anything is.

        Costs nothing, but for an odd key on a server that was never seen to keep such ones: it is asked, once. A key
        that ends in ``/`` is taken for that of an empty object, a folder's marker.

        Raises:
            NameTooLongError, NameRefusedError. TryAgainError, DeniedError: the server could not be asked.
        """

    @abstractmethod
    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        """Bytes [start, stop) of an object; stop None or past the end: to the end.

        Raises:
            NotFoundError, ChangedError (the ETag is not `if_match`), DeniedError, TryAgainError.
            InputError: start is past the end (start == size gives an empty Blob).
        """

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        """The whole object, where it is another version than `version` by now; None: it is still that one.

        One request, for who looks at one small object again and again. Where the store knows the condition
        (``If-None-Match``), an object that has not changed is not sent. Raises as `get`.
        """
        blob = self.get(key)
        return None if blob.info.version == version else blob

    def open_file(self, key: str, version: str | None) -> int:
        """A descriptor of an object's file, for reading, where `local_root` says that there are files.

        Raises:
            ChangedError: the file is not that version. UnsupportedError: there are no files. Otherwise as `get`.
        """
        raise UnsupportedError(f"has no file of version {version}", path=f"{self.url}/{key}")

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Raises NotFoundError, DeniedError, TryAgainError."""

    def describe(self, key: str) -> Described:
        """As `head`, with the object's metadata. Raises as `head`."""
        return Described(self.head(key), {})

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        """Every object whose key starts with `prefix` (plain string prefix), in pages, in the store's key order
        (UTF-8 byte order wherever the store promises one), strictly after `start_after`.
        """

    @abstractmethod
    def list_folder(self, prefix: str = "") -> Folder:
        """One level below `prefix` (empty, or ending in ``/``), complete, delimiter ``/``."""

    def list_pages(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Folder]:
        """The same page by page, as the store gives it: a folder of a million keys need not be held at once.

        `start_after`: only what comes after this key; a folder that it lies in may come too.
        """
        whole = self.list_folder(prefix)
        if start_after is None:
            yield whole
        else:
            folders = tuple(one for one in whole.folders if one > start_after)
            yield Folder(folders, tuple(one for one in whole.objects if one.key > start_after))

    @abstractmethod
    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        """Write a whole object atomically (multipart inside where it is large).

        `create`: only if absent, else AlreadyExistsError. `if_match`: only over that ETag, else ChangedError.
        `metadata`: the user's own. `headers`: the object's, of `HEADERS`; a store without metadata passes them over.
        Raises UnsupportedError where the store cannot keep such a promise, or has no metadata; InputError where no
        header holds a name or a value.
        """

    @abstractmethod
    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Server-side where the store can.

        `metadata` takes the place of the source's (`target` may then be `source`); None keeps it. `headers` take the
        place of the source's together with it; None keeps those.
        Raises NotFoundError, UnsupportedError (a store without metadata).
        """

    def redescribe(self, known: Described, metadata: Mapping[str, str]) -> None:
        """Give an object other metadata, where it is still the version `known`, so that it need not be asked for again.

        Not every server looks at the version. Raises ChangedError, and as `copy`.
        """
        self.copy(known.info.key, known.info.key, metadata=metadata)

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,  # noqa: ARG002
        create: bool = False,  # noqa: ARG002
        metadata: Mapping[str, str] | None = None,  # noqa: ARG002
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
    ) -> Assembly:
        """Begin a large object. Arguments and errors as `put`; the conditions hold when it is completed."""
        raise UnsupportedError("this store takes whole objects only", path=f"{self.url}/{key}")

    def unfinished(self, prefix: str = "") -> Sequence[Unfinished]:  # noqa: ARG002
        """Writes of keys below `prefix` that were begun and neither ended nor thrown away: under way, or left over."""
        return ()

    def discard(self, left: Unfinished) -> None:  # noqa: B027
        """Throw one away. No error if it is gone, or has become an object."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Idempotent: an absent key is no error."""

    def close(self) -> None:  # noqa: B027
        """Release connections. Further calls are not allowed."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How to reach one store; empty fields fall back to the standard environment variables, then to defaults.

    Secrets never appear in ``repr``.
    """

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    anonymous: bool = False
    requester_pays: bool = False
    path_style: bool | None = None
    ca_file: str | None = None
    allow_http: bool | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    sse: str | None = None
    """How S3 encrypts what is written: ``AES256``, ``aws:kms`` or ``aws:kms:dsse``."""
    sse_kms_key_id: str | None = None
    sse_c: str | None = field(default=None, repr=False)
    """The customer's own key, 32 bytes in base64, sent with each request for an object's bytes."""
    storage_class: str | None = None
    acl: str | None = None
    timeout_s: float = 60.0
    connect_timeout_s: float = 5.0
    retries: int = 8
    extra: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    """Anything else, passed to the backend by name (Azure account, GCS service account file, fsspec options)."""
