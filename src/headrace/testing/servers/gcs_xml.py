"""The part of Google's XML API that fake-gcs-server lacks, said in its JSON API: what obstore needs to write.

Uploads, copies and multipart uploads (cloud.google.com, "XML API overview"). Everything else passes through.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlencode

from headrace.testing.messages import Message, answer, s3_error
from headrace.testing.origins import Session, Upstream

_META = "x-goog-meta-"


@dataclass(frozen=True, slots=True)
class XmlFront:
    """An origin for `headrace.testing.http.FaultServer` over a fake-gcs-server. Any thread."""

    upstream: Upstream
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict[str, dict[int, bytes]])
    """Parts of the multipart uploads under way, by upload id and part number."""
    begun: dict[str, Message] = field(default_factory=dict[str, Message])
    """The requests that began them: their headers are the objects'."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def session(self) -> Session:
        return _Front(self, self.upstream.session())


class _Front:
    def __init__(self, front: XmlFront, behind: Session) -> None:
        self._front = front
        self._behind = behind

    def close(self) -> None:
        self._behind.close()

    def answer(self, request: Message) -> Message:
        bucket, _, key = request.path.partition("/")
        query = request.query
        if not key or bucket in ("storage", "upload", "batch"):
            return self._behind.answer(request)
        if "uploadId" in query or "uploads" in query:
            return self._multipart(request, bucket, key)
        if request.method != "PUT":
            return self._behind.answer(request)
        source = request.get("x-goog-copy-source")
        if source is not None:
            return self._copy(request, unquote(source).removeprefix("/"), bucket, key)
        return self._upload(request, bucket, key, request.body)

    def _upload(self, request: Message, bucket: str, key: str, body: bytes) -> Message:
        # The fake keeps conditions in uploads of this type only.
        query = urlencode({"uploadType": "multipart", "name": key, **_condition(request)})
        kind = request.get("content-type") or "application/octet-stream"
        boundary = secrets.token_hex(16)
        described = {"name": key, "metadata": _metadata(request)}
        start = f"--{boundary}\r\nContent-Type: application/json\r\n\r\n{json.dumps(described)}\r\n"
        start += f"--{boundary}\r\nContent-Type: {kind}\r\n\r\n"
        related = b"".join((start.encode(), body, f"\r\n--{boundary}--\r\n".encode()))
        target = f"/upload/storage/v1/b/{bucket}/o?{query}"
        reply = self._ask(request, target, related, f"multipart/related; boundary={boundary}")
        if reply.status != 200:
            return reply
        made = json.loads(reply.body)
        return answer(200, "OK", {"ETag": f'"{made["etag"]}"', "x-goog-generation": str(made["generation"])})

    def _copy(self, request: Message, source: str, bucket: str, key: str) -> Message:
        old_bucket, _, old_key = source.partition("/")
        old, new = f"b/{old_bucket}/o/{quote(old_key, safe='')}", f"b/{bucket}/o/{quote(key, safe='')}"
        reply = self._ask(request, f"/storage/v1/{old}/rewriteTo/{new}?{urlencode(_condition(request))}", b"")
        return answer(200, "OK", {}, b"<CopyObjectResult/>") if reply.status == 200 else reply

    def _multipart(self, request: Message, bucket: str, key: str) -> Message:
        query, uploads = request.query, self._front.uploads
        name = query.get("uploadId") or secrets.token_hex(8)
        with self._front.lock:
            if "uploads" in query:
                uploads[name] = {}
                self._front.begun[name] = request
                made = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
                return answer(200, "OK", {}, made.encode())
            if name not in uploads:
                return s3_error(404, "Not Found", "NoSuchUpload")
            if request.method == "PUT":
                uploads[name][int(query["partNumber"])] = request.body
                tag = hashlib.md5(request.body, usedforsecurity=False).hexdigest()
                return answer(200, "OK", {"ETag": f'"{tag}"'})
            parts, begun = uploads.pop(name), self._front.begun.pop(name)
        if request.method == "DELETE":
            return answer(204, "No Content", {})
        reply = self._upload(begun, bucket, key, b"".join(parts[number] for number in sorted(parts)))
        if reply.status != 200:
            return reply
        made = f"<CompleteMultipartUploadResult><ETag>{reply.get('etag')}</ETag></CompleteMultipartUploadResult>"
        return answer(200, "OK", {"x-goog-generation": reply.get("x-goog-generation") or ""}, made.encode())

    def _ask(self, request: Message, target: str, body: bytes, kind: str = "application/json") -> Message:
        """A JSON API call, made for the same host."""
        headers = ((b"Host", (request.get("host") or "").encode()), (b"Content-Type", kind.encode()))
        return self._behind.answer(Message(f"POST {target} HTTP/1.1".encode(), headers).holding(body))


def _metadata(request: Message) -> dict[str, str]:
    named = ((name.decode().lower(), value.decode("latin-1")) for name, value in request.headers)
    return {name[len(_META) :]: value for name, value in named if name.startswith(_META)}


def _condition(request: Message) -> dict[str, str]:
    generation = request.get("x-goog-if-generation-match")
    return {} if generation is None else {"ifGenerationMatch": generation}
