"""Large objects into S3 by parts: any number of them, sent or copied inside the service, in any order.

Source: Amazon S3 User Guide, "Uploading and copying objects using multipart upload" (5 MiB to 5 GiB a part, at most
10,000); API Reference, CompleteMultipartUpload (``If-Match``, ``If-None-Match``).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    CorruptError,
    HeadraceError,
    NotFoundError,
    TryAgainError,
)
from headrace.store.backends import s3xml
from headrace.store.backends.parts import Part, Parts
from headrace.store.backends.register import Begun, register
from headrace.store.backends.s3api import S3Api
from headrace.store.http1 import http_time
from headrace.store.protocol import Assembly, Buffer, ObjectInfo, Unfinished

MULTIPART_FROM: Final = 64 << 20  # bytes from which on a buffer is sent in parts side by side
SMALLEST: Final = 5 << 20  # bytes of any part but the last, at least: S3's rule
_PART: Final = 16 << 20  # bytes of a part that is sent
_COPY_PART: Final = 128 << 20  # bytes of a part that the service copies: nothing of it comes here
_MOST_PARTS: Final = 10_000  # S3's rule
LARGEST: Final = _MOST_PARTS * (5 << 30)
_AT_ONCE: Final = 4  # parts under way of one object
_MINUTE_S: Final = 60.0  # seconds


class S3Assembly(Assembly):
    """See `headrace.store.protocol.Assembly`. Begun by the constructor's request.

    Args:
        api: the bucket.
        full_key: the object's name in it.
        key: its name in the store.
        path: its URL, for errors.
        headers: of the object: its metadata.
        condition: a header of its completion, or none.
        source: the quoted ``/bucket/key`` of another object, from its key.
        locate: what HEAD says of the object now, to recognise a completion whose answer was lost.
    """

    smallest = SMALLEST
    most = _MOST_PARTS

    def __init__(
        self,
        api: S3Api,
        full_key: str,
        key: str,
        path: str,
        *,
        headers: Mapping[str, str],
        condition: Mapping[str, str],
        source: Callable[[str], str],
        locate: Callable[[str], ObjectInfo],
    ) -> None:
        self.key = key
        self._api = api
        self._full_key = full_key
        self._path = path
        self._condition = condition
        self._source = source
        self._locate = locate
        self._parts = Parts(path)
        self._ended = False
        self._noted = register().begin(api.service_bucket, full_key, api.now())
        try:
            answer = api.call("POST", full_key, path=path, query={"uploads": ""}, headers=headers)
            self._id = s3xml.upload_id(bytes(answer.body), path)
        except HeadraceError as error:
            if not isinstance(error, TryAgainError):  # else it may have been begun, and its answer lost
                register().end(self._noted)
            raise
        register().named(self._noted, self._id)

    def part(self, number: int, at: int, data: Buffer) -> None:
        view = memoryview(data).cast("B")
        answer = self._api.call("PUT", self._full_key, path=self._path, query=self._query(number), body=view)
        self._parts.add(number, at, len(view), self._etag(answer.header("etag")))

    def copy_part(self, number: int, at: int, source: str, start: int, stop: int, *, if_match: str | None) -> None:
        headers = {"x-amz-copy-source": self._source(source), "x-amz-copy-source-range": f"bytes={start}-{stop - 1}"}
        if if_match is not None:
            headers["x-amz-copy-source-if-match"] = s3xml.quoted(if_match)
        query = self._query(number)
        answer = self._api.call("PUT", self._full_key, path=self._path, query=query, headers=headers, slow=True)
        self._parts.add(number, at, stop - start, self._etag(s3xml.answered_etag(bytes(answer.body))))

    def _query(self, number: int) -> dict[str, str]:
        return {"partNumber": str(number), "uploadId": self._id}

    def _etag(self, found: str | None) -> str:
        etag = s3xml.clean_etag(found)
        if etag is None:
            raise CorruptError("no ETag in the answer to a part", path=self._path, hint="is the endpoint S3?")
        return etag

    def complete(self) -> ObjectInfo:
        parts = self._parts.whole()
        if self._ended:
            raise NotFoundError("the upload has been thrown away", path=self._path)
        retried = threading.Event()
        try:
            info = self._complete(parts, retried)
        except (ChangedError, NotFoundError, TryAgainError) as error:
            # Only a try whose answer is unknown can have succeeded; else an equal object is someone else's.
            doubtful = retried.is_set() or isinstance(error, TryAgainError)
            if not doubtful or (found := self._landed(parts)) is None:
                raise self._refused(error) from error
            info = found
        self._end()
        return info

    def _end(self) -> None:
        self._ended = True
        register().end(self._noted)

    def _complete(self, parts: Sequence[Part], retried: threading.Event) -> ObjectInfo:
        body = s3xml.complete_body((part.number, part.etag) for part in parts)
        query = {"uploadId": self._id}
        answer = self._api.call(
            "POST",
            self._full_key,
            path=self._path,
            query=query,
            headers=self._condition,
            body=body,
            slow=True,
            again=retried.set,
        )
        etag, version = s3xml.answered_etag(bytes(answer.body)), answer.header("x-amz-version-id")
        size = parts[-1].at + parts[-1].size
        if etag is None and (found := self._landed(parts)) is not None:  # Ceph 16 names none
            return found
        return ObjectInfo(self.key, size, etag, http_time(answer.header("date")), version)

    def _landed(self, parts: Sequence[Part]) -> ObjectInfo | None:
        """What an earlier try whose answer was lost has made: the ETag of a multipart object says which parts."""
        try:
            digests = b"".join(bytes.fromhex(part.etag) for part in parts)
            expected = f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"
            info = self._locate(self.key)
        except (ValueError, HeadraceError):
            return None
        return info if info.etag == expected else None

    def _refused(self, error: HeadraceError) -> HeadraceError:
        if isinstance(error, TryAgainError):
            return error
        if isinstance(error, NotFoundError) and ("upload" in error.reason or not self._condition):
            return NotFoundError("the upload is gone", path=self._path, hint="someone aborted it; send it again")
        if "if-none-match" in self._condition:
            return AlreadyExistsError("already exists", path=self._path)
        return ChangedError("the object has changed, or is gone", path=self._path)

    def abort(self) -> None:
        if not self._ended:
            self._ended = True
            if abort(self._api, self._full_key, self._id, self._path):
                register().end(self._noted)


def upload(assembly: Assembly, data: memoryview) -> ObjectInfo:
    """Send one buffer, four parts at once. Raises as any call; what was sent so far is thrown away."""
    step = max(_PART, -(-len(data) // assembly.most))

    def send(number: int, at: int) -> None:
        assembly.part(number, at, data[at : at + step])

    return _all(assembly, send, range(0, len(data), step))


def copy_parts(assembly: Assembly, source: str, size: int, if_match: str | None) -> ObjectInfo:
    """Copy a large object inside the service. Raises as `upload`."""

    def copy(number: int, start: int) -> None:
        assembly.copy_part(number, start, source, start, min(size, start + step), if_match=if_match)

    step = max(_COPY_PART, -(-size // assembly.most))
    return _all(assembly, copy, range(0, size, step))


def _all(assembly: Assembly, send: Callable[[int, int], None], starts: range) -> ObjectInfo:
    try:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headrace-upload") as pool:
            under_way = [pool.submit(send, number, at) for number, at in enumerate(starts, 1)]
            try:
                for one in under_way:
                    one.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return assembly.complete()
    except BaseException:
        assembly.abort()
        raise


def abort(api: S3Api, full_key: str, upload_id: str, path: str) -> bool:
    """Throw an upload's parts away. False: that failed. The next writer here tries again, or a lifecycle rule does."""
    try:
        api.call("DELETE", full_key, path=path, query={"uploadId": upload_id})
    except NotFoundError:
        return True
    except HeadraceError:
        return False
    return True


