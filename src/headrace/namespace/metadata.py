"""What one store has lately told of its objects: trusted for a while, bounded, corrected by our own writes."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headrace.namespace import paths
from headrace.store.protocol import Folder, ObjectInfo

MOST = 200_000
"""Objects remembered for one store, in listings and singly (about 300 bytes each)."""


@dataclass(frozen=True, slots=True)
class _Listing:
    folder: Folder
    objects: dict[str, ObjectInfo]
    until: float


class Metadata:
    """Listings and infos of one store. Any thread.

    Only presence is remembered, never absence: an object made elsewhere is seen at once when asked for by name.
    """

    def __init__(self, ttl: float, *, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl = ttl
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._infos: OrderedDict[str, tuple[ObjectInfo, float]] = OrderedDict()
        self._listings: OrderedDict[str, _Listing] = OrderedDict()
        self._listed = 0

    def info(self, key: str) -> tuple[ObjectInfo, bool] | None:
        """What is known of an object, and whether that is recent enough to be trusted without asking."""
        now = self._clock()
        with self._lock:
            single = self._infos.get(key)
            if single is not None and single[1] > now:
                return single[0], True
            listing = self._listings.get(key[: key.rfind("/") + 1])
            listed = listing.objects.get(key) if listing is not None and listing.until > now else None
            if listed is not None:
                return listed, True
            return None if single is None else (single[0], False)

    def keep(self, info: ObjectInfo) -> None:
        """Remember what the store has just told of one object."""
        if self._ttl <= 0:
            return
        with self._lock:
            self._infos[info.key] = (info, self._clock() + self._ttl)
            self._infos.move_to_end(info.key)
            self._trim()

    def folder(self, prefix: str) -> Folder | None:
        """A recent listing of one folder."""
        with self._lock:
            listing = self._listings.get(prefix)
            return listing.folder if listing is not None and listing.until > self._clock() else None

    def keep_folder(self, prefix: str, folder: Folder) -> None:
        """Remember a listing, unless it is larger than all there is room for."""
        size = len(folder.objects) + len(folder.folders)
        if self._ttl <= 0 or size > self._most:
            return
        objects = {info.key: info for info in folder.objects}
        with self._lock:
            self._drop_folder(prefix)
            self._listings[prefix] = _Listing(folder, objects, self._clock() + self._ttl)
            self._listed += size
            self._trim()

    def forget(self, key: str) -> None:
        """`key` was written or deleted: forget it, and every listing that shows it or a folder it is in."""
        with self._lock:
            self._infos.pop(key, None)
            end = len(key)
            while end >= 0:
                end = key.rfind("/", 0, end)
                self._drop_folder(key[: end + 1])
            # A folder may have come or gone with its last object, under its own name too.
            self._drop_folder(paths.as_prefix(key))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._infos.clear()
            self._listings.clear()
            self._listed = 0

    def _drop_folder(self, prefix: str) -> None:
        listing = self._listings.pop(prefix, None)
        if listing is not None:
            self._listed -= len(listing.folder.objects) + len(listing.folder.folders)

    def _trim(self) -> None:
        while len(self._infos) > self._most:
            self._infos.popitem(last=False)
        while self._listed > self._most:
            self._drop_folder(next(iter(self._listings)))
