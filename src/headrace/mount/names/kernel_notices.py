"""What the kernel is told unasked, so that it asks again.

A name is *expired*: the kernel looks it up at its next use, and keeps what it has of it where that is the same node
still. Invalidated, by its name or by a new epoch, it would be forgotten where nobody holds it, and might come back
under another inode number. So every name is told singly, also those that the kernel was told do not exist, which are
noted here for that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.mount.kernel import wire
from headrace.mount.names.listing_pages import FOLDER

if TYPE_CHECKING:
    from headrace.mount.kernel.session import Session
    from headrace.mount.names.node_table import Known, Table

_MOST_ABSENT: Final = 1 << 15
"""Names the kernel may hold for absent at a time, 200 bytes of ours each. It asks for those beyond every time."""


class Notices:
    """Any thread; what tells the kernel something, never on one that answers: the kernel may have to wait for that."""

    def __init__(self, table: Table, session: Session) -> None:
        self._table = table
        self._session = session
        self._lock = threading.Lock()
        self._absent: dict[tuple[int, bytes], float] = {}

    def absent(self, folder: int, name: bytes, seconds: float) -> float:
        """The kernel is about to be told that there is no such name in the folder of that node id.

        Returns:
            For how many seconds it may keep that: `seconds`, or 0 where as many names as are noted are kept already.
        """
        if seconds <= 0.0:
            return 0.0
        now = time.monotonic()
        key = (folder, name)
        with self._lock:
            known = self._absent
            known.pop(key, None)
            while known and known[first := next(iter(known))] <= now:
                del known[first]
            if len(known) >= _MOST_ABSENT:
                return 0.0
            known[key] = now + seconds
        return seconds

    def refresh(self) -> None:
        """Have the kernel look every name up again, and drop what it keeps of folders' contents. Returns at once."""
        self._session.waiters.add(self._tell_all)

    def forget(self) -> None:
        """Have the kernel forget the oldest files that take a node of their own, where there are too many."""
        with self._table.lock:
            names = [(node.folder.id, node.name) for node in self._table.sweep()]
        if names:
            self._session.waiters.add(lambda: self._invalidate(names))

    def name(self, found: Known) -> None:
        """Have the kernel look one file up again."""
        notice = wire.inval_entry(found.folder.id, found.name)
        self._session.waiters.add(lambda: self._session.notify(notice))

    def pages(self, node: int) -> bool:
        """Have the kernel drop the pages it holds of a file. False where it does not know the file."""
        return self._session.notify(wire.inval_inode(node, 0, 0))

    def _tell_all(self) -> None:
        later: dict[int, list[bytes]] = {}
        for folder, name, kind in self._names():
            if not self._session.agreed.expires and kind == FOLDER:
                continue  # before Linux 6.2 a folder's own name has to wait for its `ttl`
            if self._is_being_read(folder):
                later.setdefault(folder, []).append(name)
            else:
                self._expire(folder, name)
        for folder in list(self._table.folders):
            self._session.notify(wire.inval_inode(folder))
        for folder, names in later.items():
            self._session.waiters.add(partial(self._expire, folder, *names))

    def _is_being_read(self, number: int) -> bool:
        """Whether a READDIR may be waiting for the store: until its end the kernel takes no notice of the folder."""
        folder = self._table.folders.get(number)
        return folder is not None and folder.listing is not None and not folder.listing.ended

    def _expire(self, folder: int, *names: bytes) -> None:
        for name in names:
            self._session.notify(wire.inval_entry(folder, name, expire=self._session.agreed.expires))

    def _invalidate(self, names: Sequence[tuple[int, bytes]]) -> None:
        for folder, name in names:
            self._session.notify(wire.inval_entry(folder, name))

    def _names(self) -> Iterator[tuple[int, bytes, int]]:
        """All names that the kernel knows something of: the folder's id, the name, and its kind (absent: -1)."""
        table = self._table
        with self._lock:
            absent = list(self._absent)
            self._absent.clear()
        for folder, name in absent:
            yield folder, name, -1
        with table.lock:
            nodes = [(node.folder.id, node.name, node.kind) for node in table.nodes.values() if node.count > 0]
            pages = list(table.pages.values())
        yield from nodes
        for page in pages:
            with table.lock:
                known = [index for index, count in enumerate(page.counts) if count]
            for index in known:
                yield page.folder.id, page.name(index), page.kinds[index]
