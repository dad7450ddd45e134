"""What is to be indexed: shards, and what the work needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.catalog import IndexFolder, Shelf
from headrace.formats.shard_format import Format
from headrace.store.protocol import Store


class Shard(NamedTuple):
    """One shard. `key` is the store's; `version` as listed."""

    key: str
    size: int
    version: str | None


class Packed(NamedTuple):
    """How a shard is compressed, and how many bytes it decompresses to."""

    codec: str
    size: int


class Job(NamedTuple):
    """What indexing needs to know.

    `beside`: for an `Accompanied` format, the object that describes the shards of a folder, by the folder's key; for a
    `Paired` one, the shard's own, by the shard's.
    `kept`: where an index made elsewhere may be kept, which knows shards by their names below `root`. `elsewhere`: who
    reads the shards that this node does not know, and puts their rows on the shelf by `put_scanned`; None: this node.
    """

    store: Store
    format: Format
    shards: Sequence[Shard]
    settings: Settings
    progress: Progress
    beside: Mapping[str, Shard] | None = None
    root: str = ""
    kept: Sequence[IndexFolder] = ()
    elsewhere: Callable[[Shelf, Job, Sequence[Shard]], None] | None = None
