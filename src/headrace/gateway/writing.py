"""PUT, copy and delete of objects: compared with what the client says of them before anything is published."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from email.header import decode_header, make_header
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from headrace.base.errors import HeadraceError
from headrace.fetch import Read
from headrace.gateway import conditions
from headrace.gateway.buckets import Bucket, Buckets
from headrace.gateway.changes import Changes
from headrace.gateway.checksums import Sums
from headrace.gateway.chunked import decoded
from headrace.gateway.failures import S3Failure, denied, no_room, translated
from headrace.gateway.listing import iso_time
from headrace.gateway.requests import S3Request, xml_headers
from headrace.gateway.signing import STREAMED
from headrace.gateway.xml import MalformedXml, document, element, parsed
from headrace.http_server import Response
from headrace.namespace import Location, Namespace
from headrace.store.protocol import HEADERS, ObjectInfo
from headrace.upload import LARGEST_COPY, Uploader

_IN_MEMORY_BYTES = 8 << 20
"""Longer bodies go to a file until they are whole."""
_META = "x-amz-meta-"
_MOST_DELETED = 1000
"""Keys in one request, by S3."""
_CONDITIONS = ("x-amz-if-match-size", "x-amz-if-match-last-modified-time")
_REFUSED = ("x-amz-server-side-encryption-customer-algorithm", "x-amz-tagging", "x-amz-object-lock-mode",
            "x-amz-website-redirect-location", "x-amz-write-offset-bytes")  # fmt: skip


class Body:
    """A request's body, whole and compared: in memory while it is short, else in an unnamed file. Close it."""

    def __init__(self, size: int, sums: Sums, data: bytes | None, fd: int | None) -> None:
        self.size, self.sums, self.data, self.fd = size, sums, data, fd

    def close(self) -> None:
        """Let go of the file."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def received(request: S3Request, spool: str, into: int | None = None) -> tuple[Body, dict[str, str]]:
    """Read the body, and compare it with all that is said of it. Returns also the headers that say what was compared.

    Args:
        request: whose body is streamed.
        spool: a folder for what does not fit into memory.
        into: a file that gets it, however short; then its MD5 is computed, too.

    Raises:
        S3Failure: it is not what the client says. UnreachableError, TryAgainError: the client has gone, or is too slow.
    """
    signed, stream, headers = request.signed, request.exchange.stream, request.headers
    assert signed is not None
    assert stream is not None
    chunked = signed.payload in STREAMED
    told = headers.get("x-amz-decoded-content-length" if chunked else "content-length")
    if told is None or not told.isdecimal():
        raise S3Failure("MissingContentLength", "You must provide the Content-Length HTTP header.")
    size = int(told)
    if size > LARGEST_COPY:
        raise S3Failure("EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
    sums = Sums.of(headers, signed.payload, md5=into is not None)
    pieces = decoded(stream.read, signed, sums) if chunked else iter(stream)
    fd = into
    if fd is None and size > _IN_MEMORY_BYTES:
        with tempfile.TemporaryFile(dir=spool) as unnamed:
            fd = os.dup(unnamed.fileno())
    try:
        data = _gathered(pieces, size, sums, fd)
        compared = sums.check()
    except BaseException:
        if fd is not None and into is None:
            os.close(fd)
        raise
    return Body(size, sums, data, None if into is not None else fd), compared


def _gathered(pieces: Iterator[bytes], size: int, sums: Sums, fd: int | None) -> bytes | None:
    held, have = list[bytes](), 0
    for piece in pieces:
        have += len(piece)
        if have > size:
            break
        sums.update(piece)
        if fd is None:
            held.append(piece)
        else:
            try:
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view) :]
            except OSError as error:
                raise no_room(error) from error
    if have != size:
        raise S3Failure("IncompleteBody", "You did not provide the number of bytes specified by the Content-Length "
                        "HTTP header")  # fmt: skip
    return b"".join(held) if fd is None else None


class Writing:
    """Writes for clients, on worker threads.

    Args:
        namespace: where objects are.
        buckets: how they are named.
        changes: told of each write.
        spool: a folder for bodies.
        written: called after each write.
    """

    def __init__(
        self, namespace: Namespace, buckets: Buckets, changes: Changes, spool: str, written: Callable[[], None]
    ) -> None:
        self.namespace = namespace
        self.buckets = buckets
        self.spool = spool
        self._changes = changes
        self._written = written
        self.uploader = Uploader()

    def close(self) -> None:
        """End the threads."""
        self.uploader.close()

    def writable(self, request: S3Request, bucket: Bucket, key: str) -> Location:
        """Where an object goes. Raises S3Failure: the client may not write there, or nobody may."""
        client = request.client
        if not client.write or not client.sees(bucket.name, key):
            raise denied()
        location = self.buckets.locate(bucket, key)
        if location.read_only:
            raise denied("Access Denied: it is attached read-only.")
        return location

    def changed(self, request: S3Request, location: Location, key: str) -> None:
        """Something was written there, or may have been."""
        for name in self.buckets.names:
            bucket = self.buckets.get(name)
            if location.path.startswith(bucket.root.rstrip("/") + "/"):
                self._changes.changed(name, bucket.key(location.path))
        self._changes.changed(request.bucket, key)
        self.namespace.forget(location.path)
        self._written()

    def put(self, request: S3Request, bucket: Bucket) -> Response:
        """PutObject. Raises S3Failure, HeadraceError."""
        location = self.writable(request, bucket, request.key)
        metadata, headers = metadata_of(request), headers_of(request)
        if_match, create = self.wishes(request)
        location.store.check_key(location.key)
        body, compared = received(request, self.spool)
        with ExitStack() as stack:
            stack.callback(body.close)
            stack.callback(self.changed, request, location, request.key)
            if body.fd is None:
                info = location.store.put(location.key, body.data or b"", if_match=if_match, create=create,
                                          metadata=metadata, headers=headers)  # fmt: skip
            else:
                info = self.uploader.put_file(location.store, location.key, body.fd, body.size, metadata,
                                              if_match=if_match, create=create, headers=headers)  # fmt: skip
        return Response(200, [("ETag", conditions.etag_of(info.version)), ("x-amz-request-id", request.id),
                              *compared.items()])  # fmt: skip

    def wishes(self, request: S3Request) -> tuple[str | None, bool]:
        """If-Match and If-None-Match of a write. Raises S3Failure."""
        none, match = request.headers.get("if-none-match"), request.headers.get("if-match")
        if none is not None and none.strip() != "*":
            raise S3Failure("NotImplemented", "If-None-Match of a write takes * only.")
        for name in _REFUSED:
            if name in request.headers:
                what = f"A header you provided implies functionality that is not implemented: {name}"
                raise S3Failure("NotImplemented", what)
        return (match.strip().strip('"') if match is not None else None), none is not None

    def delete(self, request: S3Request, bucket: Bucket) -> Response:
        """DeleteObject."""
        location = self.writable(request, bucket, request.key)
        for name in _CONDITIONS:
            if name in request.headers:
                raise S3Failure("NotImplemented", f"{name} is not implemented here.")
        match = request.headers.get("if-match")
        if match is not None and match != "*":
            info = location.store.head(location.key)
            conditions.check({"if-match": match}, info.version, 0)
        try:
            location.store.delete([location.key])
        finally:
            self.changed(request, location, request.key)
        return Response(204, [("x-amz-request-id", request.id)])

    def delete_many(self, request: S3Request, bucket: Bucket) -> Response:
        """DeleteObjects. Raises S3Failure, before any is deleted: an object has conditions, or names a version."""
        if not request.client.write:
            raise denied()  # before its XML is read
        root = read_xml(request, self.spool, "Delete")
        quiet = (root.findtext("Quiet") or "").strip().lower() == "true"
        keys = [one.findtext("Key") or "" for one in root.iter("Object")]
        if not 1 <= len(keys) <= _MOST_DELETED or not all(keys):
            raise S3Failure("MalformedXML", "The XML you provided was not well-formed or did not validate against our "
                            "published schema")  # fmt: skip
        for one in root.iter("Object"):
            asked = [name for name in ("ETag", "Size", "LastModifiedTime") if one.find(name) is not None]
            if (one.findtext("VersionId") or "null").strip() != "null":
                asked.append("VersionId")
            if asked:
                raise S3Failure("NotImplemented", f"{asked[0]} of an object to delete is not implemented here.")
        failed: dict[str, S3Failure] = {}
        places: dict[int, list[tuple[str, Location]]] = {}
        for key in keys:
            try:
                location = self.writable(request, bucket, key)
                places.setdefault(id(location.store), []).append((key, location))
            except (S3Failure, HeadraceError) as error:
                failure = translated(error)
                if failure.code != "NoSuchKey":
                    failed[key] = failure
        for group in places.values():
            failed |= self._delete_group(request, group)
        said = [element("Error", element("Key", key), element("Code", one.code), element("Message", one.message))
                for key, one in failed.items()]  # fmt: skip
        if not quiet:
            said += [element("Deleted", element("Key", key)) for key in keys if key not in failed]
        return Response(200, xml_headers(request), document("DeleteResult", said))

    def _delete_group(self, request: S3Request, group: list[tuple[str, Location]]) -> dict[str, S3Failure]:
        store = group[0][1].store
        try:
            store.delete([location.key for _, location in group])
        except HeadraceError as error:
            if len(group) == 1:
                return {group[0][0]: translated(error)}
            failed: dict[str, S3Failure] = {}
            for one in group:
                failed |= self._delete_group(request, [one])
            return failed
        finally:
            for key, location in group:
                self.changed(request, location, key)
        return {}

    def copy(self, request: S3Request, bucket: Bucket) -> Response:
        """CopyObject: inside the store where both are in one."""
        target = self.writable(request, bucket, request.key)
        source, _ = self.source(request)
        described = source.store.describe(source.key)
        check_source(request, described.info)
        replaced = request.headers.get("x-amz-metadata-directive", "COPY").upper() == "REPLACE"
        metadata = (metadata_of(request) or {}) if replaced else None
        headers = headers_of(request) if replaced else None
        if_match, create = self.wishes(request)
        same = source.store is target.store
        if same and source.key == target.key and metadata is None:
            raise S3Failure("InvalidRequest", "This copy request is illegal because it is trying to copy an object to "
                            "itself without changing the object's metadata, storage class, website redirect location "
                            "or encryption attributes.")  # fmt: skip
        try:
            if same and if_match is None and not create:
                target.store.copy(source.key, target.key, metadata=metadata, headers=headers)
                info = target.store.head(target.key)
            else:
                if metadata is None or headers is None:
                    metadata, headers = described.metadata, own_headers(described.headers or {})
                bring, size = self.bring(source, described.info, 0), described.info.size
                info = self.uploader.put_from(target.store, target.key, size, bring, metadata,
                                              if_match=if_match, create=create, headers=headers)  # fmt: skip
        finally:
            self.changed(request, target, request.key)
        said = [element("LastModified", iso_time(info.mtime_us)), element("ETag", conditions.etag_of(info.version))]
        return Response(200, xml_headers(request), document("CopyObjectResult", said))

    def bring(self, source: Location, info: ObjectInfo, start: int) -> Callable[[int, int], memoryview]:
        """Reads a version for who writes it elsewhere, from byte `start`."""
        def read(first: int, last: int) -> memoryview:
            if first == last:
                return memoryview(b"")
            wanted = Read(source.store, source.key, info.size, info.version, start + first, start + last)
            return self.namespace.fetcher.get(wanted).data

        return read

    def source(self, request: S3Request) -> tuple[Location, Bucket]:
        """Of a copy. Raises S3Failure: the client may not read it."""
        text = unquote(request.headers["x-amz-copy-source"].partition("?")[0]).lstrip("/")
        if "versionId=" in request.headers["x-amz-copy-source"]:
            raise S3Failure("NotImplemented", "Versions of objects are not told apart here.")
        name, _, key = text.partition("/")
        if not name or not key:
            raise S3Failure("InvalidArgument", "Copy Source must mention the source bucket and key: "
                            "sourcebucket/sourcekey")  # fmt: skip
        if not request.client.sees(name, key):
            raise denied()
        bucket = self.buckets.get(name)
        return self.buckets.locate(bucket, key), bucket


def check_source(request: S3Request, info: ObjectInfo) -> None:
    """The conditions on a copy's source. Raises S3Failure."""
    conditions.check(request.headers, info.version, info.mtime_us, prefix="x-amz-copy-source-")


