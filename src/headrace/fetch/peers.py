"""Reads that another node's cache answers: the node that keeps an object version is asked before the store is.

What another node keeps is not kept here, so that N caches hold N times as much. A node that is late, or gone, costs a
read no more than a hedge: then the store is asked too, and the first answer counts.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from headrace.base.errors import (
    ChangedError,
    CorruptError,
    HeadraceError,
    NotFoundError,
    SettingError,
    SlowDownError,
)
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.fetch.direct import Direct
from headrace.fetch.keepers import Keepers
from headrace.fetch.operation import Operation
from headrace.fetch.peer import FAILURES, Peer, target
from headrace.fetch.reactor import Reactor
from headrace.fetch.read import Read, Ticket
from headrace.fetch.verify import Verifier
from headrace.fetch.wanted import Wanted
from headrace.store.protocol import Blob, Store

_log = logging.getLogger("headrace.fetch")
_LOOK_S: Final = 1.0
"""How old what the file said may be."""
_DEADLINE_S: Final = 10.0
"""Another node that takes longer than this is of no use: the store has it, too."""
_BLOCKS: Final = 16
"""In a piece of a large object, each of which one node keeps: 64 MiB with the cache's usual blocks."""
_NO_FAULT = (NotFoundError, ChangedError, SlowDownError)
"""What a node may well answer: the store knows better, or is less busy."""


