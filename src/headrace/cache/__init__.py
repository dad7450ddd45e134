"""The node's cache of object versions. See README.md beside this file."""

from __future__ import annotations

from headrace.cache.batch_io import MOST as MOST_TOGETHER
from headrace.cache.blocks import BlockEntry
from headrace.cache.cache import Cache, Evicted
from headrace.cache.claims import BlockClaim, Busy, Claim
from headrace.cache.entries import Digests, Entries
from headrace.cache.entry import EntryLabel
from headrace.cache.names import DIGEST
from headrace.cache.publish_many import Fill
from headrace.cache.status import CacheStatus
from headrace.cache.verify import BadEntry, VerifyReport

__all__ = [
    "DIGEST",
    "MOST_TOGETHER",
    "BadEntry",
    "BlockClaim",
    "BlockEntry",
    "Busy",
    "Cache",
    "CacheStatus",
    "Claim",
    "Digests",
    "Entries",
    "EntryLabel",
    "Evicted",
    "Fill",
    "VerifyReport",
]
