"""Scripts and styles, below a folder that is named by what is in them: so a browser keeps them for ever, and asks for
others once they changed.

Sources: RFC 9110, 8.8 (ETag: a weak one, as the packed bytes are others), 14 (ranges); RFC 8246 (immutable).
"""

from __future__ import annotations

import gzip
import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from headrace.web.packing import takes_gzip

FOLDER: Final = Path(__file__).parent / "static"
_PACKED: Final = (".js", ".css", ".svg")
_FOR_EVER: Final = "public, max-age=31536000, immutable"


@lru_cache(maxsize=1)
def mark() -> str:
    """Of all of them, names and content: the folder that they are below."""
    found = hashlib.sha256()
    for path in sorted(one for one in FOLDER.rglob("*") if one.is_file()):
        found.update(f"{path.relative_to(FOLDER)} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


class Static(StaticFiles):
    """What is in `FOLDER`, packed once for who takes gzip; ranges are of the file itself."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)
        every = (os.path.realpath(path) for path in FOLDER.rglob("*") if path.suffix in _PACKED)
        self._packed = {path: gzip.compress(Path(path).read_bytes(), mtime=0) for path in every}

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """As Starlette makes it, or packed."""
        made = super().file_response(full_path, stat_result, scope, status_code)
        made.headers["cache-control"] = _FOR_EVER
        made.headers["vary"] = "accept-encoding"
        asked, packed = Headers(scope=scope), self._packed.get(str(full_path))
        if packed is None or made.status_code != 200 or "range" in asked or not takes_gzip(asked):
            return made
        told = {name: made.headers[name] for name in ("cache-control", "vary", "last-modified", "content-type")}
        return Response(packed, 200, {**told, "etag": f"W/{made.headers['etag']}", "content-encoding": "gzip"})
