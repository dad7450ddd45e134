"""``http://`` on a small real server: reading, ranges, conditions, and what it cannot do."""

from __future__ import annotations

import email.utils
import http.server
import threading
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from headrace.base.errors import (
    ChangedError,
    CredentialsError,
    InputError,
    NotFoundError,
    SlowDownError,
    UnsupportedError,
)
from headrace.store import Store, StoreOptions, open_store

FILES = {"/data/a b/é+.txt": b"hello", "/data/empty": b""}
STATUSES = {"/data/gone": 404, "/data/private": 401, "/data/busy": 503, "/data/moved": 302}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(self.path)
        data = FILES.get(path)
        if data is None:
            return self._answer(STATUSES.get(path, 404), b"")
        if self.headers.get("If-Match") not in (None, '"v1"'):
            return self._answer(412, b"")
        span = self.headers.get("Range")
        if span is None or self.server.ignores_ranges:  # type: ignore[attr-defined]
            return self._answer(200, data)
        first, _, last = span.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last or len(data)), len(data) - 1)
        if start >= len(data):
            return self._answer(416, b"")
        return self._answer(206, data[start : stop + 1], f"bytes {start}-{stop}/{len(data)}")

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, span: str | None = None) -> None:
        self.send_response(status)
        if span:
            self.send_header("Content-Range", span)
        self.send_header("ETag", '"v1"')
        self.send_header("Last-Modified", email.utils.formatdate(1_700_000_000, usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving.daemon_threads = True
    serving.ignores_ranges = False  # type: ignore[attr-defined]
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join(5)


@pytest.fixture
def store(server: http.server.ThreadingHTTPServer) -> Iterator[Store]:
    opened = open_store(f"http://127.0.0.1:{server.server_port}/data/", StoreOptions(retries=1, timeout_s=5))
    yield opened
    opened.close()


def test_reading(store: Store) -> None:
    blob = store.get("a b/é+.txt")
    assert bytes(blob.data) == b"hello"
    assert (blob.info.size, blob.info.etag, blob.info.mtime_us) == (5, "v1", 1_700_000_000_000_000)
    assert store.head("a b/é+.txt") == blob.info
    assert bytes(store.get("a b/é+.txt", 1, 3).data) == b"el"
    assert bytes(store.get("a b/é+.txt", 3).data) == b"lo"
    assert bytes(store.get("a b/é+.txt", 5).data) == b""
    assert bytes(store.get("empty", 0, 9).data) == b""
    with pytest.raises(InputError, match="ends at 5"):
        store.get("a b/é+.txt", 6)
    assert bytes(store.get("a b/é+.txt", if_match="v1").data) == b"hello"
    with pytest.raises(ChangedError):
        store.get("a b/é+.txt", if_match="v2")


def test_a_server_without_ranges(server: http.server.ThreadingHTTPServer, store: Store) -> None:
    server.ignores_ranges = True  # type: ignore[attr-defined]
    assert bytes(store.get("a b/é+.txt", 1, 3).data) == b"el"


@pytest.mark.parametrize(
    ("key", "kind"),
    [("gone", NotFoundError), ("private", CredentialsError), ("busy", SlowDownError), ("moved", UnsupportedError)],
)
def test_answers_have_names(store: Store, key: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        store.get(key)


def test_what_a_web_server_cannot_do(store: Store) -> None:
    with pytest.raises(InputError, match="does not do that"):
        list(store.list())
    with pytest.raises(InputError, match="does not do that"):
        store.list_folder()
    with pytest.raises(UnsupportedError):
        store.put("x", b"", create=True)
    with pytest.raises(InputError):
        store.put("x", b"")
