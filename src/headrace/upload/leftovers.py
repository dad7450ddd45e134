"""What writers that died have left in a store: parts that cost money and no listing shows."""

from __future__ import annotations

import time

from headrace.store.protocol import Store, Unfinished

OLD_S = 24 * 3600.0
"""Seconds after which an upload is taken for one that nobody ends."""


def leftovers(store: Store, prefix: str = "", *, older_than_s: float = OLD_S) -> list[Unfinished]:
    """Uploads below a prefix begun longer ago than that. Younger ones may be under way, here or elsewhere.

    A store does not say who began an upload: give a prefix that is written to by headrace only. Raises as `Store.list`.
    """
    before_us = (time.time() - older_than_s) * 1e6
    return [one for one in store.unfinished(prefix) if one.started_us < before_us]


def clear(store: Store, prefix: str = "", *, older_than_s: float = OLD_S) -> list[Unfinished]:
    """Throw `leftovers` away. Returns them. Raises as `Store.list`."""
    found = leftovers(store, prefix, older_than_s=older_than_s)
    for one in found:
        store.discard(one)
    return found
