"""Multipart uploads: their parts wait in a folder that all processes of a gateway share, and go to the store when the
client completes them, whole or not at all.

A store's own parts cannot serve: most stores have none that another process could go on with.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from headrace.gateway import conditions
from headrace.gateway.buckets import Bucket
from headrace.gateway.checksums import NAMES, PREFIX, running
from headrace.gateway.failures import S3Failure, denied
from headrace.gateway.listing import iso_time
from headrace.gateway.requests import S3Request, part_number, xml_headers
from headrace.gateway.writing import Writing, check_source, headers_of, metadata_of, read_xml, received
from headrace.gateway.xml import Raw, document, element
from headrace.http_server import Response
from headrace.upload import SMALLEST_PART

_ID = re.compile(r"[0-9a-f]{32}\Z")
_PART = re.compile(r"(\d{5})\.([0-9a-f]{32})\Z")
_COPIED = re.compile(r"bytes=([0-9]{1,19})-([0-9]{1,19})\Z")
_FORGOTTEN_S = 7 * 86400
"""An upload that nobody went on with for a week is not gone on with."""
_CLEARED_S = 3600.0
"""Between two looks for such."""
_PIECE_BYTES = 4 << 20
"""Read at a time: bounds the memory of a copy."""
_ENDED = "ended.json"


@dataclass(frozen=True, slots=True)
class PartFile:
    """One part, in its file."""

    number: int
    etag: str
    path: str
    size: int
    mtime_us: int


class Uploads:
    """Multipart uploads. On worker threads; every process has one, over the same folder.

    Args:
        writing: where they end.
        folder: made where it is missing. What nobody touched for a week is thrown away.
    """

    def __init__(self, writing: Writing, folder: str) -> None:
        self._writing = writing
        self._folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._cleared = float("-inf")  # monotonic seconds
        self._clear()

    def begin(self, request: S3Request, bucket: Bucket) -> Response:
        """CreateMultipartUpload."""
        location = self._writing.writable(request, bucket, request.key)
        location.store.check_key(location.key)
        self._clear()
        name = secrets.token_hex(16)
        told = {"bucket": bucket.name, "key": request.key, "metadata": metadata_of(request),
                "headers": headers_of(request), "client": request.client.access_key,
                "began_us": time.time_ns() // 1000}  # fmt: skip
        os.mkdir(f"{self._folder}/{name}", 0o700)
        with open(f"{self._folder}/{name}/upload.json", "x", encoding="utf-8") as file:
            json.dump(told, file)
        said = [element("Bucket", bucket.name), element("Key", request.key), element("UploadId", name)]
        return Response(200, xml_headers(request), document("InitiateMultipartUploadResult", said))

    def part(self, request: S3Request, bucket: Bucket) -> Response:
        """UploadPart."""
        folder, number = self._of(request, bucket), part_number(request)
        path = f"{folder}/new-{secrets.token_hex(8)}"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            body, compared = received(request, self._writing.spool, fd)
            self._publish(folder, path, number, body.sums.md5)
        finally:
            os.close(fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        headers = [("ETag", conditions.etag_of(body.sums.md5)), ("x-amz-request-id", request.id)]
        return Response(200, [*headers, *compared.items()])

    def copy_part(self, request: S3Request, bucket: Bucket) -> Response:
        """UploadPartCopy."""
        folder, number = self._of(request, bucket), part_number(request)
        source, _ = self._writing.source(request)
        info = source.store.head(source.key)
        check_source(request, info)
        start, stop = _copied_span(request.headers.get("x-amz-copy-source-range"), info.size)
        read = self._writing.bring(source, info, start)
        path = f"{folder}/new-{secrets.token_hex(8)}"
        md5 = hashlib.md5(usedforsecurity=False)
        try:
            with open(path, "xb") as file:
                for at in range(0, stop - start, _PIECE_BYTES):
                    piece = read(at, min(stop - start, at + _PIECE_BYTES))
                    md5.update(piece)
                    file.write(piece)
            self._publish(folder, path, number, md5.hexdigest())
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        said = [element("LastModified", iso_time(time.time_ns() // 1000)),
                element("ETag", conditions.etag_of(md5.hexdigest()))]  # fmt: skip
        return Response(200, xml_headers(request), document("CopyPartResult", said))

    def complete(self, request: S3Request, bucket: Bucket) -> Response:
        """CompleteMultipartUpload: all parts go to the store. The same again, after it succeeded, says so again."""
        location = self._writing.writable(request, bucket, request.key)
        own = {name: value for name, value in request.headers.items() if not name.startswith(PREFIX)}
        wanted = _listed_parts(replace(request, headers=own), self._writing.spool)  # those sums are the object's
        folder = self._of(request, bucket, ended=True)
        if_match, create = self._writing.wishes(request)
        with _locked(folder):
            ended = _read(f"{folder}/{_ENDED}")
            if ended is not None:
                etag = str(ended["etag"])
            else:
                parts = self._chosen(folder, wanted)
                with ExitStack() as stack:
                    fds = [stack.enter_context(_opened(part.path)) for part in parts]
                    _compare(request, parts, fds)
                    told = _read(f"{folder}/upload.json") or {}
                    stack.callback(self._writing.changed, request, location, request.key)
                    info = self._writing.uploader.put_from(
                        location.store, location.key, sum(part.size for part in parts), _reader(parts, fds),
                        told.get("metadata"), if_match=if_match, create=create, headers=told.get("headers"),
                    )  # fmt: skip
                etag = info.version
                self._end(folder, {"etag": etag})
        said = [element("Location", f"/{bucket.name}/{request.key}"), element("Bucket", bucket.name),
                element("Key", request.key), element("ETag", conditions.etag_of(etag))]  # fmt: skip
        return Response(200, xml_headers(request), document("CompleteMultipartUploadResult", said))

    def abort(self, request: S3Request, bucket: Bucket) -> Response:
        """AbortMultipartUpload."""
        self._writing.writable(request, bucket, request.key)
        if "x-amz-if-match-initiated-time" in request.headers:
            raise S3Failure("NotImplemented", "x-amz-if-match-initiated-time is not implemented here.")
        shutil.rmtree(self._of(request, bucket), ignore_errors=True)
        return Response(204, [("x-amz-request-id", request.id)])

    def list_parts(self, request: S3Request, bucket: Bucket) -> Response:
        """ListParts."""
        folder = self._of(request, bucket)
        after, most = int(_digits(request, "part-number-marker", "0")), int(_digits(request, "max-parts", "1000"))
        parts = [part for part in _parts(folder).values() if part.number > after]
        shown = sorted(parts, key=lambda part: part.number)[: min(most, 1000)]
        said = [element("Bucket", bucket.name), element("Key", request.key),
                element("UploadId", request.query["uploadId"]), element("PartNumberMarker", str(after)),
                element("NextPartNumberMarker", str(shown[-1].number if shown else 0)),
                element("MaxParts", str(most)),
                element("IsTruncated", "true" if len(shown) < len(parts) else "false")]  # fmt: skip
        said += [
            element("Part", element("PartNumber", str(part.number)), element("LastModified", iso_time(part.mtime_us)),
                    element("ETag", conditions.etag_of(part.etag)), element("Size", str(part.size)))
            for part in shown
        ]  # fmt: skip
        return Response(200, xml_headers(request), document("ListPartsResult", said))

    def list_uploads(self, request: S3Request, bucket: Bucket) -> Response:
        """ListMultipartUploads: all that go through this gateway, in one page."""
        prefix = request.query.get("prefix", "")
        found: list[tuple[str, int, str]] = []
        for name in os.listdir(self._folder):
            told = _read(f"{self._folder}/{name}/upload.json") if _ID.match(name) else None
            if told is None or told["bucket"] != bucket.name or os.path.exists(f"{self._folder}/{name}/{_ENDED}"):
                continue
            if told["key"].startswith(prefix) and request.client.sees(bucket.name, told["key"]):
                found.append((told["key"], told["began_us"], name))
        said: list[Raw] = [element("Bucket", bucket.name), element("KeyMarker"), element("UploadIdMarker"),
                           element("Prefix", prefix), element("MaxUploads", str(max(1000, len(found)))),
                           element("IsTruncated", "false")]  # fmt: skip
        said += [
            element("Upload", element("Key", key), element("UploadId", name), element("Initiated", iso_time(began)),
                    element("StorageClass", "STANDARD"))
            for key, began, name in sorted(found)
        ]  # fmt: skip
        return Response(200, xml_headers(request), document("ListMultipartUploadsResult", said))

    # Inside

    def _of(self, request: S3Request, bucket: Bucket, *, ended: bool = False) -> str:
        """The folder of the upload that a request names. Raises S3Failure."""
        name = request.query.get("uploadId", "")
        folder = f"{self._folder}/{name}"
        told = _read(f"{folder}/upload.json") if _ID.match(name) else None
        if told is None or told["bucket"] != bucket.name or told["key"] != request.key:
            raise _no_upload()
        if told["client"] != request.client.access_key or not request.client.write:
            raise denied()
        if not ended and os.path.exists(f"{folder}/{_ENDED}"):
            raise _no_upload()
        return folder

    def _publish(self, folder: str, path: str, number: int, etag: str) -> None:
        """A part is whole; it takes the place of an earlier one of that number."""
        before = _parts(folder).get(number)
        try:
            os.rename(path, f"{folder}/{number:05d}.{etag}")
        except FileNotFoundError:
            raise _no_upload() from None
        if before is not None and before.etag != etag:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(before.path)

    def _chosen(self, folder: str, wanted: list[tuple[int, str]]) -> list[PartFile]:
        there = _parts(folder)
        chosen: list[PartFile] = []
        for number, etag in wanted:
            part = there.get(number)
            if part is None or part.etag != etag:
                what = (
                    "One or more of the specified parts could not be found. The part may not have been uploaded, or "
                    "the specified entity tag may not match the part's entity tag."
                )
                raise S3Failure("InvalidPart", what)
            chosen.append(part)
        if any(part.size < SMALLEST_PART for part in chosen[:-1]):
            raise S3Failure("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size")
        return chosen

    def _end(self, folder: str, told: dict[str, str]) -> None:
        with open(f"{folder}/{_ENDED}.new", "w", encoding="utf-8") as file:
            json.dump(told, file)
        os.rename(f"{folder}/{_ENDED}.new", f"{folder}/{_ENDED}")
        for part in _parts(folder).values():
            with contextlib.suppress(OSError):
                os.unlink(part.path)

    def _clear(self) -> None:
        """At most once an hour. Other processes may be at it, too."""
        now = time.monotonic()
        if now - self._cleared < _CLEARED_S:
            return
        self._cleared = now
        for entry in os.scandir(self._folder):
            with contextlib.suppress(FileNotFoundError):
                if _ID.match(entry.name) and time.time() - entry.stat().st_mtime > _FORGOTTEN_S:
                    shutil.rmtree(entry.path, ignore_errors=True)


def _parts(folder: str) -> dict[int, PartFile]:
    found: dict[int, PartFile] = {}
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        raise _no_upload() from None
    for entry in entries:
        match = _PART.match(entry.name)
        if match is not None:
            try:
                status = entry.stat()
            except FileNotFoundError:  # another took its place just now
                continue
            part = PartFile(int(match[1]), match[2], entry.path, status.st_size, status.st_mtime_ns // 1000)
            known = found.get(part.number)
            if known is None or known.mtime_us <= part.mtime_us:
                found[part.number] = part
    return found


def _reader(parts: list[PartFile], fds: list[int]) -> Any:
    """Bytes [start, stop) of all parts one after the other."""

    def read(start: int, stop: int) -> bytes:
        pieces, at = list[bytes](), 0
        for part, fd in zip(parts, fds, strict=True):
            first, last = max(start - at, 0), min(stop - at, part.size)
            while first < last:
                piece = os.pread(fd, last - first, first)
                if not piece:
                    raise S3Failure("InternalError", "A part became shorter.")
                pieces.append(piece)
                first += len(piece)
            at += part.size
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    return read


def _compare(request: S3Request, parts: list[PartFile], fds: list[int]) -> None:
    """The object's size and checksum, where the client says one: of its bytes, or of its parts' checksums with their
    number behind a dash. Raises S3Failure: InvalidRequest, BadDigest.
    """
    size = request.headers.get("x-amz-mp-object-size")
    if size is not None and size != str(sum(part.size for part in parts)):
        raise S3Failure("InvalidRequest", "The x-amz-mp-object-size is not the size of all parts together")
    for name in NAMES:
        value = request.headers.get(PREFIX + name)
        if value is None:
            continue
        if "-" in value or request.headers.get(PREFIX + "type", "").upper() == "COMPOSITE":
            whole = running(name)
            for part, fd in zip(parts, fds, strict=True):
                whole.update(_digest(name, [part], [fd]))
            digest, end = whole.digest(), f"-{len(parts)}" if "-" in value else ""
        else:
            digest, end = _digest(name, parts, fds), ""
        if base64.b64encode(digest).decode() + end != value:
            raise S3Failure("BadDigest", f"The {name.upper()} you specified did not match the calculated checksum.")


def _digest(name: str, parts: list[PartFile], fds: list[int]) -> bytes:
    whole, read, size = running(name), _reader(parts, fds), sum(part.size for part in parts)
    for at in range(0, size, _PIECE_BYTES):
        whole.update(read(at, min(size, at + _PIECE_BYTES)))
    return whole.digest()


def _copied_span(given: str | None, size: int) -> tuple[int, int]:
    """Bytes [start, stop) of a part that is copied. Unlike a GET's, a range that is none is an error, as S3 has it."""
    if given is None:
        return 0, size
    match = _COPIED.match(given)
    if match is None or int(match[1]) > int(match[2]):
        raise S3Failure("InvalidArgument", "The x-amz-copy-source-range value must be of the form bytes=first-last, "
                        "the zero-based offsets of the first and last bytes to copy")  # fmt: skip
    if int(match[2]) >= size:
        raise S3Failure("InvalidRange", f"The range to copy is not inside the source, which has {size} bytes")
    return int(match[1]), int(match[2]) + 1


