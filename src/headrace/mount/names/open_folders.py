"""Open folders: READDIR and READDIRPLUS from the listing, page by page as it comes."""

from __future__ import annotations

import errno
import itertools
import stat
import time
from typing import TYPE_CHECKING

from headrace.base.errors import TryAgainError
from headrace.mount.kernel import wire
from headrace.mount.kernel.wire import Fopen
from headrace.mount.names.folder_listing import FolderListing
from headrace.mount.names.list_ahead import ListAhead
from headrace.mount.names.listing_pages import FOLDER, HIDDEN, LINK, ListingPage
from headrace.mount.names.name_lookup import NameLookup
from headrace.mount.names.nodes import FolderNode, NamedNode, OwnNode
from headrace.mount.names.stat_attributes import StatAttributes

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request

_PAGE_SHIFT = 32  # bits of an offset in a folder that are a place in a page; above them is the page's number
_TYPES = {FOLDER: stat.S_IFDIR >> 12, LINK: stat.S_IFLNK >> 12}
_REGULAR = stat.S_IFREG >> 12


class _Open:
    """One open folder: its listing and, apart from it, the names of our own as they were when it was opened.

    `skip`: names that are not shown from the listing: those of our own, and what was gone by then. A newer listing that
    has ended since does not remember what was gone before it. The nodes of `own` count as looked up until it is closed,
    so that a node that the kernel forgets meanwhile is shown all the same.
    """

    __slots__ = ("folder", "listing", "own", "skip")

    def __init__(self, folder: FolderNode, listing: FolderListing, own: list[tuple[bytes, NamedNode]]) -> None:
        self.folder = folder
        self.listing = listing
        self.own = own
        self.skip = frozenset([name for name, _ in own]).union(
            name for name, when in folder.gone.items() if when >= listing.started
        )


