"""Names: what is in a folder, by listing it once a `ttl`, and by asking for one name where that is quicker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headrace.base.errors import NameRefusedError, NotFoundError, TryAgainError
from headrace.base.metrics import Metrics
from headrace.mount.kernel.kernel_requests import Request, Waiters
from headrace.mount.names.circuit_breaker import CircuitBreaker
from headrace.mount.names.fetch_listing import fetch_listing
from headrace.mount.names.fetch_many_listings import fetch_many_listings
from headrace.mount.names.folder_listing import FolderListing
from headrace.mount.names.folder_places import FolderPlaces
from headrace.mount.names.listing_pages import FILE, FOLDER, LINK, ListingPage, showable
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode, FolderPlace, NamedNode, OwnNode
from headrace.mount.write_back.object_metadata import LINK_SUFFIX
from headrace.mount.write_back.staged_tree import split
from headrace.namespace import Namespace
from headrace.store.protocol import ObjectInfo

if TYPE_CHECKING:
    from headrace.mount.mount_options import MountOptions

_log = logging.getLogger("headrace.mount")


class Overlay(Protocol):
    """What a mount shows beside the bucket: files being written, folders that no object holds, names that are gone."""

    @property
    def hides_any(self) -> bool: ...
    def hides(self, folder: str, name: bytes) -> bool: ...
    def find(self, folder: FolderNode, name: bytes) -> OwnNode | None: ...
    def enter(self, folder: FolderNode) -> None: ...
    def settle(self, node: OwnNode) -> None: ...


class NameLookup:
    """Looks names up and lists folders. Any thread.

    Args:
        head: asks a store for one object: size and version.
        deadline: seconds that a listing may let a reader wait.
        breaker: which stores do not answer: what they listed before then stands. None: listings are waited for, always.
    """

    def __init__(
        self,
        table: NodeTable,
        namespace: Namespace,
        options: MountOptions,
        waiters: Waiters,
        metrics: Metrics,
        *,
        head: Callable[[FolderPlace, str], ObjectInfo],
        deadline: float,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        self.table = table
        self._namespace = namespace
        self.places = FolderPlaces(namespace)
        self._ttl = options.ttl
        self._most_keys = options.keys
        self._waiters = waiters
        self._metrics = metrics
        self._head = head
        self._deadline = deadline
        self._breaker = breaker
        self.refreshed = 0
        """How often everything was doubted. What was asked before that may be answered from what was seen before."""
        self.overlay: Overlay | None = None
        """What is being written, where the mount may write. Set before the first request."""

    def lookup(self, folder: FolderNode, name: bytes, request: Request) -> tuple[NamedNode | None, float]:
        """What a name is, and for how many seconds that holds; None: there is no such name.

        Raises:
            WouldBlock. HeadraceError: the store cannot be asked.
        """
        found = self._at_hand(folder, name)
        if found is None:
            request.must_wait()
            self._metrics.add("mount.lookups_asked")
            found = self._listed(folder, name, request) or self._ask(folder, name)
        if self.overlay is None:
            return found
        if self.overlay.hides_any and self.overlay.hides(folder.path, name):
            return None, 0.0
        if found[0] is None:
            node = self.overlay.find(folder, name)
            if node is not None:
                return NamedNode.of(node), self._ttl
        return found

    def listing(self, folder: FolderNode) -> FolderListing:
        """The folder's listing, begun now unless there is a fresh one."""
        place = self.places.of(folder)
        listing, is_new = self._begin(folder)
        if is_new:
            self._metrics.add("mount.listings")
            self._waiters.add(partial(fetch_listing, self.table, folder, listing, place))
        return listing

    def together(self, parent: FolderNode, some: Sequence[FolderNode]) -> None:
        """List folders of `parent` by one LIST of all that is below them; those that have a fresh listing keep it.

        They have been placed (`places`), below their parent's keys. What that LIST does not bring within a few pages is
        listed folder by folder.
        """
        place = self.places.of(parent)
        assert place is not None
        begun = [(folder, listing) for folder in some for listing, is_new in [self._begin(folder)] if is_new]
        if not begun:
            return
        self._metrics.add("mount.listings")
        names = {folder.name.decode("utf-8", "surrogateescape") for folder in some}

        def run() -> None:
            try:
                fetch_many_listings(self.table, place, names, begun)
            finally:
                for folder, listing in begun:
                    if not listing.ended:
                        self._metrics.add("mount.listings")
                        self._waiters.add(partial(fetch_listing, self.table, folder, listing, folder.place))

        self._waiters.add(run)

    def _begin(self, folder: FolderNode) -> tuple[FolderListing, bool]:
        """The folder's listing where it is fresh; else a new one, and whether the caller has to run it."""
        with self.table.lock:
            before = folder.listing
            under_way = before is not None and not before.ended
            trusted = before is not None and (before.fresh or under_way or self._pause(folder) > 0)
            doubted = before is not None and under_way and before.doubted
            if before is not None and before.error is None and trusted and not doubted:
                before.used = time.monotonic()
                return before, False
            listing = FolderListing(folder.path, self._ttl, self._deadline, before)
            folder.listing = listing
            self._trim(folder)
        if before is None or not doubted:
            return listing, True
        # Two at once would both replace the one before them. Requests that wait for the first still get it.
        before.follow(partial(self._run_after, folder, before, listing))
        return listing, False

    def _run_after(self, folder: FolderNode, before: FolderListing, listing: FolderListing) -> None:
        listing.before = before.stands
        self._metrics.add("mount.listings")
        self._waiters.add(partial(fetch_listing, self.table, folder, listing, folder.place))



    def refresh(self) -> None:
        """Trust nothing that was seen before now."""
        self._namespace.refresh()
        if self._breaker is not None:
            self._breaker.forget()
        with self.table.lock:
            self.refreshed += 1
            folders = list(self.table.folders.values())
            for node in self.table.nodes.values():
                node.until = 0.0
            for folder in folders:
                if folder.listing is not None:
                    folder.listing.doubt()

    def doubt(self, found: NamedNode) -> None:
        """What was learned of one name may be different by now."""
        with self.table.lock:
            own = found.folder.own.get(found.name)
            if own is not None and own.staged is None:
                own.until = 0.0

    def distrust(self, paths: Iterable[str]) -> None:
        """Trust nothing that was seen before now of these names, nor of anything below them."""
        for path in paths:
            above, below = split(path)[0], path + "/"
            with self.table.lock:
                for folder in self.table.folders.values():
                    if f"{folder.path}/".startswith(below) or folder.path == above:
                        for node in folder.own.values():
                            node.until = 0.0
                        if folder.listing is not None:
                            folder.listing.doubt()

    def single(self, folder: FolderNode, name: bytes, kind: int, info: ObjectInfo | None) -> NamedNode:
        """Note what was just learned of one name, under the id it has if it is still the same version."""
        with self.table.lock:
            node = folder.own.get(name)
            if node is not None and node.staged is not None:
                return NamedNode.of(node)
            if node is None and (listed := _last_told(self.table, folder, name)) and _same(listed, kind, info):
                node = self.table.promote(listed, self._ttl)
            if node is None or not _same(node, kind, info):
                node = self.table.add(folder, name, kind)
            if info is not None:
                node.learn(info, self._ttl)
            node.trust(self._ttl)
            return NamedNode.of(node)

    def own(self, folder: FolderNode, page: ListingPage, index: int) -> OwnNode | None:
        """The node of its own that a listed name has: the kernel knows the name by it, and by no other id."""
        node = folder.own.get(page.name(index))
        if node is None or node.staged is not None or node.until > time.monotonic():
            return node
        listed = NamedNode.on_page(folder, page, index, node.id)
        return node if _same(node, listed.kind, listed.info if listed.kind != FOLDER else None) else None

    def _listed(self, folder: FolderNode, name: bytes, request: Request) -> tuple[NamedNode | None, float] | None:
        """What a fresh listing says, as far as it has come; None: it does not have this name."""
        began = time.monotonic()
        try:
            listing = self.listing(folder)
            if listing.queued:
                return None  # one name is asked for sooner
            listing.wait(0, request)
        except TryAgainError as error:
            found = self._at_hand(folder, name) if self.not_listed(folder, time.monotonic() - began, error) else None
            if found is None:
                raise
            return found
        return self._at_hand(folder, name)

    def not_listed(self, folder: FolderNode, waited_s: float, error: TryAgainError) -> bool:
        """A store did not answer in `waited_s`. Returns whether its last listing stands for a while."""
        if self._breaker is None or folder.place is None:
            return False
        self._breaker.failed(folder.place.store, waited_s, error)
        return True

    def _pause(self, folder: FolderNode) -> float:
        """For how many seconds the folder's store is not asked, so that its last listing stands."""
        if self._breaker is None or folder.place is None:
            return 0.0
        return self._breaker.seconds_left(folder.place.store)

    def _at_hand(self, folder: FolderNode, name: bytes) -> tuple[NamedNode | None, float] | None:
        """What is known of a name without asking; None: too little."""
        now = time.monotonic()
        own = folder.own.get(name)
        if own is not None and own.staged is not None and self.overlay is not None:
            self.overlay.settle(own)
        if own is not None and (own.staged is not None or own.until > now):
            return NamedNode.of(own), min(max(own.until - now, 0.0), self._ttl) if own.staged is None else self._ttl
        listing, left = folder.listing, self._pause(folder)
        if listing is None or (listing.until <= now and not left):
            return None
        if left and listing.before is not None:
            listing = listing.before
        until = max(listing.until, now + left)
        if own is not None and left and own.learned >= listing.started:
            return NamedNode.of(own), left
        gone = folder.gone.get(name)
        if gone is not None and gone >= listing.started:
            return None, until - now
        with self.table.lock:
            found = listing.find(name)
            if found is not None:
                page, index = found
                fresh = NamedNode.on_page(folder, page, index, self.table.node_of(folder, page, index))
                if own is not None and _same(own, fresh.kind, fresh.info if fresh.kind != FOLDER else None):
                    own.until = until
                    return NamedNode.of(own), until - now
                if own is not None:
                    del folder.own[name]
                return fresh, until - now
        if listing.complete and not listing.partial:
            kept = self._kept(folder, own)
            return (None, until - now) if kept is None else (kept, self._ttl)
        return None

    def _kept(self, folder: FolderNode, own: OwnNode | None) -> NamedNode | None:
        """A name of our own that the store does not show: only what the overlay keeps is still there."""
        if own is None:
            return None
        node = self.overlay.find(folder, own.name) if self.overlay is not None else None
        if node is not None:
            return NamedNode.of(node)
        with self.table.lock:
            if folder.own.get(own.name) is own:
                del folder.own[own.name]
        return None

    def _ask(self, folder: FolderNode, name: bytes) -> tuple[NamedNode | None, float]:
        text = name.decode("utf-8", "surrogateescape")
        place = folder.place
        if place is None or not showable(text):
            return None, self._ttl
        self._metrics.add("mount.heads")
        key = place.prefix + text
        with suppress(NameRefusedError):  # nothing can be called so
            if any(place.store.list(key + "/")):
                return self.single(folder, name, FOLDER, None), self._ttl
            for kind, suffix in ((FILE, ""), (LINK, LINK_SUFFIX)):
                with suppress(NotFoundError):
                    return self.single(folder, name, kind, self._head(place, key + suffix)), self._ttl
        return self._kept(folder, folder.own.get(name)), self._ttl




    def _trim(self, keep: FolderNode) -> None:
        """Forget the listings longest unused while there are too many names. Under the lock."""
        if self.table.size() <= self._most_keys:
            return
        held = [
            (folder.listing.used, folder)
            for folder in self.table.folders.values()
            if folder is not keep and folder.listing is not None and folder.listing.ended
        ]
        for _, folder in sorted(held, key=lambda pair: pair[0]):
            if folder.listing is not None:
                self.table.release(folder.listing)
                folder.listing = None
            if self.table.size() <= self._most_keys * 3 // 4:
                return


def _last_told(table: NodeTable, folder: FolderNode, name: bytes) -> NamedNode | None:
    """What the latest listing that has a name says of it, trusted or not. Under the table's lock."""
    listing = folder.listing
    while listing is not None:
        found = listing.find(name)
        if found is not None:
            page, index = found
            return NamedNode.on_page(folder, page, index, table.node_of(folder, page, index))
        listing = listing.before
    return None


def _same(node: OwnNode | NamedNode, kind: int, info: ObjectInfo | None) -> bool:
    if node.kind != kind:
        return False
    if info is None:
        return True
    if info.etag is not None and node.etag is not None:
        return info.etag == node.etag and info.size == node.size
    return info.size == node.size and info.mtime_us == node.mtime_us
