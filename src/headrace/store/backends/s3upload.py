"""Large objects into S3 by parts: uploads of one buffer, and server-side copies above 5 GiB.

Source: Amazon S3 User Guide, "Uploading and copying objects using multipart upload" (at most 10,000 parts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from headrace.base.errors import CorruptError, HeadraceError
from headrace.store.backends import s3xml
from headrace.store.backends.errors import from_http
from headrace.store.backends.s3api import S3Api
from headrace.store.protocol import ObjectInfo

MULTIPART_FROM: Final = 64 << 20
_PART: Final = 16 << 20
_COPY_PART: Final = 1 << 30
_MOST_PARTS: Final = 10_000
_AT_ONCE: Final = 4


def upload(api: S3Api, full_key: str, data: memoryview, headers: Mapping[str, str], key: str, path: str) -> ObjectInfo:
    """Upload one buffer by parts, four at a time; nothing is visible before all have arrived.

    Raises:
        HeadraceError: as any call; the parts sent so far are thrown away.
    """
    step = max(_PART, -(-len(data) // _MOST_PARTS))

    def send(number: int, upload_id: str) -> str:
        part = data[(number - 1) * step : number * step]
        query = {"partNumber": str(number), "uploadId": upload_id}
        answer = api.call("PUT", full_key, path=path, query=query, body=part)
        return s3xml.clean_etag(answer.header("etag")) or ""

    etag = _by_parts(api, full_key, -(-len(data) // step), headers, path, send)
    return ObjectInfo(key, len(data), etag)


def copy_parts(api: S3Api, origin: str, full_key: str, size: int, path: str) -> None:
    """Copy a large object inside the service. `origin`: quoted ``/bucket/key``. Raises as `upload`."""

    def send(number: int, upload_id: str) -> str:
        start, stop = (number - 1) * _COPY_PART, min(size, number * _COPY_PART)
        headers = {"x-amz-copy-source": origin, "x-amz-copy-source-range": f"bytes={start}-{stop - 1}"}
        query = {"partNumber": str(number), "uploadId": upload_id}
        answer = api.call("PUT", full_key, path=path, query=query, headers=headers)
        etag = s3xml.answered_etag(bytes(answer.body))
        if etag is None:
            raise CorruptError("no ETag in the answer to a part's copy", path=path)
        return etag

    _by_parts(api, full_key, -(-size // _COPY_PART), {}, path, send)


def _by_parts(
    api: S3Api, full_key: str, count: int, headers: Mapping[str, str], path: str, send: Callable[[int, str], str]
) -> str | None:
    answer = api.call("POST", full_key, path=path, query={"uploads": ""}, headers=headers)
    upload_id = s3xml.upload_id(bytes(answer.body), path)
    try:
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="headrace-upload") as pool:
            jobs = [pool.submit(send, number, upload_id) for number in range(1, count + 1)]
            try:
                etags = [job.result() for job in jobs]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        body = s3xml.complete_body(etags)
        answer = api.call("POST", full_key, path=path, query={"uploadId": upload_id}, body=body)
    except BaseException:
        _abort(api, full_key, upload_id, path)
        raise
    text = bytes(answer.body)
    if b"<Error>" in text:  # S3 may fail after it has said 200
        _abort(api, full_key, upload_id, path)
        raise from_http(path, 500, text)
    return s3xml.answered_etag(text)


def _abort(api: S3Api, full_key: str, upload_id: str, path: str) -> None:
    try:
        api.call("DELETE", full_key, path=path, query={"uploadId": upload_id})
    except HeadraceError:
        pass  # the first error is the one to tell; a lifecycle rule on the bucket removes what is left
