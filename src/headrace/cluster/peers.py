"""What this node's cache keeps, for the other nodes of its job: read from the store once, and sent by the kernel.

``GET /v1/object?root=&store=&key=&version=&size=``, optionally of a range: the object version with this identity, or a
refusal, after which whoever asks asks the store. The version is part of the name, so no answer is stale.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from headrace.base.errors import ChangedError, DeniedError, HeadraceError, InputError, NotFoundError, TryAgainError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.base.threads import Crew
from headrace.fetch import PEER_PATH, Fetcher, Keepers, Read
from headrace.fetch.rendezvous import names_of
from headrace.http_server import Address, Exchange, FileSlice, Limits, Response, Server, Whole
from headrace.namespace import Namespace
from headrace.store.protocol import Blob

_log = logging.getLogger("headrace.cluster")
_MOST: Final = 256
"""Requests under way; more are refused, as the store is the better answer then."""
_THREADS: Final = 4
"""They look into the cache: the server sends what is there, and the fetcher brings what is not."""
_RANGE: Final = re.compile(r"bytes=(\d{1,19})-(\d{0,19})")
_DRAIN_S: Final = 1.0  # seconds for what is under way


class PeerServer:
    """Answers the other nodes from this node's cache. Listens from the moment it is made, and answers from `start` on.

    It reaches stores as `namespace` and `settings` say. A store is served once an object of it could be asked for with
    these credentials: what lies in the cache may be another job's.

    Args:
        settings: whose cache is shared. namespace: how stores are reached.
        address: by which other nodes reach this one; what they get is not encrypted.

    Raises:
        InputError: there is no cache, or the address cannot be listened on.
    """

    def __init__(self, settings: Settings, namespace: Namespace, address: Address) -> None:
        alone = replace(settings, cache=replace(settings.cache, peers=""))  # nobody's question becomes another one
        self.metrics = Metrics()
        self._fetcher = Fetcher.open(alone, metrics=self.metrics)
        if self._fetcher.cache is None:
            hint = "give it room: HEADRACE_CACHE_SIZE"
            raise InputError("there is no cache to share", path=settings.cache.dir, hint=hint)
        self._fetcher.insist()  # what is not kept here, nobody keeps
        self._door = _Door(self._fetcher, namespace)
        try:
            self._server = Server(self._door, address, limits=Limits(threads=8))
        except BaseException:
            self._fetcher.close()
            raise

    @property
    def url(self) -> str:
        """Where it answers."""
        return self._server.address.url

    def start(self, token: str) -> None:
        """Answer those who know the token."""
        self._door.token = token.encode()
        self._server.start()

    def join(self, path: str, number: int, nodes: Sequence[str], token: str) -> dict[str, str]:
        """Begin to answer the nodes at these addresses, of which this is one; write into the file at `path` which they
        are. Returns the variables that have a process ask them. Raises OSError.

        A machine that comes back, and one of another job, keeps what it kept: it goes by its address.
        """
        names = names_of([urlsplit(url).hostname or url for url in nodes])
        Keepers(names[number], dict(zip(names, nodes, strict=True)), token).save(path)
        self.start(token)
        return {"HEADRACE_CACHE_PEERS": path}

    def wait(self) -> None:
        """Until it is closed."""
        self._server.wait()

    def close(self) -> None:
        """End; what is under way has a second. Idempotent."""
        self._server.drain(_DRAIN_S)
        self._door.close()
        self._fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Door:
    """An `Application`."""

    def __init__(self, fetcher: Fetcher, namespace: Namespace) -> None:
        self.token = b""
        self._fetcher, self._namespace = fetcher, namespace
        self._workers = Crew("peers", _THREADS)
        self._proven: set[str] = set()
        self._under_way = 0
        self._lock = threading.Lock()

    def head(self, exchange: Exchange) -> Whole | Response:
        scheme, _, given = exchange.headers.get("authorization").partition(" ")
        if not self.token or scheme != "Bearer" or not hmac.compare_digest(given.encode("latin-1"), self.token):
            return Response(401, close=True)
        if exchange.method != "GET" or exchange.path != PEER_PATH:
            return Response(404)
        return Whole(0)

    def arrived(self, exchanges: Sequence[Exchange]) -> None:
        for exchange in exchanges:
            with self._lock:
                room = self._under_way < _MOST
                self._under_way += room
            if room:
                self._workers.add(partial(self._look, exchange))
            else:
                exchange.answer(Response(503))

    def close(self) -> None:
        self._workers.close(_DRAIN_S, drop=True)

    def _look(self, exchange: Exchange) -> None:
        """The file, if all of it is here; else what the fetcher brings, which it keeps."""
        try:
            read = self._asked(exchange)
            fd = self._fetcher.file(read)
            if fd is not None:
                body = FileSlice(fd, read.start, read.length(), partial(os.close, fd))
                self._answer(exchange, _having(read, body))
            else:
                self._fetcher.submit([read], partial(self._came, exchange), demand=False)
        except HeadraceError as error:
            self._answer(exchange, _refusal(error))
        except Exception:
            _log.exception("a node's question failed; this is a defect in headrace")
            self._answer(exchange, Response(500))

    def _came(self, exchange: Exchange, read: Read, result: Blob | HeadraceError) -> None:
        refused = isinstance(result, HeadraceError)
        self._answer(exchange, _refusal(result) if refused else _having(read, result.data))

    def _answer(self, exchange: Exchange, response: Response) -> None:
        with self._lock:
            self._under_way -= 1
        if response.status < 300:
            self._fetcher.metrics.add("peers.served")
            body = response.body
            self._fetcher.metrics.add("peers.bytes_served", body.length if isinstance(body, FileSlice) else len(body))  # pyright: ignore[reportArgumentType]
        exchange.answer(response)

    def _asked(self, exchange: Exchange) -> Read:
        """Raises InputError, and what says that it cannot be had here."""
        told = {name: values[0] for name, values in parse_qs(exchange.query, keep_blank_values=True).items()}
        try:
            size = int(told["size"])
            root, identity, key, version = (told[name] for name in ("root", "store", "key", "version"))
        except (KeyError, ValueError) as error:
            raise InputError("root, store, key, version, size", path=exchange.path) from error
        found = self._namespace.resolve(f"{root}/{key}")
        if found.store.identity != identity or found.key != key or found.store.local_root is not None:
            raise NotFoundError("is reached otherwise here", path=f"{root}/{key}")
        start, stop = _span(exchange.headers.get("range"), size)
        read = Read(found.store, key, size, version, start, stop)
        if identity not in self._proven:
            if found.store.head(key).version != version:
                raise ChangedError("is another version by now", path=read.path)
            self._proven.add(identity)
        return read


def _span(header: str, size: int) -> tuple[int, int | None]:
    if not header:
        return 0, None
    match = _RANGE.fullmatch(header)
    start = int(match[1]) if match else size
    stop = min(int(match[2]) + 1, size) if match and match[2] else size
    if not 0 <= start < stop:
        raise InputError("this range is not to be had", path=header)
    return start, stop


def _having(read: Read, body: FileSlice | memoryview) -> Response:
    version = read.version or ""
    etag = version if version.startswith('W/"') else f'"{version}"'
    if read.stop is None:
        return Response(200, (("ETag", etag),), body)
    ranged = f"bytes {read.start}-{read.stop - 1}/{read.size}"
    return Response(206, (("ETag", etag), ("Content-Range", ranged)), body)


def _refusal(error: HeadraceError) -> Response:
    if isinstance(error, TryAgainError):
        return Response(503)
    if isinstance(error, (InputError, NotFoundError, ChangedError, DeniedError)):
        return Response(404)
    return Response(500)
