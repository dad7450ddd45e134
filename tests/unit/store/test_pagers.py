"""A listing goes on or ends: a server that goes round in circles is an error, and not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle

import pytest

from headrace.base.errors import CorruptError
from headrace.store import Store, StoreOptions, open_store

TOKENS = {"the same": ["a"], "empty": [""], "in turns": ["a", "b", "c"], "none any more": ["a", "b", "", "a"]}


class Circles(ThreadingHTTPServer):
    """Every page says that there is more."""

    tokens: Iterator[str] = iter(())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Circles

    def do_GET(self) -> None:
        token = next(self.server.tokens)
        if "uploads" in self.path:
            markers = f"<NextKeyMarker>{token}</NextKeyMarker><NextUploadIdMarker>{token}</NextUploadIdMarker>"
            inside, name = f"{markers}<Upload><Key>k</Key><UploadId>1</UploadId></Upload>", "ListMultipartUploadsResult"
        else:
            entry = "<Contents><Key>k</Key><Size>1</Size><ETag>e</ETag></Contents>"
            inside, name = f"<NextContinuationToken>{token}</NextContinuationToken>{entry}", "ListBucketResult"
        body = f"<?xml version='1.0'?><{name}><IsTruncated>true</IsTruncated>{inside}</{name}>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Circles]:
    serving = Circles(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()
    thread.join(5)


WAYS: dict[str, Callable[[Store], object]] = {
    "list": lambda store: list(store.list()),
    "list below": lambda store: list(store.list("some/", start_after="some/a")),
    "list a folder": lambda store: store.list_folder("some/"),
    "pages of a folder": lambda store: list(store.list_pages()),
    "unfinished uploads": lambda store: store.unfinished(),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tokens", TOKENS)
def test_it_ends(server: Circles, way: str, tokens: str) -> None:
    server.tokens = cycle(TOKENS[tokens])
    options = StoreOptions(
        endpoint=f"http://127.0.0.1:{server.server_port}", access_key_id="a", secret_access_key="b", region="r"
    )
    with pytest.raises(CorruptError, match="go on by"):
        WAYS[way](open_store("s3://bucket", options))
