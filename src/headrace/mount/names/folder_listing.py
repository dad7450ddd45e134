"""A folder's listing: fetched page by page on a thread of its own, read while it grows, kept packed."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from headrace.base.errors import DeadlineError, HeadraceError
from headrace.mount.kernel.kernel_requests import Request
from headrace.mount.names.listing_pages import FILE, FOLDER, HIDDEN, LINK, MOST, Page
from headrace.mount.names.node_table import Folder, Place, Table
from headrace.store import protocol

_SLICE_S = 0.05


class Listing:
    """One LIST of a folder, under way or complete. Any thread.

    `started`, `until`: monotonic seconds, when it was asked for and how long it is trusted. `error`: why it ended
    early. `before`: the one it is to replace, until it ends.
    """

    def __init__(self, folder: Folder, ttl: float, deadline: float, before: Listing | None = None) -> None:
        self.folder = folder
        self.before = before
        self.started = time.monotonic()
        self.until = self.started + ttl
        self.deadline = deadline
        self.pages: list[Page] = []
        self.complete = False
        self.partial = False
        """Names of our own that it does not tell of were forgotten: what it does not tell may be there all the same."""
        self.error: HeadraceError | None = None
        self.used = self.started
        self._instead: Listing | None = None
        self._over = False
        self._following: list[Callable[[], object]] = []
        self._firsts: list[bytes] = []
        self._ordered = True
        self._links = False
        self._changed = threading.Condition()

    @property
    def fresh(self) -> bool:
        """Still trusted."""
        return self.until > time.monotonic()

    @property
    def ended(self) -> bool:
        """No more pages come."""
        return self.complete or self.error is not None

    @property
    def stands(self) -> Listing | None:
        """What the folder's names are by, once this has ended: this, or after a failure the one before."""
        return self if self.complete else self._instead

    @property
    def doubted(self) -> bool:
        """Not trusted any more, however little time has passed."""
        return not self.until

    @property
    def queued(self) -> bool:
        """Not asked for yet: the one before is still under way."""
        return self.before is not None and not self.before.ended

    def doubt(self) -> None:
        """What it tells, and is told still, may be different by now. What is queued will be told what is then."""
        if not self.queued:
            self.until = 0.0

    def lacks(self) -> None:
        """A name that has come since it was asked for is forgotten by everybody else."""
        if self.queued and self.before is not None:
            self.before.partial = True
        else:
            self.partial = True
            self.doubt()

    def follow(self, run: Callable[[], object]) -> None:
        """Call `run`, which must not wait, when this has ended: at once, or on the thread that ends it."""
        with self._changed:
            if not self._over:
                self._following.append(run)
                return
        run()

    def count(self) -> int:
        """Names so far."""
        return sum(map(len, self.pages))

    def find(self, name: bytes) -> tuple[Page, int] | None:
        """Where a name is in what has come so far. Under the table's lock."""
        for page in self._candidates(name):
            index = page.find(name)
            if index >= 0:
                return page, index
        return None

    def position(self, page: Page) -> int:
        """The index of one of its pages."""
        return self.pages.index(page)

    def wait(self, count: int, request: Request) -> bool:
        """Wait until there are more than `count` pages, or all; whether there are more.

        Raises:
            HeadraceError: the listing failed. InterruptedError: who asked was told to stop.
        """
        if len(self.pages) <= count and not self.ended:
            request.must_wait()
            until = time.monotonic() + self.deadline
            with self._changed:
                while len(self.pages) <= count and not self.ended:
                    if request.interrupted:
                        raise InterruptedError
                    if time.monotonic() > until:
                        raise DeadlineError(f"not listed within {self.deadline:g} s", path=self.folder.path)
                    self._changed.wait(_SLICE_S)
        if len(self.pages) > count:
            return True
        if self.error is not None:
            raise self.error
        return False

    def run(self, table: Table, place: Place | None, told: protocol.Folder | None = None) -> None:
        """Fetch all pages, on a thread of its own; or take all from what is `told`, asked for since `started`."""
        before = self.before
        try:
            for part in _parts(self.folder, place) if told is None else _pieces(told):
                page = Page(self.folder, place.prefix if place else "", part.folders, part.objects)
                with table.lock:
                    self._append(table, page, before)
                with self._changed:
                    self._changed.notify_all()
            self.complete = True
        except HeadraceError as error:
            self.error = error
        finally:
            if not self.ended:
                self.error = HeadraceError("the listing broke off", path=self.folder.path)
            self._end(table, before)
            with self._changed:
                self._over = True
                self._changed.notify_all()
                following, self._following = self._following, []
            for follow in following:
                follow()

    def _append(self, table: Table, page: Page, before: Listing | None) -> None:
        number = len(self.pages)
        old = before.pages[number] if before is not None and number < len(before.pages) else None
        if old is not None and old.same(page):
            old.live = True
            page = old
        else:
            table.enrol(page)
            if before is not None:
                _carry(table, page, before)
        if self._firsts and page.first < self.pages[-1].last:
            self._ordered = False
        self._hide_shadowed(page)
        self.pages.append(page)
        self._firsts.append(page.first)

    def _end(self, table: Table, before: Listing | None) -> None:
        with table.lock:
            self.before = None
            kept, left = (self, before) if self.complete else (before, self)
            self._instead = None if self.complete else before
            if self.folder.listing is self:
                self.folder.listing = kept  # after a failure the old one, so that node ids outlive an outage
            if left is not None:
                release(table, left, kept)
            if not self.complete:
                return
            if before is not None and [id(page) for page in before.pages] != [id(page) for page in self.pages]:
                self.folder.touched()
            table.tidy(self.folder, self.started)

    def _hide_shadowed(self, page: Page) -> None:
        """A folder hides a file of its name, which in one page `Page` itself sees to; both hide a link of that name."""
        if LINK in page.kinds:
            for index, kind in enumerate(page.kinds):
                if kind == LINK and (page.find(page.name(index)) != index or self.find(page.name(index)) is not None):
                    page.kinds[index] = HIDDEN
            self._links = True
        if not self.pages or (FOLDER not in page.kinds and not self._links):
            return
        for index, kind in enumerate(page.kinds):
            found = self.find(page.name(index)) if kind == FOLDER or (kind == FILE and self._links) else None
            if found is not None and found[0].kinds[found[1]] in ((FILE, LINK) if kind == FOLDER else (LINK,)):
                found[0].kinds[found[1]] = HIDDEN

    def _candidates(self, name: bytes) -> Iterator[Page]:
        if not self._ordered or len(self.pages) < 3:
            yield from self.pages
            return
        seen = -1
        for key in (name, name + b"/", name + b".rclonelink"):
            number = bisect_right(self._firsts, key) - 1
            if number >= 0 and number != seen:
                yield self.pages[number]
                seen = number
        if seen >= 0 and bisect_left(self._firsts, name) != seen:
            yield self.pages[max(bisect_left(self._firsts, name) - 1, 0)]


