"""Mode, owner and mtime kept in an object's metadata, asked for file by file (``metadata = "full"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.errors import NotFoundError
from headrace.mount.attributes import from_metadata
from headrace.mount.inodes import Known, Table, known
from headrace.mount.pages import FILE

if TYPE_CHECKING:
    from headrace.mount.requests import Request


class Details:
    """Adds to a name what its object's metadata says. Any thread."""

    def __init__(self, table: Table, ttl: float) -> None:
        self._table = table
        self._ttl = ttl

    def added(self, found: Known, request: Request) -> Known:
        """The same name with attributes of its own.

        Raises:
            WouldBlock. HeadraceError: the store cannot be asked.
        """
        node = found.node
        place = found.folder.place
        if found.kind != FILE or place is None or (node is not None and (node.attrs or node.staged)):
            return found
        request.must_wait()
        try:
            described = place.store.describe(found.key)
        except NotFoundError:
            return found
        with self._table.lock:
            node = self._table.promote(found, self._ttl)
            node.attrs = from_metadata(described.metadata)
            return known(node)
