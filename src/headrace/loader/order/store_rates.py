"""What the user's own store gives to this node, for these samples: read one by one, and read by blocks.

A second or so of each, past the cache, with as many requests under way as the settings allow. The first half of each
is not counted: the reader finds its level of concurrency meanwhile.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.catalog import SampleIndex, SampleSpec
from headrace.fetch import Fetcher, Read
from headrace.loader.joining_limits import GAP, MOST_JOINED
from headrace.loader.order.order import distinct
from headrace.store.protocol import Blob, Store

SECONDS = 1.2
"""Of each of the two measurements, if a read takes no longer."""
BYTES = 256 << 20
"""Most bytes asked for, of each."""
_ROWS = 2048  # samples, of which each is read by itself
_BLOCKS = 64  # blocks, over the whole set
BLOCKS_AT_ONCE = 16
"""Large pieces under way together."""
_ROWS_OF_BLOCK = 512  # samples of a block that are looked at: neighbours are joined to the same reads by a part of them
_ENOUGH = 16  # answers of the second half from which on they tell a rate by themselves


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """What came: requests and bytes, each a second; `at_once` were under way."""

    requests_per_s: float
    bytes_per_s: float
    at_once: int


@dataclasses.dataclass(frozen=True, slots=True)
class Cost:
    """What a sample costs in either way of reading. Samples a second follow from the rates of the store alone: what
    decoding takes comes on top, in both.

    `singly`, `by_block`: the rates; `requests`: for a sample read by itself, on average; `bytes`: read for a sample of
    a block, on average, what lies between included; `samples`: of the whole set.
    """

    singly: Rate
    by_block: Rate
    requests: float
    bytes: float
    samples: int

    @property
    def singly_per_s(self) -> float:
        return self.singly.requests_per_s / max(self.requests, 1e-9)

    @property
    def by_block_per_s(self) -> float:
        """No less than singly: a block that holds one sample is one."""
        return max(self.by_block.bytes_per_s / max(self.bytes, 1e-9), self.singly_per_s)


def measure(index: SampleIndex, settings: Settings, *, seconds: float = SECONDS, most: int = BYTES) -> Cost:
    """Read samples and blocks from anywhere in the set, for about `seconds` each and at most `most` bytes each.

    `index`: one that knows blocks.

    Raises:
        What reading raises: ChangedError, NotFoundError, DeniedError, TryAgainError.
    """
    rng = random.Random(index.fingerprint)
    rows = rng.sample(range(len(index)), min(_ROWS, len(index)))
    single = [reads_of(index.store, [spec]) for spec in index.specs(np.array(rows, np.int64))]
    singly = rate_of(settings, _flat(single), settings.fetch.connections, seconds=seconds, most=most)

    cut_blocks = index.abilities.blocks
    assert cut_blocks is not None
    starts = np.append(cut_blocks(MOST_JOINED), np.int64(len(index)))
    blocks: list[list[Read]] = []
    held = size = 0
    for number in rng.sample(range(len(starts) - 1), min(_BLOCKS, len(starts) - 1)):
        first, stop = int(starts[number]), int(starts[number + 1])
        some = distinct(np.linspace(first, stop - 1, min(stop - first, _ROWS_OF_BLOCK)).astype(np.int64))
        blocks.append(reads_of(index.store, index.specs(some)))
        held, size = held + stop - first, size + sum(read.length() for read in blocks[-1])
    by_block = rate_of(settings, _flat(blocks), BLOCKS_AT_ONCE, seconds=seconds, most=most)
    requests = sum(map(len, single)) / len(single)
    return Cost(singly, by_block, requests, size / held, len(index))


def _flat(groups: Sequence[Sequence[Read]]) -> list[Read]:
    return [read for group in groups for read in group]


def reads_of(store: Store, specs: Sequence[SampleSpec]) -> list[Read]:
    """What brings these samples if they are made together; as `headrace.loader.pipeline.joined_reads` joins them."""
    found: list[Read] = []
    for key, size, version, start, stop in sorted(
        {
            (part.key, part.size, part.version or "", part.start, part.stop or 0)
            for _, parts, _ in specs
            for part in parts
        }
    ):
        last = found[-1] if found else None
        if last is not None and last.stop is not None and last.key == key:
            until = max(stop, last.stop)
            if start <= last.stop + GAP and until - last.start <= MOST_JOINED:
                found[-1] = last._replace(stop=until)
                continue
        found.append(Read(store, key, size if size >= 0 else None, version or None, start, stop))
    return [read for read in found if read.length()]


def rate_of(
    settings: Settings, reads: Sequence[Read], at_once: int, *, seconds: float = SECONDS, most: int = BYTES
) -> Rate:
    """Read `reads`, over and over, with `at_once` under way. At most `seconds` and what was asked for by then.

    No reads at all (samples without a byte) are as many a second as anyone wants.

    Raises:
        The first error of any of them.
    """
    if not reads:
        return Rate(float("inf"), float("inf"), 0)
    at_once = min(at_once, len(reads))  # equal reads under way are answered by one request
    fetch = dataclasses.replace(settings.fetch, hedge=False)
    cache = dataclasses.replace(settings.cache, size=0)
    fetcher = Fetcher.open(dataclasses.replace(settings, fetch=fetch, cache=cache), None, Metrics())
    lock = threading.Lock()
    ends: list[tuple[float, int]] = []
    errors: list[HeadraceError] = []

    def sink(read: Read, result: Blob | HeadraceError) -> None:
        with lock:
            if isinstance(result, HeadraceError):
                errors.append(result.at(read.path))
            else:
                ends.append((time.monotonic(), len(result.data)))

    started = time.monotonic()
    try:
        fetcher.read_all(_until(reads, started + seconds, most, errors), sink, in_flight=at_once)
    finally:
        fetcher.close()
    if errors:
        raise errors[0]
    return settled_rate(started, sorted(ends), at_once)


def _until(reads: Sequence[Read], until: float, most: int, errors: list[HeadraceError]) -> Iterator[Read]:
    for number, read in enumerate(itertools.cycle(reads)):
        if errors or most < 0 or (number and time.monotonic() > until):
            return
        most -= read.length()
        yield read


def settled_rate(started: float, ends: Sequence[tuple[float, int]], at_once: int) -> Rate:
    """The rates of about the second half; of all, where that is too little to tell.

    `started`: monotonic seconds; `ends`: of each answer, when it was there and its bytes, in that order; one at least.

    Reads that were sent together are answered together. So whole rounds of `at_once` answers are counted, from the end
    of one to the end of another: a part of a round more would make any store look quicker.
    """
    stopped = ends[-1][0]
    late = sum(at > started + (stopped - started) / 2 for at, _ in ends)
    rounds = max(1, late // at_once) * at_once
    if late >= _ENOUGH and rounds < len(ends):
        started, ends = ends[-rounds - 1][0], ends[-rounds:]
    took = max(stopped - started, 1e-6)
    return Rate(len(ends) / took, sum(size for _, size in ends) / took, at_once)