def release(table: Table, left: Listing, kept: Listing | None = None) -> None:
    """A listing is no longer used; pages that `kept` shares stay. Under the table's lock."""
    shared = {id(page) for page in kept.pages} if kept is not None else set[int]()
    for page in left.pages:
        if id(page) not in shared:
            page.live = False
            table.retire(page)


def _carry(table: Table, page: Page, before: Listing) -> None:
    """Names that the kernel knows keep their ids while they stand for the same version. Under the table's lock."""
    for old in before.pages:
        if (not old.known and old.ids is None) or old.last < page.first or old.first > page.last:
            continue
        for at in table.known(old):
            index = page.find(old.name(at))
            if index >= 0 and page.same_entry(index, old, at):
                page.carry(index, old.node(at))


def _parts(folder: Folder, place: Place | None) -> Iterator[protocol.Folder]:
    """What the store lists, in pieces that fit a page, less what attachments hide; they come first themselves."""
    attached = folder.attached or frozenset()
    prefix = place.prefix if place else ""
    if attached:
        yield protocol.Folder(tuple(f"{prefix}{name}/" for name in sorted(attached)), ())
    if place is None:
        return
    for part in place.store.list_pages(prefix):
        folders, objects = part.folders, part.objects
        if attached:
            cut = len(prefix)
            folders = tuple(each for each in folders if each[cut:-1] not in attached)
            objects = tuple(each for each in objects if each.key[cut:] not in attached)
        yield from _pieces(protocol.Folder(folders, objects))


def _pieces(part: protocol.Folder) -> Iterator[protocol.Folder]:
    """The same in pieces that fit a page."""
    folders, objects = part.folders, part.objects
    for start in range(0, max(len(folders), 1), MOST // 2):
        some = objects[: MOST // 2] if start == 0 else ()
        yield protocol.Folder(folders[start : start + MOST // 2], some)
    for start in range(MOST // 2, len(objects), MOST // 2):
        yield protocol.Folder((), objects[start : start + MOST // 2])
