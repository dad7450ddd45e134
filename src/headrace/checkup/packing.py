"""Does packing into shards pay, for these samples from this store? Of shards: which order do they need?

Single objects are read as they are now; large pieces, as shards would give them, of the largest objects seen here, or
of a throwaway object. The store alone is compared: what decoding takes comes on top of both.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.base.units import format_bytes, format_seconds
from headrace.catalog import Abilities, Part, Rows, SampleSpec
from headrace.checkup.finding import Finding
from headrace.fetch import Fetcher, Read
from headrace.formats import FORMATS, PACKED, Format, StoreBytes, compressed_suffixes, reader_of
from headrace.loader import BLOCKS_AT_ONCE, MOST_JOINED, Rate, decide_block, measure, rate_of
from headrace.store.probe import PREFIX
from headrace.store.protocol import Store

PAYS = 2.0
"""So many times as fast shards must be: packing costs a pass over everything, and room."""
HANDED_ON = 30_000
"""Samples a second that one loader hands on without decoding (design/005); no store matters beyond."""
BYTES = 128 << 20
"""Most bytes that each of the two measurements asks for."""
_LARGE = 1 << 20  # bytes from which on a read's time is its bytes', not the request's
_MOST_READ = 8 << 20  # bytes of a large object that are read
_PIECES = 64  # pieces to read over and over
_STEP = 1 << 20  # bytes from one piece to the next: they overlap
_THROWAWAY = 32 << 20  # bytes of an object written for the measurement, and deleted
_SHARDS = 4  # shards looked at
_MEMBERS = 2000  # members looked at of each
_MEMBER_OVERHEAD = 1024
"""What a tar adds to a file: a header, and half a block on average."""
_TABLES = (".parquet", ".arrow", ".feather", ".ipc")
_STEM = re.compile(r"((?:.*/)?[^/][^./]*)[^/]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where to look: the PATH as written, for the advice, and a folder where a throwaway object may be put, if any."""

    path: str
    store: Store
    scratch: str | None


def check_packing(settings: Settings, reads: Sequence[Read], spot: Spot, *, seconds: float) -> Iterator[Finding]:
    """One finding, ``packing``: whether it pays, with the command that does it. About `seconds`, at most 256 MB.

    `reads`: whole objects below the path, as many as are to be judged by.
    """
    keys = [read.key.lower() for read in reads]
    fmt = next((fmt for fmt in FORMATS if any(key.endswith(fmt.suffixes) for key in keys)), None)
    if not reads or any(key.endswith(_TABLES) for key in keys):
        return
    if fmt is None and any(key.endswith(PACKED) for key in keys):
        text = "packing: tars compressed like that are not read"
        yield Finding("packing", "note", text, "decompress them to .tar, then pack anew if their samples are small")
    elif fmt is None and any(key.endswith(compressed_suffixes(one)) for key in keys for one in FORMATS):
        text = "packing: compressed shards cannot be read from their middle; they are shuffled by whole shards"
        yield Finding("packing", "note", text, f"headrace pack {spot.path} DST --shuffle 1")
    elif fmt is None:
        yield _objects(settings, reads, spot, seconds / 2)
    else:
        shards = [read for read in reads if read.key.lower().endswith(fmt.suffixes)]
        yield _shards(settings, fmt, shards, spot, seconds)


def _objects(settings: Settings, reads: Sequence[Read], spot: Spot, seconds: float) -> Finding:
    parts = len(reads) / len({_stem(read.key) for read in reads})
    sizes = [read.size or 0 for read in reads]
    sample = parts * sum(sizes) / len(sizes)
    whole = [read._replace(stop=min(read.size or 0, _MOST_READ)) for read in reads]
    share = sum(read.length() for read in whole) / max(sum(sizes), 1)
    rate = rate_of(settings, whole, settings.fetch.connections, seconds=seconds, most=BYTES)
    now = min(rate.requests_per_s / parts * share, HANDED_ON)
    values = {"sample_bytes": round(sample), "objects_per_sample": parts, "samples_per_second": now}
    text = f"packing: samples of {format_bytes(sample)} come at {now:,.0f}/s from single objects"
    if sample >= MOST_JOINED:
        return Finding("packing", "ok", f"{text}: packing does not pay, nothing larger is read of shards", None, values)
    pieces = _pieces(settings, reads, spot, seconds)
    if pieces is None:
        advice = "add --write: one throwaway object of 32 MB shows what shards would give"
        if now >= HANDED_ON / PAYS:
            return Finding("packing", "ok", f"{text}: packing does not pay, no loop takes many more", None, values)
        return Finding("packing", "note", f"{text}; no object here is large enough to compare", advice, values)
    packed = min(pieces.bytes_per_s / (sample + parts * _MEMBER_OVERHEAD), HANDED_ON)
    gain = packed / max(now, 1e-9)
    values |= {"packed_samples_per_second": packed, "bytes_per_second": pieces.bytes_per_s, "gain": gain}
    text += f", from shards at up to {packed:,.0f}/s ({format_bytes(pieces.bytes_per_s)}/s)"
    if gain < PAYS:
        return Finding("packing", "ok", f"{text}: packing does not pay", None, values)
    million = 1e6 / now
    values |= {"pass_seconds_per_million": million}
    text += (
        f": packing pays, {gain:,.1f} times as fast; it costs one pass, about {format_seconds(million)} a million "
        "samples, and is repaid within two epochs that the cache does not hold"
    )
    return Finding("packing", "note", text, f"headrace pack {spot.path} DST --shuffle 1", values)


