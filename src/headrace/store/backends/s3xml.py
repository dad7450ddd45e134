"""S3's XML: listings parsed by one pattern over the page's bytes, and the few bodies that are sent.

Source: Amazon S3 API Reference, ListObjectsV2, DeleteObjects, CompleteMultipartUpload. Servers differ in the order
of the elements and in how they escape quotes in ETags; the pattern takes the usual orders, and a slower path any
other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from html import escape, unescape
from urllib.parse import unquote

from headrace.base.errors import CorruptError
from headrace.store.protocol import ObjectInfo, Unfinished

_TAG = r"<ETag>(?:&quot;|&#34;|\")?([^<&\"]*)(?:&quot;|&#34;|\")?</ETag>"
_ENTRY = re.compile(
    rf"<Contents>\s*<Key>([^<]*)</Key>\s*<LastModified>([^<]*)</LastModified>\s*{_TAG}"
    r"(?:\s*<Checksum(?:Algorithm|Type)>[^<]*</Checksum(?:Algorithm|Type)>)*\s*<Size>([0-9]+)</Size>"
)
_ENTRY_SEAWEED = re.compile(
    rf"<Contents><Key>([^<]*)</Key>{_TAG}<Size>([0-9]+)</Size>(?:<StorageClass>[^<]*</StorageClass>)?"
    r"<LastModified>([^<]*)</LastModified>"
)
_FOLDER = re.compile(r"<CommonPrefixes>\s*<Prefix>([^<]*)</Prefix>")
_TOKEN = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_TRUNCATED = re.compile(r"<IsTruncated>\s*true\s*</IsTruncated>")
_UPLOAD = re.compile(rb"<UploadId>([^<]*)</UploadId>")
_ETAG = re.compile(rb"<ETag>([^<]*)</ETag>")
_DELETE_ERROR = re.compile(rb"<Error>(.*?)</Error>", re.DOTALL)
_KEY_BYTES = re.compile(rb"<Key>([^<]*)</Key>")
_KEY = re.compile(r"<Key>([^<]*)</Key>")
_UNSENDABLE = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff]")
Entry = tuple[str, str, str, str]
"""Key, time, ETag and size of a listed object, the key still escaped."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing. `token` continues it; None at the end."""

    objects: list[ObjectInfo]
    folders: list[str]
    token: str | None


def page_text(body: bytes, path: str) -> str:
    """The answer to ListObjectsV2 as text.

    Raises:
        CorruptError: it is something else.
    """
    if b"<ListBucketResult" not in body[:400] or not body.rstrip().endswith(b"</ListBucketResult>"):
        raise CorruptError("the listing is not S3's XML", path=path, hint="is the endpoint an S3 service?")
    return body.decode("utf-8", "replace")


class Tokens:
    """What pages gave to go on by, so that a server that goes round in circles is noticed. One listing of `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: set[str] = set()

    def next(self, token: str) -> str:
        """The same token. Raises CorruptError: it is empty, or was given before."""
        if not token or token in self._seen:
            what = "an empty token to go on by" if not token else "a token to go on by that it gave before"
            hint = "the server's listing goes round in circles: is the endpoint an S3 service?"
            raise CorruptError(f"the listing has {what}", path=self._path, hint=hint)
        self._seen.add(token)
        return token


def parse_page(text: str, root: str, path: str, *, encoded: bool, plus_is_space: bool) -> Page:
    """One answer to ListObjectsV2.

    Args:
        text: from `page_text`.
        root: prefix to cut from every key.
        path: what is listed, for errors.
        encoded: keys are URL-encoded (``encoding-type=url``).
        plus_is_space: then ``+`` is a space (AWS, SeaweedFS) and not itself.

    Raises:
        CorruptError: an entry lacks its key or size, or the next page cannot be found.
    """
    cut = len(root)
    entries = _entries(text, path)
    keys = _decoded([entry[0] for entry in entries], encoded, plus_is_space)
    objects = [
        ObjectInfo(key[cut:], int(size), etag or None, parse_time(when))
        for key, (_, when, etag, size) in zip(keys, entries, strict=True)
    ]
    folders = [name[cut:] for name in _decoded(_FOLDER.findall(text), encoded, plus_is_space)]
    if not _TRUNCATED.search(text):
        return Page(objects, folders, None)
    token = _TOKEN.search(text)
    if token is None:
        raise CorruptError("the listing says there is more but not how to go on", path=path)
    return Page(objects, folders, unescape(token[1]))


def _decoded(names: list[str], encoded: bool, plus_is_space: bool) -> list[str]:
    """Undo XML escapes and the URL encoding: all names in one go, as a call for each would cost most."""
    joined = "\n".join(names)
    if "&" in joined:
        joined = unescape(joined)
    if encoded:
        joined = joined.replace("+", " ") if plus_is_space else joined
        joined = unquote(joined, errors="replace") if "%" in joined else joined
    parts = joined.split("\n") if len(names) != 1 else [joined]
    if len(parts) == len(names) or not names:
        return parts if names else []
    return [_decoded([name], encoded, plus_is_space)[0] for name in names]  # a key holds a line feed


def keys_of(text: str) -> list[str]:
    """Keys and folders of a page as they stand in it."""
    return _KEY.findall(text) + _FOLDER.findall(text)


def _entries(text: str, path: str) -> list[Entry]:
    count = text.count("<Contents>")
    if _ENTRY_SEAWEED.match(text, text.find("<Contents>")):
        other: list[Entry] = _ENTRY_SEAWEED.findall(text)
        if len(other) == count:
            return [(key, when, etag, size) for key, etag, size, when in other]
    entries: list[Entry] = _ENTRY.findall(text)
    if len(entries) == count:
        return entries
    return [_any_order(chunk, path) for chunk in text.split("<Contents>")[1:]]


def _any_order(chunk: str, path: str) -> Entry:
    etag = clean_etag(_field(chunk, "ETag", path, "")) or ""
    return _field(chunk, "Key", path), _field(chunk, "LastModified", path, ""), etag, _field(chunk, "Size", path)


def _field(chunk: str, name: str, path: str, default: str | None = None) -> str:
    match = re.search(f"<{name}>([^<]*)</{name}>", chunk)
    if match is None and default is None:
        raise CorruptError(f"an entry of the listing has no {name}", path=path)
    return match[1] if match else default or ""


def clean_etag(raw: bytes | str | None) -> str | None:
    """An ETag as sent, without XML escapes and its surrounding quotes; None if there is none."""
    if not raw:
        return None
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    if "&" in text:
        text = text.replace("&quot;", '"').replace("&#34;", '"')
        text = unescape(text) if "&" in text else text
    return (text[1:-1] if len(text) >= 2 and text[0] == text[-1] == '"' else text) or None


@lru_cache(maxsize=4096)
def parse_time(text: str) -> int:
    """Microseconds since the epoch of ``2024-01-31T12:00:00.000Z``; 0 where it cannot be read."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
    except ValueError:
        return 0


