"""The feeder: positions → samples' objects → reads, as far ahead as the byte window allows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from headrace.base.errors import ChangedError, HeadraceError
from headrace.cache import Cache
from headrace.catalog import SampleIndex, SampleSpec, Stage
from headrace.fetch import Read, without_etag
from headrace.formats import size_of
from headrace.loader.order.order import Ints, Stream, distinct
from headrace.loader.order.progress_state import Progress, Residual, merged
from headrace.loader.order.windows import Windows
from headrace.loader.pipeline.bad_samples import Changed, Changes
from headrace.loader.pipeline.joined_reads import Cuts, arrived, count_down, join_reads, settle_cuts
from headrace.loader.pipeline.range_groups import Grouping, Lot, lots
from headrace.loader.pipeline.slots import Frame, Group, Slot
from headrace.loader.pipeline.whole_objects import ObjectGroup, groups_of
from headrace.store.protocol import Blob, is_stamp

_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor
_FIRST_CHUNK = 64  # samples: the first reads are to go out soon
CHUNK = 512  # samples planned at once, else: enough to share what a step costs, too few to delay the reads
MOST_CHUNK = 8192  # samples planned at once, at most, and kept together where they hang together


@dataclass(frozen=True, eq=False)
class Leaf:
    """One data source of a dataset: its samples or windows of them, and the stages only they pass."""

    index: SampleIndex
    window: Windows | None = None
    stages: tuple[Stage, ...] = ()
    changes: Changes | None = None
    """Where objects read in another version than listed are named; None: nowhere."""


@dataclass(frozen=True)
class Course:
    """The part of an epoch one pipeline runs through: stripe `stripe` of `residual`, from `progress` on."""

    stream: Stream
    residual: Residual
    stripe: int
    progress: Progress
    end: int | None
    """The stripe's last index + 1; None: no end."""

    def positions(self, local: Ints) -> Ints:
        """Own indices → positions of the epoch; behind its end, for ranks made even, those from its beginning."""
        index, size = self.residual.index(self.stripe, local), self.residual.size(self.stream.size)
        return self.residual.positions(index % size if size else index)

    def given(self) -> dict[int, frozenset[int]]:
        """Own indices of samples that became several, and which of those were given; see `Inside`."""
        found = merged(self.progress.inside)
        for position, numbers in self.residual.inside:
            local = self.residual.local(self.stripe, position)
            if local is not None and local not in found:
                found[local] = numbers
        return {local: frozenset(numbers) for local, numbers in found.items()}

    def chunks(self, size: Callable[[], int] = lambda: CHUNK, step: int = 1) -> Iterator[tuple[Ints, Ints, Ints]]:
        """(own indices, leaf, row) of what is left, about `size()` at a time, in order; at first fewer. Whole steps,
        where that can be.
        """
        ahead = set(self.progress.ahead)
        first, count = self.progress.frontier, -(-_FIRST_CHUNK // step) * step
        grain = self.residual.grain if self.residual.grain <= MOST_CHUNK else 1
        while self.end is None or first < self.end:
            stop = (first // grain + max(1, count // grain)) * grain  # what is best read together is in one chunk
            stop = stop if self.end is None else min(stop, self.end)
            local = np.arange(first, stop, dtype=np.int64)
            if ahead:
                local = np.asarray([index for index in local.tolist() if index not in ahead], dtype=np.int64)
            leaf, row = self.stream.locate(self.residual.epoch, self.positions(local))
            yield local, leaf, row
            first, count = stop, max(size() // step, 1) * step


class Made(NamedTuple):
    """A slot, the reads to submit with it, and the sample's bytes. `tied`: what it waits for comes with a later slot:
    both must be submitted together.
    """

    slot: Slot
    reads: list[Read]
    size: int
    tied: bool = False


class Maker:
    """Turns located samples into slots and the reads that fill them. Used by the feeder's thread only.

    `room`: bytes of samples that may be tied together.
    """

    def __init__(self, leaves: tuple[Leaf, ...], room: int) -> None:
        self._leaves = leaves
        self._room = room
        self._lock = threading.Lock()
        self._frames: list[dict[int, Frame]] = [{} for _ in leaves]
        self.shared = 0

    def make(self, local: Ints, leaf: Ints, row: Ints) -> Iterator[Made]:
        """The samples at these places, in order."""
        if not len(local):
            return
        if (leaf == leaf[0]).all():
            yield from self._of_leaf(int(leaf[0]), local.tolist(), row)
            return
        numbers = distinct(leaf).tolist()
        by_leaf = {one: self._of_leaf(one, local[leaf == one].tolist(), row[leaf == one]) for one in numbers}
        tied = dict.fromkeys(numbers, False)
        for one in leaf.tolist():
            made = next(by_leaf[one])
            tied[one] = made.tied
            yield made._replace(tied=any(tied.values()))

    def lots(self, local: Ints, leaf: Ints, row: Ints, first: int, limit: int) -> Iterator[Lot] | None:
        """The samples at these places, in groups of `limit`, the first numbered `first`; None where they have to be
        made one by one: windows, samples of several leaves, single objects.
        """
        if not len(local) or not (leaf == leaf[0]).all():
            return None
        number = int(leaf[0])
        chosen = self._leaves[number]
        ranged = chosen.index.abilities.ranges
        if chosen.window is not None or ranged is None:
            return None
        return lots(ranged, number, local.tolist(), row, Grouping(first, limit, self._room))

    def together(self, places: tuple[Ints, Ints, Ints], first: int, limit: int, cache: Cache) -> list[ObjectGroup]:
        """The samples at `places` (as `make` has them), in groups of `limit`, to be read from the cache; none: it
        cannot be done.
        """
        local, leaf, row = places
        if not len(local) or not (leaf == leaf[0]).all():
            return []
        number = int(leaf[0])
        objects = self._leaves[number].index.abilities.objects
        kept = objects.kept(row, cache) if objects is not None else None
        return groups_of(kept, number, local.tolist(), row, first, limit) if kept is not None else []

    def _of_leaf(self, number: int, local: list[int], row: Ints) -> Iterator[Made]:
        leaf = self._leaves[number]
        if leaf.window is not None:
            return self._windows(number, leaf, leaf.window, local, row)
        return self._samples(number, leaf, local, row)

    def _samples(self, number: int, leaf: Leaf, local: list[int], row: Ints) -> Iterator[Made]:
        together: list[tuple[Slot, SampleSpec]] = []
        size, held = 0, set[int]()
        for place, spec in zip(local, leaf.index.specs(row), strict=True):
            sample, tokens = _blank(spec)
            slot = Slot(spec[0], number, place, sample, tokens)
            if not _ranged(spec):
                yield Made(slot, *_reads(leaf, spec, slot))
                continue
            more = _bytes(spec) if id(spec[1]) not in held else 0
            if together and more and size + more > self._room:
                yield from _joined(leaf, together)
                together, size, held = [], 0, set[int]()
            held.add(id(spec[1]))  # rows of one row group have the very same parts, whose bytes are here once
            together.append((slot, spec))
            size += more
        if together:
            yield from _joined(leaf, together)

    def _windows(self, number: int, leaf: Leaf, window: Windows, local: list[int], row: Ints) -> Iterator[Made]:
        firsts = window.first_rows(row).tolist()
        wanted = sorted(
            {at for first in firsts for at in range(first, first + window.length)} - set(self._frames[number])
        )
        specs = dict(zip(wanted, leaf.index.specs(np.asarray(wanted, dtype=np.int64)), strict=True))
        for place, first in zip(local, firsts, strict=True):
            rows = range(first, first + window.length)
            old = self._frames[number]
            reads: list[Read] = []
            size = 0
            frames: dict[int, Frame] = {}
            for at in rows:
                frame = old.get(at)
                if frame is None:
                    spec = specs.get(at) or leaf.index.specs(np.asarray([at], dtype=np.int64))[0]
                    sample, tokens = _blank(spec)
                    frame = Frame(at, sample, tokens, self._lock)
                    more, bytes_more = _reads(leaf, spec, frame)
                    reads += more
                    size += bytes_more
                else:
                    self.shared += 1
                frames[at] = frame
            # Kept by the feeder just as long as the next window may want them; after that by their slots alone.
            self._frames[number] = frames
            parts = list(frames.values())
            slot = Slot(parts[0].sample["__key__"], number, place, parts, list(range(len(parts) + 1)))
            yield Made(slot, reads, size)


def _joined(leaf: Leaf, together: list[tuple[Slot, SampleSpec]]) -> Iterator[Made]:
    """Each read goes with the last sample that it serves: by then the others are there to receive it."""
    ending: dict[int, list[Read]] = {}
    until = [0] * len(together)
    for read, first, last in join_reads(leaf.index.store, together):
        ending.setdefault(last, []).append(read)
        until[first] = max(until[first], last)
    reach, held = 0, set[int]()
    for place, (slot, spec) in enumerate(together):
        reach = max(reach, until[place])
        size = _bytes(spec) if id(spec[1]) not in held else 0
        held.add(id(spec[1]))
        yield Made(slot, ending.get(place, []), size, reach > place)


def _blank(spec: SampleSpec) -> tuple[dict[str, Any], list[int]]:
    key, parts, extra = spec
    sample: dict[str, Any] = {"__key__": key}
    for part in parts:
        sample[part.name] = None
    if extra:
        sample.update(extra)
    return sample, list(range(len(parts)))


def _ranged(spec: SampleSpec) -> bool:
    return bool(spec[1]) and spec[1][0].stop is not None


def _bytes(spec: SampleSpec) -> int:
    return sum(part.stop - part.start for part in spec[1] if part.stop is not None)


def _reads(leaf: Leaf, spec: SampleSpec, target: Slot | Frame) -> tuple[list[Read], int]:
    store = leaf.index.store
    if _ranged(spec):
        return [read for read, _, _ in join_reads(store, [(target, spec)])], _bytes(spec)
    reads: list[Read] = []
    total = size_of(spec[2]) if spec[2] else 0  # what is not read here, but by who looks into it
    for name, key, size, version, _, _ in spec[1]:
        known = size if size >= 0 else None
        total += known or 0
        reads.append(_tuple(Read, (store, key, known, version, 0, None, (target, name, leaf, None))))
    return reads, total


def separate(group: ObjectGroup, leaf: Leaf) -> list[Read]:
    """Make slots of a group that is not all in the cache, and reads of all parts, in the order of its entries."""
    reads: list[Read] = []
    for place, spec in zip(group.locals, leaf.index.specs(group.rows), strict=True):
        sample, tokens = _blank(spec)
        slot = Slot(spec[0], group.leaf, place, sample, tokens)
        slot.group = group
        group.slots.append(slot)
        reads += _reads(leaf, spec, slot)[0]
    group.tokens = list(range(group.count))
    return reads


def settle(read: Read, result: Blob | HeadraceError) -> Read | list[Slot]:
    """Put one result where it belongs. Runs on a fetch thread, or the one that waits.

    Returns:
        The slots that have all their bytes now (mostly none), or the read to send again: the object is no longer the
        one that was listed, and nobody pinned it.
    """
    if isinstance(read.tag, Cuts):
        return settle_cuts(read, result)
    target, name, leaf, listed = read.tag
    if isinstance(result, Blob):
        if listed is not None and result.info.etag is None and not is_stamp(listed):
            target.error = ("fetch", without_etag(read))
            return arrived(target)
        target.sample[name] = result.data
        if listed is not None and leaf.changes is not None:
            leaf.changes.note([Changed(read.path, listed, result.info.version)])
    elif read.version is not None and isinstance(result, ChangedError) and not leaf.index.pinned:
        return Read(read.store, read.key, None, None, 0, None, (target, name, leaf, read.version))
    else:
        target.error = ("fetch", result.at(read.path))
    return arrived(target)


def register(slot: Slot) -> bool:
    """Make a window's slot wait for its frames, once its group is known and before its reads are submitted; True when
    nothing is missing already.
    """
    if not isinstance(slot.sample, list):
        return not slot.tokens
    frames: list[Frame] = slot.sample
    last = False
    for frame in frames:
        if not frame.join(slot):
            last = count_down(slot) or last
    return count_down(slot) or last


def mean_size(leaves: tuple[Leaf, ...]) -> int:
    """Bytes of a typical sample, from a few of them."""
    total = count = 0
    for leaf in leaves:
        rows = distinct(np.linspace(0, len(leaf.index) - 1, 32).astype(np.int64))
        sizes = leaf.index.sizes(rows)
        total += int(sizes.sum())
        count += len(rows)
    return max(1, total // max(count, 1))


__all__ = ["Course", "Group", "Leaf", "Made", "Maker", "count_down", "mean_size", "register", "settle"]