def clear_abandoned(api: S3Api) -> None:
    """Throw away what processes of this node that are no more had begun in the bucket. Raises nothing."""

    def discard(one: Begun) -> bool:
        ids = [one.id] if one.id is not None else _begun_then(api, one)
        gone = [abort(api, one.key, id_, api.path) for id_ in ids]
        return all(gone)

    register().hand_over(api.service_bucket, discard)


def _begun_then(api: S3Api, one: Begun) -> list[str]:
    """Uploads of that very key begun in the minute in which a process died before it was told their names."""
    try:
        found = unfinished(api, one.key, "", api.path)
    except HeadraceError:
        return []
    return [each.token for each in found if not each.key and abs(each.started_us / 1e6 - one.at) < _MINUTE_S]


def unfinished(api: S3Api, root: str, prefix: str, path: str) -> list[Unfinished]:
    """Uploads below a prefix that were neither completed nor aborted (ListMultipartUploads)."""
    found: list[Unfinished] = []
    query = {"uploads": "", "prefix": root + prefix}
    tokens = s3xml.Tokens(path)
    while True:
        page = s3xml.parse_uploads(bytes(api.call("GET", path=path, query=query).body), path)
        # Some servers ignore the prefix or take it for a folder's.
        mine = (one for one in page.uploads if one.key.startswith(root + prefix))
        found += [one._replace(key=one.key[len(root) :]) for one in mine]
        if page.markers is None:
            return found
        tokens.next("\n".join(page.markers) if any(page.markers) else "")
        query |= {"key-marker": page.markers[0], "upload-id-marker": page.markers[1]}
