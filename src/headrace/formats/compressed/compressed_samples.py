"""The sample index over shards of which some are compressed: their samples are ranges of what they decompress to.

A compressed shard cannot be sought. So its samples are read from a `Decompressed`, a store beside the real one in which
the shard has its decompressed size: whoever asks it for a range has the whole shard fetched and decompressed, once for
all that ask meanwhile and as long as it is kept. Everything above sees ranges of objects, as of any shard, and so does
the node's cache: what it keeps is decompressed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from headrace.base.errors import ChangedError, InputError
from headrace.base.memory import take
from headrace.base.settings import Settings
from headrace.catalog import Abilities, Rows
from headrace.formats.compressed.decompressed import Kept, unpacked
from headrace.formats.index.index_job import Packed, Shard
from headrace.formats.index.shard_index import ShardSet
from headrace.formats.shard_format import Format
from headrace.formats.shard_samples import ShardSamples
from headrace.namespace.home import url_of
from headrace.store.protocol import Blob, Capabilities, ObjectInfo, Store
from headrace.store.wrappers import ForwardingStore

KEEP = 512 << 20
"""Decompressed bytes that are kept, one shard always; half of it is mixed, while the other half comes or goes."""
_MOST_MIXED = 16  # shards mixed, however small they are


class _Entry(NamedTuple):
    stored: Shard
    packed: Packed
    info: ObjectInfo


class Decompressed(ForwardingStore):
    """A store's compressed shards as if they were not; other objects as they are. Any thread; survives fork.

    `packed`: the compressed ones, by key. Their versions here end in ``+gzip`` and the like: no ETag of these bytes.
    """

    def __init__(
        self, inner: Store, packed: Mapping[str, tuple[Shard, Packed]], settings: Settings, keep: int = KEEP
    ) -> None:
        super().__init__(inner)
        self._entries = {
            key: _Entry(stored, one, ObjectInfo(key, one.size, version_of(stored, one)))
            for key, (stored, one) in packed.items()
        }
        self._settings, self._keep = settings, keep
        self._kept = (os.getpid(), Kept(keep))

    @property
    def identity(self) -> str:
        return f"{self.inner.identity}#decompressed"

    @property
    def local_root(self) -> str | None:
        return None

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        """See `Store.get`. Raises also CorruptError."""
        entry = self._entries.get(key)
        if entry is None:
            return self.inner.get(key, start, stop, if_match=if_match)
        path = url_of(self.inner, key)
        if if_match is not None and if_match != entry.info.version:
            raise ChangedError(f"is {entry.info.version}, not {if_match}", path=path)
        if start > entry.packed.size:
            raise InputError(f"byte {start:,} of {entry.packed.size:,}", path=path)
        whole = self._unpacked().get(
            key, entry.packed.size, lambda: unpacked(self._settings, self.inner, entry.stored, entry.packed)
        )
        found = whole[start:stop]
        data = take(len(found))  # a copy: a view would hold all of the shard as long as somebody holds the sample
        data[:] = found
        return Blob(data, entry.info)

    def stored(self, keys: Collection[str]) -> dict[str, tuple[Shard, Packed]]:
        """Of the compressed ones among these, what is stored: as the constructor takes it."""
        return {key: self._entries[key][:2] for key in keys if key in self._entries}

    def head(self, key: str) -> ObjectInfo:
        entry = self._entries.get(key)
        return entry.info if entry is not None else self.inner.head(key)

    def _unpacked(self) -> Kept:
        pid, kept = self._kept
        if pid != os.getpid():  # the parent's lock may be held, by a thread that is not here
            kept = Kept(self._keep)
            self._kept = (os.getpid(), kept)
        return kept


class CompressedSamples(ShardSamples):
    """A `headrace.catalog.sample_index.SampleIndex`: `ShardSamples` of which some shards are compressed.

    `keep`: decompressed bytes that may be held while reading, one shard always.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        fmt: Format,
        shards: list[Shard],
        index: ShardSet,
        settings: Settings,
        keep: int = KEEP,
    ) -> None:
        packed = index.packed
        shown = [
            shard._replace(size=packed[number].size, version=version_of(shard, packed[number]))
            if number in packed
            else shard
            for number, shard in enumerate(shards)
        ]
        entries = {shards[number].key: (shards[number], one) for number, one in packed.items()}
        super().__init__(Decompressed(store, entries, settings, keep), prefix, fmt, shown, index)
        self.together = max(1, min(keep // 2 // max(1, *(one.size for one in packed.values())), _MOST_MIXED))
        """How many shards may be mixed, so that all of them are kept at once."""
        self._starts = index.first[:-1][np.diff(index.first) > 0]

    @property
    def abilities(self) -> Abilities:
        """See `SampleIndex.abilities`."""
        return dataclasses.replace(super().abilities, together=self.together)

    def blocks(self, size: int) -> Rows:  # noqa: ARG002
        """The samples at which shards begin, the first being 0: blocks are whole shards, whatever is asked for."""
        return self._starts


def version_of(shard: Shard, packed: Packed) -> str | None:
    """What tells these decompressed bytes from others; None where the store has no versions."""
    return None if shard.version is None else f"{shard.version}+{packed.codec}"