def _pieces(settings: Settings, reads: Sequence[Read], spot: Spot, seconds: float) -> Rate | None:
    """The rate of large pieces; None where there is nothing large, and nothing may be written."""
    large = [read for read in sorted(reads, key=lambda read: -(read.size or 0)) if (read.size or 0) >= _LARGE]
    if large and ((large[0].size or 0) >= MOST_JOINED or spot.scratch is None):
        return rate_of(settings, _cut(large), BLOCKS_AT_ONCE, seconds=seconds, most=BYTES)
    if spot.scratch is None:
        return None
    key = f"{spot.scratch}{PREFIX}{secrets.token_hex(8)}"
    info = spot.store.put(key, secrets.token_bytes(_THROWAWAY))
    try:
        read = Read(spot.store, key, _THROWAWAY, info.version)
        return rate_of(settings, _cut([read]), BLOCKS_AT_ONCE, seconds=seconds, most=BYTES)
    finally:
        with contextlib.suppress(HeadraceError):
            spot.store.delete([key])


def _cut(reads: Sequence[Read]) -> list[Read]:
    """Pieces of up to 4 MiB of these objects, from all of them in turn; they overlap, so that a few are enough."""
    each = [
        [
            read._replace(start=at, stop=at + min(MOST_JOINED, size))
            for at in range(0, max(size - MOST_JOINED, 0) + 1, _STEP)
        ]
        for read in reads[:_PIECES]
        if (size := read.size or 0)
    ]
    turns = itertools.zip_longest(*(pieces[:_PIECES] for pieces in each))
    return [piece for turn in turns for piece in turn if piece is not None][:_PIECES]


def _shards(settings: Settings, fmt: Format, shards: Sequence[Read], spot: Spot, seconds: float) -> Finding:
    few = _Few(settings, fmt, shards, seconds / 2)
    if not len(few):
        return Finding("packing", "note", f"packing: no sample found in {fmt.name} shards", "headrace stat PATH")
    cost = measure(few, settings, seconds=seconds / 4, most=BYTES)
    singly, blocks = (min(rate, HANDED_ON) for rate in (cost.singly_per_s, cost.by_block_per_s))
    choice = decide_block(cost)
    held = median(shard.size or 0 for shard in shards)
    values = {
        "format": fmt.name,
        "sample_bytes": round(cost.bytes),
        "shard_bytes": round(held),
        "everywhere_samples_per_second": singly,
        "blocked_samples_per_second": blocks,
        "block": choice.block,
    }
    text = (
        f"packing: {fmt.name} shards, samples of {format_bytes(cost.bytes)} at up to {singly:,.0f}/s from everywhere, "
        f"{blocks:,.0f}/s by blocks"
    )
    if max(held, cost.bytes) < _LARGE and blocks < HANDED_ON / PAYS:
        advice = f"headrace pack {spot.path} DST --shard-size 100MB"
        text += f"; shards of {format_bytes(held)} are too small to repay a request"
        return Finding("packing", "note", text, advice, values)
    if choice.block is None:
        return Finding("packing", "ok", f"{text}: shuffle(seed) loses nothing, as they are", None, values)
    advice = f'shuffle(seed, block="{choice.block // 1000}kB"), or block="auto"'
    return Finding("packing", "ok", f"{text}: packed well; the blocked order is enough", advice, values)


class _Few:
    """The first samples of a few shards, found without indexing these: a `catalog.sample_index.SampleIndex`."""

    pinned = True
    classes: list[str] | None = None

    def __init__(self, settings: Settings, fmt: Format, shards: Sequence[Read], seconds: float) -> None:
        self.store = shards[0].store
        self.fingerprint = shards[0].key
        self._specs: list[SampleSpec] = []
        self._first: list[int] = []
        step = max(1, len(shards) // _SHARDS)
        chosen = shards[::step][:_SHARDS]
        fetcher = Fetcher(settings, None, Metrics())
        try:
            for shard in chosen:
                self._first.append(len(self._specs))
                self._specs += _samples(fetcher, fmt, shard, time.monotonic() + seconds / len(chosen))
        finally:
            fetcher.close()

    @property
    def abilities(self) -> Abilities:
        return Abilities(blocks=self.blocks)

    def __len__(self) -> int:
        return len(self._specs)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        return [self._specs[row] for row in rows.tolist()]

    def sizes(self, rows: Rows) -> Rows:
        return np.array([sum((p.stop or 0) - p.start for p in parts) for _, parts, _ in self.specs(rows)], np.int64)

    def blocks(self, size: int) -> Rows:
        starts = [0]
        for row, (_, parts, _) in enumerate(self._specs):
            begun = self._specs[starts[-1]][1][0]
            if parts[0].key != begun.key or max(part.stop or 0 for part in parts) - begun.start > size:
                starts.append(row)
        return np.unique(np.array(starts, np.int64))


def _samples(fetcher: Fetcher, fmt: Format, shard: Read, until: float) -> list[SampleSpec]:
    """Samples at the shard's beginning, all parts of each; the last one found may lack some, and is left out."""
    data = StoreBytes(reader_of(fetcher), shard.store, shard.key, shard.size or 0, shard.version, lambda _: None)
    members = itertools.takewhile(lambda _: time.monotonic() < until, fmt.scan(data))
    found: dict[str, list[Part]] = {}
    for member in itertools.islice(members, _MEMBERS):
        part = Part(member.name, shard.key, shard.size or 0, shard.version, member.start, member.stop)
        found.setdefault(member.key, []).append(part)
    if len(found) > 1:
        found.popitem()
    return [(key, tuple(parts), {}) for key, parts in found.items()]


def _stem(key: str) -> str:
    match = _STEM.fullmatch(key)
    return key if match is None else match[1]
