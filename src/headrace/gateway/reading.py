"""GET and HEAD of objects: warm ones from the cache's file by the kernel, cold ones as they come, kept on the way."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from email.header import Header

from headrace.base.errors import ChangedError, HeadraceError, NotFoundError
from headrace.cache import EntryLabel
from headrace.fetch import PART, Read
from headrace.gateway import conditions
from headrace.gateway.buckets import Bucket, Buckets
from headrace.gateway.changes import Changes
from headrace.gateway.failures import LATER, S3Failure
from headrace.gateway.known import Headers, Known, Seen
from headrace.gateway.requests import S3Request, part_number
from headrace.gateway.streaming import Pieces
from headrace.gateway.warm import WarmFile, WarmFiles
from headrace.http_server import FileSlice, Response, Stream
from headrace.namespace import Location, Namespace
from headrace.store.protocol import Blob, Described, ObjectInfo

_IN_MEMORY = 256 << 10
"""Bytes that may wait in memory for a client that is slow; what is longer comes from the cache's file, or in pieces."""
_SLOT_S = 5.0
"""How long a client waits for its turn before it is told to slow down."""
_OVERRIDES = ("content-type", "content-language", "expires", "cache-control", "content-disposition", "content-encoding")
_DEFAULT_TYPE = ("Content-Type", "binary/octet-stream")


