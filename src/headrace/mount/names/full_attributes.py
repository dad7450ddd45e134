"""Mode, owner and mtime kept in an object's metadata, asked for file by file (``metadata = "full"``)."""

from __future__ import annotations

import stat
import time
from typing import TYPE_CHECKING

from headrace.base.errors import NotFoundError, TryAgainError
from headrace.mount.names.circuit_breaker import CircuitBreaker
from headrace.mount.names.listing_pages import FILE
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderPlace, NamedNode
from headrace.mount.names.stat_attributes import StatAttributes
from headrace.mount.write_back.object_metadata import from_metadata

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.kernel.wire import Attr


class FullAttributes:
    """What `StatAttributes` shows, with what the object's metadata says. Any thread.

    While a store does not answer, only one name in a while waits for it; the others are shown as the listing has them.
    The kernel decides by the mode shown who may open a file. So where other users than the one who mounted may come
    (`shared`), such a name has no permissions at all: its own might allow less than the mount's.
    """

    def __init__(
        self, table: NodeTable, shown: StatAttributes, breaker: CircuitBreaker, ttl: float, *, shared: bool
    ) -> None:
        self._table = table
        self._shown = shown
        self._breaker = breaker
        self._ttl = ttl
        self._shared = shared

    def of(self, found: NamedNode, request: Request) -> tuple[NamedNode, Attr, float]:
        """The same name with attributes of its own, what is shown of it, and for how many seconds that may be kept.

        Raises:
            WouldBlock. HeadraceError: the store refuses.
        """
        node = found.node
        place = found.folder.place
        if found.kind == FILE and place is not None and (node is None or not (node.attrs or node.staged)):
            left = self._breaker.seconds_left(place.store, ask=request.may_wait)
            if not left:
                request.must_wait()
                began = time.monotonic()
                try:
                    found = self._added(found, place)
                    self._breaker.answered(place.store)
                except TryAgainError as error:
                    left = self._breaker.failed(place.store, time.monotonic() - began, error)
            if left:
                return found, self._listed(found), min(left, self._shown.valid(found))
        return found, self._shown.of(found), self._shown.valid(found)

    def _added(self, found: NamedNode, place: FolderPlace) -> NamedNode:
        try:
            described = place.store.describe(found.key)
        except NotFoundError:
            return found
        with self._table.lock:
            node = self._table.promote(found, self._ttl)
            node.attrs = from_metadata(described.metadata)
            return NamedNode.of(node)

    def _listed(self, found: NamedNode) -> Attr:
        attr = self._shown.of(found)
        return attr._replace(mode=stat.S_IFMT(attr.mode)) if self._shared else attr