class Peers:
    """Takes from what is missing here what other nodes keep. Any thread.

    Args:
        settings: `cache.peers` is the file that names the nodes; read again when it changes. While it is not there,
            there are none.
        direct: where what they do not answer goes.
        came: is told of bytes that were read.

    Raises:
        SettingError: the file is not as it must be.
    """

    def __init__(self, settings: Settings, direct: Direct, metrics: Metrics, came: Callable[[int], None]) -> None:
        self.direct, self.metrics, self.came = direct, metrics, came
        self._path, self._whole, self._block = settings.cache.peers, settings.cache.whole, settings.cache.block
        fetch = settings.fetch
        self._settings = replace(fetch, retries=0, hedge=False, deadline=min(fetch.deadline, _DEADLINE_S))
        self._verifier = Verifier(_damaged, metrics) if fetch.verify else None
        self._lock = threading.Lock()
        self._reactor: Reactor | None = None
        self._nodes: dict[str, Peer] = {}
        self._keepers: Keepers | None = None
        self._mark: tuple[int, int, int] | None = None
        self._looked = 0.0
        self._read(strict=True)

    def take(self, missing: Sequence[Wanted]) -> list[Wanted]:
        """Ask for what other nodes keep. Returns the others: this node's own to fetch, and to keep."""
        keepers = self._known()
        if keepers is None or len(keepers.nodes) == 1:
            return list(missing)
        own: list[Wanted] = []
        foreign: dict[tuple[int, str], tuple[Store, list[Wanted]]] = {}
        for wanted in missing:
            keeper = self._keeper(keepers, wanted)
            if keeper == keepers.here:
                own.append(wanted)
            else:
                store = wanted.read.store
                foreign.setdefault((id(store), keeper), (store, []))[1].append(wanted)
        for (_, keeper), (store, wanteds) in foreign.items():
            self._ask(self._nodes.get(keeper), store, wanteds)
        return own

    def close(self) -> None:
        """Stop. Unfinished reads fail."""
        with self._lock:
            reactor = self._reactor
        if reactor is not None:
            reactor.close()
        if self._verifier is not None:
            self._verifier.close()

    def wrap(self, operation: Operation) -> Operation:
        """The same read, compared with its MD5 where `fetch.verify` asks for that."""
        return operation if self._verifier is None else self._verifier.wrap(operation)

    def _keeper(self, keepers: Keepers, wanted: Wanted) -> str:
        """Of large objects: of the piece in which the read begins. What is longer than a piece is everybody's own."""
        size, (start, stop) = wanted.read.size or 0, wanted.span
        if stop <= start:  # no HTTP range is empty
            return keepers.here
        if size <= max(self._whole, self._block):
            return keepers.of(wanted.name)
        piece = _BLOCKS * self._block
        return keepers.here if stop - start > piece else keepers.of(wanted.name, start // piece)

    def _ask(self, node: Peer | None, store: Store, wanteds: Sequence[Wanted]) -> None:
        asked: list[_Asked] = []
        rest: list[Operation] = []
        for wanted in wanteds:
            if node is not None and node.may_be_asked():
                asked.append(_Asked(self, node, wanted))
            else:
                rest.append(wanted.operation)
        if rest:
            self.metrics.add("peers.passed", len(rest))
            self.direct.send(store, rest)
        if asked and node is not None:
            reactor = self._running()
            reactor.submit(store, node.wire, [one.operation for one in asked])
            for one in asked:
                reactor.call(partial(one.watch, reactor))

    def _running(self) -> Reactor:
        with self._lock:
            if self._reactor is None:  # with counters of its own: those of `fetch` are the stores'
                self._reactor = Reactor(self._settings, self.direct.budget, Metrics())
            return self._reactor

    def _known(self) -> Keepers | None:
        if time.monotonic() - self._looked > _LOOK_S:
            self._read(strict=False)
        return self._keepers

    def _read(self, *, strict: bool) -> None:
        """Look at the file, where it has changed. `strict`: say what is wrong with it; else go on as before."""
        with self._lock:
            first, self._looked = not self._looked, time.monotonic()
            try:
                status = os.stat(self._path)
                mark = (status.st_mtime_ns, status.st_ino, status.st_size)
                if mark != self._mark:
                    self._mark = mark
                    self._take_up(Keepers.load(self._path))
            except FileNotFoundError:
                if first or self._keepers is not None:
                    _log.warning("%s is not there: no other node's cache is read", self._path)
                self._keepers = self._mark = None
            except (OSError, SettingError) as error:
                if strict and isinstance(error, SettingError):
                    raise
                _log.warning("other nodes are those that were known before: %s", error)

    def _take_up(self, keepers: Keepers) -> None:
        before = self._nodes
        others = {name: (url, keepers.token) for name, url in keepers.nodes.items() if name != keepers.here}
        self._nodes = {
            name: before[name] if name in before and before[name].known_by == told else Peer(*told)
            for name, told in others.items()
        }
        self._keepers = keepers


class _Asked:
    """A read on its way to the node that keeps it, and from when that is late to the store too."""

    __slots__ = ("_began", "_lock", "_node", "_over", "_peers", "_sent", "_wanted", "operation")

    def __init__(self, peers: Peers, node: Peer, wanted: Wanted) -> None:
        self._peers, self._node, self._wanted = peers, node, wanted
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._over = self._sent = False
        read = wanted.read
        there = Read(read.store, target(read), read.size, read.version, read.start, read.stop)
        operation = Operation(there, self._answered, _Interest(self, wanted), wanted.operation.demand)
        self.operation = peers.wrap(operation)

    @property
    def over(self) -> bool:
        """It has its answer."""
        return self._over

    def watch(self, reactor: Reactor) -> None:
        """From now on, until it is answered or late. On the reactor's thread."""
        if self._over or self._sent:
            return
        # One that waits for its turn is not late while others are answered.
        last = max((connection.last for connection in self.operation.connections), default=self._node.last)
        late_at = max(last, self._began) + self._node.late_after
        if time.monotonic() < late_at:  # at first, or bytes have come since
            reactor.at(late_at, partial(self.watch, reactor))
        elif not self._wanted.operation.ticket.cancelled:
            self._node.failed(1)
            self._peers.metrics.add("peers.late")
            self._elsewhere()

    def _answered(self, result: Blob | HeadraceError) -> None:
        """The node has answered, or cannot. On a fetch thread."""
        peers = self._peers
        if isinstance(result, Blob):
            self._node.answered(time.monotonic() - self._began)
            if self._first():
                peers.metrics.add("peers.reads")
                peers.metrics.add("peers.bytes", len(result.data))
                peers.came(len(result.data))
                self._wanted.hit(result.data)
            return
        if self.operation.ticket.cancelled:
            if self._first():
                self._wanted.operation.done(result)
            return
        if not isinstance(result, _NO_FAULT):
            _log.debug("a node that keeps an object cannot be read from: %s", result)
            self._node.failed(FAILURES)
        peers.metrics.add("peers.failed")
        self._elsewhere()

    def _elsewhere(self) -> None:
        with self._lock:
            if self._sent or self._over:
                return
            self._sent = True
        operation = self._wanted.operation
        again = Operation(operation.read, self._from_store, operation.ticket, operation.demand, pieces=operation.pieces)
        self._peers.direct.send(operation.read.store, [again])

    def _from_store(self, result: Blob | HeadraceError) -> None:
        if self._first():
            if isinstance(result, Blob):
                self._peers.came(len(result.data))
            self._wanted.operation.done(result)

    def _first(self) -> bool:
        with self._lock:
            first, self._over = not self._over, True
        return first


class _Interest(Ticket):
    """Cancelled once whoever asked is, or has the bytes from the store. On nobody's account: no store is asked."""

    __slots__ = ("_asked", "_asker")

    def __init__(self, asked: _Asked, wanted: Wanted) -> None:
        super().__init__()
        self._asked, self._asker = asked, wanted.operation.ticket
        self.account = None

    @property
    def cancelled(self) -> bool:
        return self._asker.cancelled or self._asked.over


def _damaged(operation: Operation) -> None:
    operation.done(CorruptError("another node's copy does not match its MD5", path=operation.read.path))