def sendable(key: str) -> bool:
    """Whether XML 1.0 can carry the key in a request's body."""
    return _UNSENDABLE.search(key) is None


def delete_body(keys: Sequence[str]) -> bytes:
    """The body of DeleteObjects."""
    entries = "".join(f"<Object><Key>{escape(key, quote=False)}</Key></Object>" for key in keys)
    return f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>{entries}</Delete>'.encode()


def delete_errors(body: bytes) -> list[tuple[str, bytes]]:
    """Keys that were not deleted, each with its ``<Error>`` element's content."""
    found = [(_KEY_BYTES.search(error), error) for error in _DELETE_ERROR.findall(body)]
    return [(unescape(key[1].decode(errors="replace")) if key else "", error) for key, error in found]


def upload_id(body: bytes, path: str) -> str:
    """From the answer to CreateMultipartUpload. Raises CorruptError."""
    match = _UPLOAD.search(body)
    if match is None:
        raise CorruptError("no upload id in the answer", path=path, hint="is the endpoint an S3 service?")
    return unescape(match[1].decode())


@dataclass(frozen=True, slots=True)
class Uploads:
    """One page of unfinished uploads. `markers`: key and upload id to go on from; None at the end."""

    uploads: list[Unfinished]
    markers: tuple[str, str] | None


def parse_uploads(body: bytes, path: str) -> Uploads:
    """One answer to ListMultipartUploads, keys with the store's root.

    Raises:
        CorruptError: it is something else, or an entry lacks its key or id.
    """
    text = body.decode("utf-8", "replace")
    if "<ListMultipartUploadsResult" not in text[:400]:
        raise CorruptError("the list of uploads is not S3's XML", path=path, hint="is the endpoint an S3 service?")
    chunks = [chunk.partition("</Upload>")[0] for chunk in text.split("<Upload>")[1:]]
    uploads = [
        Unfinished(
            unescape(_field(chunk, "Key", path)),
            parse_time(_field(chunk, "Initiated", path, "")),
            unescape(_field(chunk, "UploadId", path)),
        )
        for chunk in chunks
    ]
    if not _TRUNCATED.search(text):
        return Uploads(uploads, None)
    head = text.partition("<Upload>")[0] + text.rpartition("</Upload>")[2]
    return Uploads(uploads, (unescape(_field(head, "NextKeyMarker", path)), _field(head, "NextUploadIdMarker", path)))


def quoted(etag: str) -> str:
    """An ETag as a condition carries it."""
    return etag if etag == "*" or etag.startswith('W/"') else f'"{etag}"'


def answered_etag(body: bytes) -> str | None:
    """The ETag in the answer to a copy, a part's copy or a completed upload."""
    match = _ETAG.search(body)
    return clean_etag(match[1]) if match else None


def complete_body(parts: Iterable[tuple[int, str]]) -> bytes:
    """The body of CompleteMultipartUpload, from numbers and ETags in order."""
    entries = "".join(
        f'<Part><PartNumber>{number}</PartNumber><ETag>"{escape(etag, quote=False)}"</ETag></Part>'
        for number, etag in parts
    )
    head = '<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    body = f"{head}{entries}</CompleteMultipartUpload>"
    return body.encode()
