"""What an answer comes to: bytes of the version that was asked for, or the error that says why not."""

from __future__ import annotations

from headrace.base.errors import ChangedError, HeadraceError, InputError, TryAgainError, UnsupportedError
from headrace.fetch.read import Read
from headrace.store.http1 import Response
from headrace.store.protocol import Blob, ObjectInfo, is_stamp


def blob_of(read: Read, response: Response) -> Blob | HeadraceError:
    """Of a whole response: the bytes, or that they are of another version."""
    total = response.total
    version = etag = response.etag
    if read.version is None or etag is None:
        info = ObjectInfo(read.key, -1 if total is None else total, etag, response.mtime_us)
        version = info.version
    else:
        info = ObjectInfo(read.key, -1 if total is None else total, etag)
    if read.version is not None and version != read.version:
        return changed(read, version)
    data = response.body[: response.got]
    if response.status == 200 and not read.whole:  # a server that ignores Range
        data = data[read.start : read.stop]
    return Blob(data, info)


def wrong_answer(read: Read, response: Response, result: Blob | HeadraceError) -> HeadraceError | None:
    """Why a well-formed answer cannot be what was asked for, though its status says so; None: it may be.

    Somebody on the way has answered, or has changed the answer: worth another try, never taken for a changed object.
    """
    etag = response.etag
    packed = response.header("content-encoding")
    if packed and packed.lower() != "identity" and (etag is None or etag.startswith("W/")) and etag != read.version:
        # An object that is stored so comes with a strong ETag, and as long as it is told.
        reason = f"came with Content-Encoding: {packed}, which was not asked for"
        return UnsupportedError(reason, path=read.path, hint="a server or proxy on the way packs what it hands on")
    if etag is None and read.version is not None and not is_stamp(read.version):
        return without_etag(read)
    return wrong_length(read, result) if isinstance(result, Blob) else None


def past_the_end(read: Read) -> Blob:
    """What the store itself says where its answer was 416. Blocks.

    Not every server tells how long the object is, and some look at the range before the condition: an object that has
    become shorter is refused in the same words as a read behind the end.

    Raises:
        ChangedError: it is another version by now. InputError: the read begins behind the end. As `Store.get`.
    """
    try:
        blob = read.store.get(read.key, read.start, read.stop)
    except InputError:
        if read.version is not None:
            _same(read, read.store.head(read.key))
        raise
    if read.version is not None:
        _same(read, blob.info)
    return blob


def _same(read: Read, info: ObjectInfo) -> None:
    """Raises ChangedError."""
    if info.version != read.version:
        raise changed(read, info.version)


def changed(read: Read, version: str | None) -> ChangedError:
    """Of an object that is `version` by now, not the one that was asked for."""
    reason = f"has changed: its version is {version}, expected {read.version}"
    return ChangedError(reason, path=read.path, hint="take a new snapshot, or: headrace cache refresh PATH")


def without_etag(read: Read) -> TryAgainError:
    """Of an answer without an ETag, though the object has one."""
    hint = "a proxy or a login page may have answered in the store's place"
    return TryAgainError("answered without the object's ETag", path=read.path, hint=hint)


def wrong_length(read: Read, blob: Blob) -> TryAgainError | None:
    """That the bytes are not as many as they must be: a proxy or a server cut them off."""
    if read.size is not None:
        expected = read.length()
    elif read.stop is not None and blob.info.size >= 0:
        expected = max(min(read.stop, blob.info.size) - read.start, 0)
    else:
        return None
    if len(blob.data) == expected:
        return None
    reason = f"answered with {len(blob.data)} bytes, expected {expected}"
    return TryAgainError(reason, path=read.path, hint="something on the way cuts answers off")