def metadata_of(request: S3Request) -> dict[str, str] | None:
    """The user's own, of a write."""
    found = {name.removeprefix(_META): value for name, value in request.headers.items() if name.startswith(_META)}
    return {name: _words(value) for name, value in found.items()} or None


def headers_of(request: S3Request) -> dict[str, str]:
    """The object's own, of a write: its content type and the like."""
    return own_headers(request.headers)


def own_headers(given: Mapping[str, str]) -> dict[str, str]:
    """Those of them that stores keep. What is not ASCII is left out: a write that is whole does not fail for it."""
    told = {name: given.get(name, "") for name in HEADERS}
    return {name: value for name, value in told.items() if value and value.isascii() and value.isprintable()}


def _words(value: str) -> str:
    """RFC 2047's words, which SDKs send for what is not ASCII, and UTF-8 that came as Latin-1."""
    try:
        text = value if value.isascii() else value.encode("latin-1").decode()
        return str(make_header(decode_header(text))) if "=?" in text else text
    except (UnicodeError, LookupError, ValueError):
        return value


def read_xml(request: S3Request, spool: str, name: str) -> Element:
    """A body in XML, at most 2 MiB. Raises S3Failure."""
    length = request.headers.get("x-amz-decoded-content-length") or request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > 2 << 20:
        raise S3Failure("MalformedXML", "The XML you provided is too long")
    body, _ = received(request, spool)
    try:
        return parsed(body.data or b"", name)
    except MalformedXml:
        raise S3Failure("MalformedXML", "The XML you provided was not well-formed or did not validate against our "
                        "published schema") from None  # fmt: skip

