"""Small files fetched ahead: when the files of a folder are being opened one after another, their neighbours come too.

What is fetched unasked stays below a multiple of what was asked for in that folder, so a program that opens one file
costs one. Fetches are speculation for `fetch/`: they yield to reads that somebody waits for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headrace.base.threads import Crew
from headrace.fetch import Read
from headrace.mount.names.listing_pages import FILE, MOST, SHIFT, ListingPage

if TYPE_CHECKING:
    from headrace.base.errors import HeadraceError
    from headrace.cache import Cache
    from headrace.fetch import Fetcher
    from headrace.mount.names.folder_listing import FolderListing
    from headrace.mount.names.name_lookup import NameLookup
    from headrace.mount.names.nodes import FolderNode, NamedNode
    from headrace.store.protocol import Blob

_Taker: TypeAlias = "Callable[[Blob | HeadraceError], None]"

_EVIDENCE = 3
"""Files of a folder that must have been fetched before its others are."""
_GENEROSITY = 12
"""Bytes ahead for each byte that was opened: it bounds what is fetched and not opened after all."""
_FIRST = 4 << 20  # bytes ahead to begin with
_AT_ONCE = 96  # reads under way
_BATCH = 512  # reads queued at a time
_LOW = 64  # reads in the queue from which on no more are planned
_STEP = 4 << 20  # bytes that planning is worth waking a thread for
_MOST_FOLDERS = 1024  # folders being read; the one begun first is forgotten


class _FolderRun:
    """What is known of the reading of one folder.

    `asked`: by page, which names were fetched or need not be; `complete`: the listing of which all were.
    """

    __slots__ = ("asked", "complete", "demanded", "missed", "planning", "spent")

    def __init__(self) -> None:
        self.missed = 0
        self.demanded = 0
        self.spent = 0
        self.asked: dict[int, bytearray] = {}
        self.planning = False
        self.complete: FolderListing | None = None


class _Neighbour:
    """One file on its way, and who wants it meanwhile."""

    __slots__ = ("_lock", "_result", "_takers", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._takers: list[_Taker] = []
        self._result: Blob | HeadraceError | None = None

    def then(self, taker: _Taker) -> None:
        """Have it called with the result: on a fetch thread, or at once if it is there."""
        with self._lock:
            result = self._result
            if result is None:
                self._takers.append(taker)
                return
        taker(result)

    def deliver(self, result: Blob | HeadraceError) -> None:
        """Called once, on a fetch thread."""
        with self._lock:
            self._result = result
        for taker in self._takers:
            taker(result)


class NeighbourPrefetch:
    """Fetches neighbours into the cache. Any thread; never blocks."""

    def __init__(self, fetcher: Fetcher, cache: Cache, names: NameLookup) -> None:
        self._fetcher = fetcher
        self._cache = cache
        self._names = names
        self._whole = fetcher.settings.cache.whole
        self._most_in_flight = max(fetcher.settings.fetch.memory // 4, 1 << 20)
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, _FolderRun] = OrderedDict()
        self._queue: deque[tuple[str, Read]] = deque()
        self._under_way: dict[str, _Neighbour] = {}
        self._bytes = 0
        self._closed = False
        self._planner = Crew("mount-ahead", 1)

    def hand_over(self, name: str, taker: _Taker) -> bool:
        """Have `taker` called with what comes of a cache entry that is on its way already. False: it is not."""
        neighbour = self._under_way.get(name)
        if neighbour is not None:
            neighbour.then(taker)
        return neighbour is not None

    def opened(self, known: NamedNode, *, missed: bool) -> None:
        """A small file is being opened. `missed`: it had to be fetched, or was on its way."""
        folder = known.folder
        run = self._runs.get(folder.id)
        if run is None:
            if not missed:
                return
            with self._lock:
                run = self._runs.setdefault(folder.id, _FolderRun())
                while len(self._runs) > _MOST_FOLDERS:
                    self._runs.popitem(last=False)
        run.missed += missed
        run.demanded += known.size
        if run.missed < _EVIDENCE or run.planning or len(self._queue) > _LOW:
            return
        if run.complete is folder.listing and folder.listing is not None:
            return
        # In steps worth waking a thread for.
        if run.spent == 0 or run.spent + _STEP < _FIRST + _GENEROSITY * run.demanded:
            run.planning = True
            self._planner.add(lambda: self._go_on(folder, run, known))

    def close(self) -> None:
        """Plan nothing more."""
        self._closed = True
        self._queue.clear()
        self._planner.close(drop=True)

    def __len__(self) -> int:
        return len(self._under_way)

    def _go_on(self, folder: FolderNode, run: _FolderRun, known: NamedNode) -> None:
        """On the planner's thread, since looking up what is cached takes too long for a thread that answers."""
        run.planning = False
        self._plan(folder, run, known)
        self._pump()

    def _plan(self, folder: FolderNode, run: _FolderRun, known: NamedNode) -> None:
        """Queue the next names after `known` in listing order, then round from the start."""
        listing = folder.listing
        if listing is None or not listing.fresh:
            if folder.asked == 0:
                folder.asked = 1
                self._names.listing(folder)  # on a thread of its own; the next open finds it
            return
        folder.asked = 0
        pages = listing.pages
        if not pages or folder.place is None:
            return
        number, index = self._position(pages, known)
        allowed = _FIRST + _GENEROSITY * run.demanded
        with self._lock:
            for step in range(len(pages) + 1):
                page = pages[(number + step) % len(pages)]
                start = index + 1 if step == 0 else 0
                if not self._plan_page(folder, run, page, start, allowed):
                    return
            if listing.complete:
                run.complete = listing

    def _plan_page(self, folder: FolderNode, run: _FolderRun, page: ListingPage, start: int, allowed: int) -> bool:
        """Queue what is not yet asked for on one page; False when enough is queued."""
        asked = run.asked.get(page.serial)
        if asked is None:
            asked = run.asked[page.serial] = bytearray(len(page))
        place = folder.place
        assert place is not None
        identity = place.store.identity
        while (at := asked.find(0, start)) >= 0:
            if run.spent >= allowed or len(self._queue) >= _BATCH:
                return False
            asked[at] = 1
            start = at + 1
            size = page.sizes[at]
            if page.kinds[at] != FILE or not 0 < size <= self._whole:
                continue
            key = place.prefix + page.key(at)
            version = page.etag(at)
            version = version if version is not None else f"{size}-{page.mtimes[at]}"
            name = self._cache.name(identity, key, version, size)
            if not self._cache.holds(name):
                run.spent += size
                self._queue.append((name, Read(place.store, key, size, version)))
        return True

    def _position(self, pages: list[ListingPage], known: NamedNode) -> tuple[int, int]:
        serial, index = known.id >> SHIFT, known.id & (MOST - 1)
        for number, page in enumerate(pages):
            if page.serial == serial:
                return number, index
        for number, page in enumerate(pages):
            index = page.find(known.name)
            if index >= 0:
                return number, index
        return 0, -1

    def _pump(self) -> None:
        """Send queued reads while few are under way."""
        batch: list[Read] = []
        with self._lock:
            while self._queue and len(self._under_way) < _AT_ONCE and self._bytes < self._most_in_flight:
                name, read = self._queue.popleft()
                if name in self._under_way or self._closed or self._cache.holds(name):
                    continue
                size = read.size or 0
                self._under_way[name] = _Neighbour(size)
                self._bytes += size
                batch.append(read._replace(tag=name))
        if batch:
            self._fetcher.submit(batch, self._came, demand=False)

    def _came(self, read: Read, result: Blob | HeadraceError) -> None:
        """On a fetch thread."""
        with self._lock:
            neighbour = self._under_way.pop(read.tag)
            self._bytes -= neighbour.size
            more = bool(self._queue) and len(self._under_way) <= _AT_ONCE // 2
        neighbour.deliver(result)
        if more:
            self._pump()