class Reading:
    """Reads for clients. `at_once` on the loop, the rest on worker threads.

    Args:
        namespace: where objects are.
        buckets: how they are named.
        changes: what was written here.
        metadata: GETs too tell an object's own metadata and content type, for a HEAD of each that is not known.
    """

    def __init__(self, namespace: Namespace, buckets: Buckets, changes: Changes, *, metadata: bool) -> None:
        settings = namespace.fetcher.settings
        self._fetcher = namespace.fetcher
        self._buckets = buckets
        self._metadata = metadata
        self._known = Known(changes, settings.cache.ttl)
        self._warm = WarmFiles(changes)
        self._opened = set[str]()  # buckets whose store is open: to open one may take a while
        self._slots = threading.BoundedSemaphore(max(4, settings.fetch.memory // (32 << 20)))
        self._firsts = threading.BoundedSemaphore(max(4, settings.fetch.memory // PART))

    def at_once(self, request: S3Request) -> Response | None:
        """The answer to a GET of what is held open; None: it takes longer. Raises S3Failure."""
        file = self._warm.get(request.bucket, request.key)
        if file is None:
            return None
        headers, span = request.headers, None
        if conditions.any_in(headers):
            conditions.check(headers, file.version, file.mtime_us)
        if "range" in headers:
            span = conditions.span(headers, file.size, file.version)
        part = file.part(*(span or (0, file.size)))
        return None if part is None else _answer(request, file.headers, span, file.size, part)

    def close(self) -> None:
        """Let go of open files."""
        self._warm.close()

    def begin(
        self, request: S3Request, bucket: Bucket, answer: Callable[[Response | Exception], None],
        work: Callable[[Callable[[], None]], None],
    ) -> bool:  # fmt: skip
        """Begin to read what was never heard of, without a thread that waits for it; False: `get` has to do it, also
        where as many are on their way as memory allows.

        On the loop. `answer` is called on a fetch thread. `work` runs what takes long on another thread.
        """
        if bucket.name not in self._opened or self._metadata or not _plain(request):
            return False
        if self._known.get(request.bucket, request.key) is not None:
            return False
        location = self._buckets.locate(bucket, request.key)
        if location.store.local_root is not None:
            return False
        if not self._firsts.acquire(blocking=False):
            return False  # so much is on its way already that this one waits for a thread
        number = self._known.number(request.bucket, request.key)

        def settle(found: Callable[[], Response | Exception]) -> None:
            try:
                result = found()
            except Exception as error:
                result = error
            self._firsts.release()
            answer(result)

        def whole(blob: Blob) -> Response:
            seen = self._known.put(request.bucket, request.key, blob.info, None, number)
            work(lambda: self._keep(location, blob.info, blob.data))
            return _answer(request, _headers(seen), None, blob.info.size, blob.data)

        def come(_: Read, result: Blob | HeadraceError) -> None:
            if isinstance(result, HeadraceError):
                settle(lambda: result)
            elif _whole(result):
                settle(lambda: whole(result))
            else:
                work(lambda: settle(lambda: self._come(request, location, result, number)))

        try:
            self._fetcher.submit([_first(location)], come)
        except BaseException:
            self._firsts.release()
            raise
        return True

    def head(self, request: S3Request, bucket: Bucket) -> Response:
        """What the object is now, with its metadata; asked of the store each time."""
        _check_part(request)
        seen = self._ask(request, self._buckets.locate(bucket, request.key), metadata=True)
        info = seen.info
        conditions.check(request.headers, info.version, info.mtime_us)
        span = _part(request, info) or conditions.span(request.headers, info.size, info.version)
        start, stop = span or (0, info.size)
        length = (("Content-Length", str(stop - start)),)
        return _answer(request, _headers(seen) + length, span, info.size, b"")

    def get(self, request: S3Request, bucket: Bucket) -> Response:
        """The object, or a range of it. Raises S3Failure, HeadraceError."""
        _check_part(request)
        location = self._buckets.locate(bucket, request.key)
        self._opened.add(bucket.name)
        seen = self._known.get(request.bucket, request.key)
        if seen is not None and self._metadata and seen.told is None:
            seen = None
        if seen is None and not self._metadata and location.store.local_root is None and _plain(request):
            return self._never_seen(request, location)
        again = seen is not None
        while True:
            seen = seen or self._ask(request, location, metadata=self._metadata)
            try:
                return self._send(request, location, seen)
            except (ChangedError, NotFoundError):
                if not again:
                    raise
                again, seen = False, None

    def info(self, request: S3Request, location: Location) -> Seen:
        """An object as it is now, for who copies it."""
        return self._ask(request, location, metadata=True)

    def _ask(self, request: S3Request, location: Location, *, metadata: bool) -> Seen:
        number = self._known.number(request.bucket, request.key)
        if not metadata:
            info = self._fetcher.head(location.store, location.key)
            return self._known.put(request.bucket, request.key, info, None, number)
        described = location.store.describe(location.key)
        return self._known.put(request.bucket, request.key, described.info, _told(described), number)

    def _never_seen(self, request: S3Request, location: Location) -> Response:
        """With one request to the store, where the object is no longer than `PART`."""
        number = self._known.number(request.bucket, request.key)
        return self._come(request, location, self._fetcher.get(_first(location)), number)

    def _come(self, request: S3Request, location: Location, blob: Blob, number: bytes) -> Response:
        """The beginning of it is there."""
        info = blob.info
        if info.size < 0 or info.etag is None:  # nobody says how much there is, or which version
            return self._send(request, location, self._ask(request, location, metadata=False))
        seen = self._known.put(request.bucket, request.key, info, None, number)
        first = blob.data
        self._keep(location, info, first)
        if len(first) == info.size and info.size <= _IN_MEMORY:
            return _answer(request, _headers(seen), None, info.size, first)
        part = self._from_file(request, location, seen, 0, info.size)
        if part is not None:
            return _answer(request, _headers(seen), None, info.size, part)
        pieces = self._pieces(location, info, len(first), info.size, first)
        return _answer(request, _headers(seen), None, info.size, Stream(pieces, info.size))

    def _keep(self, location: Location, info: ObjectInfo, first: memoryview) -> None:
        """What came of an object that was not known is kept as all else is. A full or failing disk keeps nothing."""
        cache = self._fetcher.cache
        if cache is None or not self._fetcher.keeps(location.store) or not info.size:
            return
        label = EntryLabel(location.store.identity, location.key, info.version, info.size)
        name = cache.name(label.identity, label.key, label.version, label.size)
        if len(first) == info.size:
            cache.fill(name, first, label)
            return
        entry = cache.blocks(name, info.size, label)
        if entry is not None:
            with entry:
                if not entry.complete:
                    entry.write(0, first[: len(first) // entry.block * entry.block])

    def _send(self, request: S3Request, location: Location, seen: Seen) -> Response:
        info = seen.info
        conditions.check(request.headers, info.version, info.mtime_us)
        span = _part(request, info) or conditions.span(request.headers, info.size, info.version)
        start, stop = span or (0, info.size)
        headers = _headers(seen)
        if start == stop:
            return _answer(request, headers, span, info.size, b"")
        store, key = location.store, location.key
        if store.local_root is not None:
            fd = store.open_file(key, info.version)
            return _answer(request, headers, span, info.size, _closing(fd, start, stop))
        part = self._from_file(request, location, seen, start, stop)
        if part is not None:
            return _answer(request, headers, span, info.size, part)
        if stop - start <= _IN_MEMORY:
            data = self._fetcher.get(Read(store, key, info.size, info.version, start, stop)).data
            return _answer(request, headers, span, info.size, data)
        pieces = self._pieces(location, info, start, stop, None)
        return _answer(request, headers, span, info.size, Stream(pieces, stop - start))

    def _from_file(
        self, request: S3Request, location: Location, seen: Seen, start: int, stop: int
    ) -> FileSlice | bytes | None:
        """Bytes of the cache's file, where it is there; it is held open from now on."""
        info = seen.info
        fd = self._fetcher.file(Read(location.store, location.key, info.size, info.version))
        if fd is None:
            return None
        file = WarmFile(fd, info.size, info.version, info.mtime_us, until=seen.until, number=seen.number,
                        headers=_headers(seen))  # fmt: skip
        part = file.part(start, stop)
        self._warm.put(request.bucket, request.key, file)
        return part

    def _pieces(
        self, location: Location, info: ObjectInfo, start: int, stop: int, first: memoryview | None
    ) -> Pieces:
        """Raises S3Failure: too many are on their way already. As `Fetcher.get`: the first bytes cannot be had."""
        if not self._slots.acquire(timeout=_SLOT_S):
            raise S3Failure("SlowDown", "Please reduce your request rate.", headers=LATER)
        try:
            return Pieces(lambda: self._fetcher, location.store, info, start, stop, first, self._slots.release)
        except BaseException:
            self._slots.release()
            raise


def _first(location: Location) -> Read:
    return Read(location.store, location.key, start=0, stop=PART)


def _whole(blob: Blob) -> bool:
    return blob.info.etag is not None and blob.info.size == len(blob.data) <= _IN_MEMORY


def _plain(request: S3Request) -> bool:
    headers = request.headers
    return "range" not in headers and "partNumber" not in request.query and not conditions.any_in(headers)


def _check_part(request: S3Request) -> None:
    """Before anything is asked of the store. Raises S3Failure: it names no part, or a range, too."""
    if "partNumber" in request.query:
        part_number(request)
        if "range" in request.headers:
            raise S3Failure("InvalidRequest", "Cannot specify both Range header and partNumber query parameter")


def _part(request: S3Request, info: ObjectInfo) -> tuple[int, int] | None:
    """Every object is one part here: in which it was written, no store tells. Raises S3Failure: it has no such part."""
    if "partNumber" not in request.query:
        return None
    if part_number(request) != 1:
        raise S3Failure("InvalidPartNumber", "The requested partnumber is not satisfiable")
    return (0, info.size) if info.size else None


def _told(described: Described) -> Headers:
    kept = {name.title(): value for name, value in (described.headers or {}).items()}
    own = {f"x-amz-meta-{name}": value for name, value in described.metadata.items()}
    return tuple(_sayable({**kept, **own}).items())


def _sayable(headers: dict[str, str]) -> dict[str, str]:
    """What is not Latin-1 travels as S3 sends it: RFC 2047's words."""
    return {
        name: value if value.isascii() else Header(value, "utf-8", maxlinelen=10**6).encode()
        for name, value in headers.items()
    }


def _headers(seen: Seen) -> Headers:
    info, told = seen.info, seen.told or ()
    headers: Headers = (("ETag", conditions.etag_of(info.version)), ("Accept-Ranges", "bytes"))
    if info.mtime_us:
        headers += (("Last-Modified", conditions.http_date(info.mtime_us)),)
    if not any(name == _DEFAULT_TYPE[0] for name, _ in told):
        headers += (_DEFAULT_TYPE,)
    return headers + told


def _answer(
    request: S3Request, headers: Headers, span: tuple[int, int] | None, size: int,
    body: bytes | memoryview | FileSlice | Stream,
) -> Response:  # fmt: skip
    headers = (*headers, ("x-amz-request-id", request.id))
    status = 200
    if span is not None:
        status = 206
        headers += (("Content-Range", f"bytes {span[0]}-{span[1] - 1}/{size}"),)
    if request.query:
        if "partNumber" in request.query:
            headers += (("x-amz-mp-parts-count", "1"),)
        headers = _overridden(request, headers)
    return Response(status, headers, body)


def _overridden(request: S3Request, headers: Headers) -> Headers:
    asked = {name: request.query[f"response-{name}"] for name in _OVERRIDES if f"response-{name}" in request.query}
    if not asked:
        return headers
    kept = tuple(pair for pair in headers if pair[0].lower() not in asked)
    return kept + tuple((name.title(), value) for name, value in asked.items())


def _closing(fd: int, start: int, stop: int) -> FileSlice:
    return FileSlice(fd, start, stop - start, lambda: os.close(fd))