class OpenFolders:
    """Handles of open folders, counted from 1. Any thread. `plus`: whether names come with their attributes."""

    def __init__(self, names: NameLookup, attributes: StatAttributes, *, plus: bool) -> None:
        self._names = names
        self._table = names.table
        self._attributes = attributes
        self._plus = plus
        self._lasting = wire.lasting(attributes.lasting)
        self._open: dict[int, _Open] = {}
        self._numbers = itertools.count(names.table.first_number + 1)
        self._shown: dict[int, int] = {}
        self._ahead = ListAhead(names)

    def open(self, request: Request) -> bytes:
        """The answer to OPENDIR: begins the listing, where there is no fresh one."""
        folder = self._table.folder(request.node)
        before = folder.listing
        listing = self._names.listing(folder)
        self._ahead.opened(folder)
        overlay = self._names.overlay
        if overlay is not None:
            overlay.enter(folder)
        with self._table.lock:
            now = time.monotonic()
            own = [(name, NamedNode.of(node)) for name, node in folder.own.items() if self._extra(node, listing, now)]
            for _, found in own:
                self._table.looked_up(found.id)
            opened = _Open(folder, listing, own)
        number = next(self._numbers)
        self._open[number] = opened
        # The kernel keeps the names it read last; good while the folder has not changed since.
        same = listing is before and listing.complete and self._shown.get(folder.id) == folder.mtime_ns
        self._shown[folder.id] = folder.mtime_ns
        return wire.opened(request.unique, number, Fopen.CACHE_DIR | (Fopen.KEEP_CACHE if same else 0))

    def release(self, request: Request) -> list[int]:
        """RELEASEDIR. Returns the nodes that the handle held; each is to be forgotten once."""
        opened = self._open.pop(wire.RELEASE_IN.unpack_from(request.body)[0], None)
        return [found.id for _, found in opened.own] if opened is not None else []

    def read(self, request: Request, *, plus: bool = False) -> bytes:
        """READDIR, READDIRPLUS.

        Raises:
            WouldBlock: the page is not here yet. HeadraceError: the listing failed.
        """
        number, offset, size, _, _, _, _ = wire.READ_IN.unpack_from(request.body)
        out = bytearray()
        opened = self._open.get(number)
        if opened is None:  # of an earlier server: nobody knows how far it was read
            raise OSError(errno.ESTALE, "opened by an earlier server")
        if offset >> _PAGE_SHIFT == 0:
            offset = self._first(opened, offset, size, out, plus=plus)
        while offset >> _PAGE_SHIFT and len(out) < size:
            index = (offset >> _PAGE_SHIFT) - 1
            if index >= len(opened.listing.pages) and (out or not self._wait(opened, index, request)):
                break
            after = self._page(opened, index, offset & 0xFFFFFFFF, size, out, plus=plus)
            if after < 0:
                break
            offset = (index + 2) << _PAGE_SHIFT
        return wire.reply(request.unique, bytes(out))

    def __len__(self) -> int:
        return len(self._open)

    def _wait(self, opened: _Open, index: int, request: Request) -> bool:
        """As `FolderListing.wait`. After one request waited in vain, the others see the listing before."""
        began = time.monotonic()
        try:
            return opened.listing.wait(index, request)
        except TryAgainError as error:
            self._names.not_listed(opened.folder, time.monotonic() - began, error)
            raise

    def _extra(self, node: OwnNode, listing: FolderListing, now: float) -> bool:
        """Names of our own that are shown whatever the listing says."""
        if node.staged is not None or node.learned >= listing.started:
            return True
        return node.until > now and (not listing.complete or listing.find(node.name) is not None)

    def _first(self, opened: _Open, offset: int, size: int, out: bytearray, *, plus: bool) -> int:
        """``.``, ``..`` and names of our own; the offset to go on from, 0 when `out` is full."""
        folder = opened.folder
        parent = folder.parent or folder
        special = [(b".", folder.id, _TYPES[FOLDER]), (b"..", parent.id, _TYPES[FOLDER])]
        for position in range(offset, 2 + len(opened.own)):
            after = position + 1 if position + 1 < 2 + len(opened.own) else 1 << _PAGE_SHIFT
            if position < 2:
                name, number, kind = special[position]
                item = (wire.no_entry() if plus else b"") + wire.dirent(number, after, kind, name)
                if len(out) + len(item) > size:
                    return 0
            else:
                name, _ = opened.own[position - 2]
                if len(out) + _room(name, plus=plus) > size:
                    return 0
                item = self._own(folder, name, after, plus=plus)
            out += item
        return 1 << _PAGE_SHIFT

    def _own(self, folder: FolderNode, name: bytes, after: int, *, plus: bool) -> bytes:
        """A name that was of our own when its folder was opened, as it is now; empty where it is gone."""
        with self._table.lock:
            node, listing = folder.own.get(name), folder.listing
            listed = listing.find(name) if node is None and listing is not None and name not in folder.gone else None
        told = self._told(NamedNode.of(node), after, plus=plus) if node is not None else None
        if told is None and listed is not None:
            return self._listed(folder, *listed, name, after, wire.lasting(0.0), plus=plus)
        return told or b""

    def _told(self, found: NamedNode, after: int, *, plus: bool) -> bytes | None:
        """A name that has a node of its own, which the kernel knows from now on; None where it has none any more."""
        kind = _TYPES.get(found.kind, _REGULAR)
        if not plus or not self._plus:
            return (wire.no_entry() if plus else b"") + wire.dirent(found.id, after, kind, found.name)
        with self._table.lock:
            if not self._table.has(found):
                return None
            self._table.looked_up(found.id)
        shown = self._attributes
        left, valid = wire.lasting(shown.ttl), wire.lasting(shown.valid(found))
        return wire.listed(shown.of(found), left, valid, after, kind, found.name)

    def _page(self, opened: _Open, number: int, start: int, size: int, out: bytearray, *, plus: bool) -> int:
        """Names of one page from `start` on; -1 when `out` is full before the page's end."""
        page = opened.listing.pages[number]
        skip, gone = opened.skip, opened.folder.gone
        overlay = self._names.overlay
        hidden = overlay is not None and overlay.hides_any
        path = opened.folder.path if hidden else ""
        began = opened.listing.started
        base = (number + 1) << _PAGE_SHIFT
        count = len(page)
        listing = opened.folder.listing
        left = wire.lasting(max(listing.until - time.monotonic(), 0.0) if listing is not None else 0.0)
        for index in range(start, count):
            kind = page.kinds[index]
            if kind == HIDDEN:
                continue
            name = page.name(index)
            if (skip and name in skip) or (gone and gone.get(name, -1.0) >= began):
                continue
            if hidden and overlay is not None and overlay.hides(path, name):
                continue
            if len(out) + _room(name, plus=plus) > size:
                return -1
            after = base | (index + 1) if index + 1 < count else (number + 2) << _PAGE_SHIFT
            own = self._names.own(opened.folder, page, index) if opened.folder.own else None
            told = self._told(NamedNode.of(own), after, plus=plus) if own is not None else None
            if told is not None:
                out += told
            elif plus and self._plus:
                out += self._with_attributes(opened.folder, page, index, name, after, left)
            else:
                out += self._listed(opened.folder, page, index, name, after, left, plus=plus)
        return 0

    def _listed(
        self, folder: FolderNode, page: ListingPage, index: int, name: bytes, after: int, left: tuple[int, int],
        *, plus: bool,
    ) -> bytes:  # fmt: skip
        """A name of a page. `left`: for how long the kernel may trust it."""
        if plus and self._plus:
            return self._with_attributes(folder, page, index, name, after, left)
        kind = _TYPES.get(page.kinds[index], _REGULAR)
        return (wire.no_entry() if plus else b"") + wire.dirent(page.node(index), after, kind, name)

    def _with_attributes(
        self, folder: FolderNode, page: ListingPage, index: int, name: bytes, after: int, left: tuple[int, int]
    ) -> bytes:
        """A name of a page, which the kernel knows from now on. `left`: for how long it may trust the name."""
        attributes, kind = self._attributes, page.kinds[index]
        with self._table.lock:
            shown = self._table.show(folder, page, index)
        node = self._table.nodes.get(shown)
        if node is None and kind != FOLDER:
            attr, valid = attributes.listed(page, index, shown), self._lasting
        else:
            found = NamedNode.of(node) if node is not None else NamedNode.on_page(folder, page, index, shown)
            attr, valid = attributes.of(found), wire.lasting(attributes.valid(found))
        return wire.listed(attr, left, valid, after, _TYPES.get(kind, _REGULAR), name)


def _room(name: bytes, *, plus: bool) -> int:
    """Bytes that a name takes in an answer."""
    return 24 + (len(name) + 7 & ~7) + (128 if plus else 0)
