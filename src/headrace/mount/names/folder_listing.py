"""A folder's listing: the pages that a LIST has brought so far, read while it grows. `fetch_listing` brings them."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from headrace.base.errors import DeadlineError, HeadraceError
from headrace.mount.kernel.kernel_requests import Request
from headrace.mount.names.listing_pages import FILE, FOLDER, HIDDEN, LINK, ListingPage
from headrace.mount.write_back.object_metadata import LINK_SUFFIX

_SLICE_S = 0.05  # seconds after which it is seen that the caller was killed
_LINK_SUFFIX = LINK_SUFFIX.encode()


class FolderListing:
    """One LIST of the folder at `path`, under way or complete. Any thread.

    `started`, `until`: monotonic seconds, when it was asked for and how long it is trusted. `error`: why it ended
    early. `before`: the one it is to replace, until it ends. `deadline`: seconds that it may let a reader wait.
    """

    def __init__(self, path: str, ttl: float, deadline: float, before: FolderListing | None = None) -> None:
        self._path = path
        self.before = before
        self.started = time.monotonic()
        self.until = self.started + ttl
        self.deadline = deadline
        self.pages: list[ListingPage] = []
        self.complete = False
        self.partial = False
        """Nodes of our own that it does not list were forgotten: a name that it does not list may be there all the
        same.
        """
        self.error: HeadraceError | None = None
        self.used = self.started
        self._stands: FolderListing | None = None
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
    def stands(self) -> FolderListing | None:
        """What the folder's names are by, once this has ended: this, or after a failure the one before."""
        return self if self.complete else self._stands

    @property
    def doubted(self) -> bool:
        """Not trusted any more, however little time has passed."""
        return not self.until

    @property
    def queued(self) -> bool:
        """Not asked for yet: the one before is still under way."""
        return self.before is not None and not self.before.ended

    def doubt(self) -> None:
        """What it lists may be different by now. A queued listing is not asked for yet, so it stays trusted."""
        if not self.queued:
            self.until = 0.0

    def lacks(self) -> None:
        """A name that came after it was asked for has no node any more, so nothing else knows the name."""
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

    def find(self, name: bytes) -> tuple[ListingPage, int] | None:
        """Where a name is in what has come so far. Under the table's lock."""
        for page in self._candidates(name):
            index = page.find(name)
            if index >= 0:
                return page, index
        return None

    def position(self, page: ListingPage) -> int:
        """The index of one of its pages."""
        return self.pages.index(page)

    def wait(self, count: int, request: Request) -> bool:
        """Wait until there are more than `count` pages, or all; whether there are more.

        Raises:
            HeadraceError: the listing failed. InterruptedError: the caller has to stop waiting.
        """
        if len(self.pages) <= count and not self.ended:
            request.must_wait()
            until = time.monotonic() + self.deadline
            with self._changed:
                while len(self.pages) <= count and not self.ended:
                    request.check()
                    if time.monotonic() > until:
                        raise DeadlineError(f"not listed within {self.deadline:g} s", path=self._path)
                    self._changed.wait(_SLICE_S)
        if len(self.pages) > count:
            return True
        if self.error is not None:
            raise self.error
        return False

    # for who fetches it

    def append(self, page: ListingPage) -> None:
        """One more page has come. Under the table's lock; `grown` follows, without it."""
        if self._firsts and page.first < self.pages[-1].last:
            self._ordered = False
        self._hide_shadowed(page)
        self.pages.append(page)
        self._firsts.append(page.first)

    def grown(self) -> None:
        """Let those go on who wait for a page."""
        with self._changed:
            self._changed.notify_all()

    def replaced(self) -> FolderListing | None:
        """It has ended: the one before it, which is not needed any more, or stands again. Under the table's lock."""
        before, self.before = self.before, None
        self._stands = None if self.complete else before
        return before

    def over(self) -> None:
        """It has ended, and its folder knows: call those who `follow`."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
            following, self._following = self._following, []
        for follow in following:
            follow()

    def _hide_shadowed(self, page: ListingPage) -> None:
        """A folder hides a file of its name (within one page, `ListingPage` does so); both hide a link of that name."""
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

    def _candidates(self, name: bytes) -> Iterator[ListingPage]:
        if not self._ordered or len(self.pages) < 3:
            yield from self.pages
            return
        seen = -1
        for key in (name, name + b"/", name + _LINK_SUFFIX):
            number = bisect_right(self._firsts, key) - 1
            if number >= 0 and number != seen:
                yield self.pages[number]
                seen = number
        if seen >= 0 and bisect_left(self._firsts, name) != seen:
            yield self.pages[max(bisect_left(self._firsts, name) - 1, 0)]
