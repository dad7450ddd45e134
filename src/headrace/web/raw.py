"""A file's bytes, to be kept, never to be shown: whatever they are, a browser makes no page of them.

Sources: RFC 9110, 13.1.5 (If-Range); RFC 6266 (Content-Disposition).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from headrace.namespace import File, Namespace
from headrace.web.guard import SEALED
from headrace.web.ranges import asked_range

_PIECE: Final = 1 << 20  # bytes handed on at a time
_TAG: Final = re.compile(r"[\x21\x23-\x7e]+")


def download(request: Request, namespace: Namespace, path: str) -> Response:
    """All of one version, or the range that was asked for. Raises as `Namespace.open`."""
    file: File = namespace.open(path)
    version, size = file.entry.version, file.size
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(path.rpartition('/')[2], safe='')}",
        "cache-control": "no-store", **SEALED,
    }  # fmt: skip
    if _TAG.fullmatch(version):
        headers["etag"] = f'"{version}"'
    if size < 0:  # nobody says how much there is
        return StreamingResponse(_pieces(file, None), 200, headers, "application/octet-stream")
    headers["accept-ranges"] = "bytes"
    start, stop, status = 0, size, 200
    asked = asked_range(request.headers.get("range"), size)
    if asked is not None and request.headers.get("if-range", headers.get("etag")) == headers.get("etag"):
        start, stop, status = asked[0], min(asked[1], size), 206
        if start >= size:
            file.close()
            return Response(None, 416, {**headers, "content-range": f"bytes */{size}"}, "application/octet-stream")
        headers["content-range"] = f"bytes {start}-{stop - 1}/{size}"
    headers["content-length"] = str(stop - start)
    if request.method == "HEAD":
        file.close()
        return Response(None, status, headers, "application/octet-stream")
    file.seek(start)
    return StreamingResponse(_pieces(file, stop - start), status, headers, "application/octet-stream")


def _pieces(file: File, left: int | None) -> Iterator[bytes]:
    with file:
        while left is None or left > 0:
            data = file.read(_PIECE if left is None else min(_PIECE, left))
            if not data:
                return
            if left is not None:
                left -= len(data)
            yield data
