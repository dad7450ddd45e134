"""A listing begun before it is needed: a program's own imports take as long as a store takes for some thousand names.

Nothing heavy is imported here before the first request is on its way. What was listed is kept on the node's shelf, as
any listing is, and found there by whoever opens the place next.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, Full, Queue

from headrace.base.errors import HeadraceError, TryAgainError
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.namespace.home import as_prefix
from headrace.store.protocol import ObjectInfo

_MOST = 16
"""Pages held."""
_LOOK_S = 0.25
_GRACE_S = 2.0


@contextmanager
def listed_ahead(target: str, namespace: Namespace, settings: Settings | None = None) -> Generator[None]:
    """Have the place that `target` names listed, by another thread, while the block runs; its end waits for that.

    Raises nothing of its own: what is wrong with the place is said by who opens it.
    """
    settings = settings or Settings.load()
    pages = _begun(target, namespace) if settings.cache.ttl > 0 else None
    if pages is None:
        yield
        return
    work = (target, namespace, settings, pages)
    thread = threading.Thread(target=_keep, args=work, name="headrace-ahead", daemon=True)
    thread.start()
    try:
        yield
        while thread.is_alive():
            thread.join(_LOOK_S)
    finally:
        pages.close()
        thread.join(_GRACE_S)


def _begun(target: str, namespace: Namespace) -> Pages | None:
    """The pages of a place whose store is listed in one stream at first; None for others, and where there is no such
    place. See `headrace.dataset.listing`.
    """
    try:
        at = namespace.resolve(target)
    except HeadraceError:
        return None
    if at.store.capabilities.start_after is not None or not at.store.url.startswith("s3:"):
        return None
    return Pages(at.store.list(as_prefix(at.key)))


def _keep(target: str, namespace: Namespace, settings: Settings, pages: Pages) -> None:
    from headrace.dataset.inventory import find_place, recent_objects

    try:
        recent_objects(find_place(target, namespace), settings, begun=pages)
    except (HeadraceError, OSError):
        pass
    finally:
        pages.close()


class Pages(Iterator[Sequence[ObjectInfo]]):
    """The same pages, asked for by a thread of its own; a few ahead. One consumer; `close` from any thread."""

    def __init__(self, pages: Iterator[Sequence[ObjectInfo]]) -> None:
        self._pages = pages
        self._queue: Queue[Sequence[ObjectInfo] | BaseException | None] = Queue(_MOST)
        self._closed = False
        threading.Thread(target=self._ask, name="headrace-list-ahead", daemon=True).start()

    def __next__(self) -> Sequence[ObjectInfo]:
        while True:
            try:
                page = self._queue.get(timeout=_LOOK_S)
            except Empty:
                if self._closed:  # an end would pass for that of the listing
                    raise TryAgainError("stopped") from None
                continue
            if page is None:
                raise StopIteration
            if isinstance(page, BaseException):
                raise page
            return page

    def close(self) -> None:
        """Ask for no more."""
        self._closed = True

    def _ask(self) -> None:
        try:
            for page in self._pages:
                if not self._put(page):
                    return
        except BaseException as error:  # told to the consumer, whatever it is
            self._put(error)
        else:
            self._put(None)

    def _put(self, page: Sequence[ObjectInfo] | BaseException | None) -> bool:
        while not self._closed:
            try:
                self._queue.put(page, timeout=_LOOK_S)
            except Full:
                continue
            return True
        return False