def _listed_parts(request: S3Request, spool: str) -> list[tuple[int, str]]:
    root = read_xml(request, spool, "CompleteMultipartUpload")
    found: list[tuple[int, str]] = []
    for one in root.iter("Part"):
        number, etag = one.findtext("PartNumber") or "", (one.findtext("ETag") or "").strip().strip('"')
        if not number.strip().isdecimal():
            raise S3Failure("MalformedXML", "The XML you provided was not well-formed or did not validate against our "
                            "published schema")  # fmt: skip
        found.append((int(number), etag))
    if not found:
        raise S3Failure("MalformedXML", "The XML you provided was not well-formed or did not validate against our "
                        "published schema")  # fmt: skip
    if any(one[0] >= other[0] for one, other in pairwise(found)):
        raise S3Failure("InvalidPartOrder", "The list of parts was not in ascending order. Parts must be ordered by "
                        "part number.")  # fmt: skip
    return found


def _digits(request: S3Request, name: str, default: str) -> str:
    text = request.query.get(name, default)
    if not text.isdecimal() or len(text) > 9:
        raise S3Failure("InvalidArgument", f"Provided {name} not an integer or within integer range")
    return text


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _opened(path: str) -> Generator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _no_upload() from None
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _locked(folder: str) -> Generator[None]:
    """One completion of an upload at a time, of all processes."""
    with _opened(f"{folder}/upload.json") as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield


def _no_upload() -> S3Failure:
    return S3Failure("NoSuchUpload", "The specified upload does not exist. The upload ID may be invalid, or the upload "
                     "may have been aborted or completed.")  # fmt: skip
