"""What `headrace cache status` tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """A cache as it is now. Sizes are bytes; `hits` and what follows count this process's own doings.

    `bytes`: what the entries count for, in whole 4 KiB pages and with a page for each label; `free`: what the disk has
    left; `reason`: why the cache is not read, or not filled; None while all is well.
    """

    dir: str
    enabled: bool
    filling: bool
    reason: str | None
    entries: int
    bytes: int
    limit: int
    free: int
    min_free: int
    pinned: int
    hits: int
    misses: int
    fills: int
    shed: int
    evicted: int
    errors: int
