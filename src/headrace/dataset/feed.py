"""The feeder: positions → samples' objects → reads, as far ahead as the byte window allows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from headrace.base.errors import ChangedError, HeadraceError, InputError, TryAgainError
from headrace.dataset.ledger import Changed, Changes
from headrace.dataset.order import Ints, Stream
from headrace.dataset.slots import Frame, Group, Slot, join_frames
from headrace.dataset.source import SampleIndex, SampleSpec
from headrace.dataset.stages import Stage
from headrace.dataset.state import Progress, Residual
from headrace.dataset.windows import Windows
from headrace.fetch import Read
from headrace.store.protocol import Blob

_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor
_FIRST_CHUNK = 64
_CHUNK = 512
_GAP = 32 << 10
"""Bytes between two parts of a sample in one shard (headers, say) that are rather read along than asked around."""


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

    def chunks(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """(own indices, leaf, row) of what is left, a few hundred at a time, in order."""
        ahead = set(self.progress.ahead)
        first, count = self.progress.frontier, _FIRST_CHUNK
        while self.end is None or first < self.end:
            stop = first + count if self.end is None else min(first + count, self.end)
            local = np.arange(first, stop, dtype=np.int64)
            if ahead:
                local = np.asarray([index for index in local.tolist() if index not in ahead], dtype=np.int64)
            position = self.residual.positions(self.residual.index(self.stripe, local))
            leaf, row = self.stream.locate(self.residual.epoch, position)
            yield local, leaf, row
            first, count = stop, _CHUNK


class Maker:
    """Turns located samples into slots and the reads that fill them. Used by the feeder's thread only."""

    def __init__(self, leaves: tuple[Leaf, ...]) -> None:
        self._leaves = leaves
        self._lock = threading.Lock()
        self._frames: list[dict[int, Frame]] = [{} for _ in leaves]
        self.shared = 0

    def make(self, local: Ints, leaf: Ints, row: Ints) -> Iterator[tuple[Slot, list[Read], int]]:
        """(slot, its reads, their bytes) of each sample, in order."""
        if not len(local):
            return
        if (leaf == leaf[0]).all():
            yield from self._of_leaf(int(leaf[0]), local.tolist(), row)
            return
        by_leaf = {
            int(one): self._of_leaf(int(one), local[leaf == one].tolist(), row[leaf == one]) for one in np.unique(leaf)
        }
        for one in leaf.tolist():
            yield next(by_leaf[one])

    def _of_leaf(self, number: int, local: list[int], row: Ints) -> Iterator[tuple[Slot, list[Read], int]]:
        leaf = self._leaves[number]
        if leaf.window is not None:
            return self._windows(number, leaf, leaf.window, local, row)
        return self._samples(number, leaf, local, row)

    def _samples(self, number: int, leaf: Leaf, local: list[int], row: Ints) -> Iterator[tuple[Slot, list[Read], int]]:
        for place, spec in zip(local, leaf.index.specs(row), strict=True):
            sample, tokens = _blank(spec)
            slot = Slot(spec[0], number, place, sample, tokens)
            reads, size = _reads(leaf, spec, slot)
            yield slot, reads, size

    def _windows(
        self, number: int, leaf: Leaf, window: Windows, local: list[int], row: Ints
    ) -> Iterator[tuple[Slot, list[Read], int]]:
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
            yield slot, reads, size


def _blank(spec: SampleSpec) -> tuple[dict[str, Any], list[int]]:
    key, parts, extra = spec
    sample: dict[str, Any] = {"__key__": key}
    for part in parts:
        sample[part.name] = None
    if extra:
        sample.update(extra)
    return sample, list(range(len(parts)))


def _reads(leaf: Leaf, spec: SampleSpec, target: Slot | Frame) -> tuple[list[Read], int]:
    store = leaf.index.store
    reads: list[Read] = []
    total = 0
    for name, key, size, version, _, stop in spec[1]:
        if stop is not None:
            return _ranges(leaf, spec, target)
        known = size if size >= 0 else None
        total += known or 0
        reads.append(_tuple(Read, (store, key, known, version, 0, None, (target, name, leaf, None))))
    return reads, total


def _ranges(leaf: Leaf, spec: SampleSpec, target: Slot | Frame) -> tuple[list[Read], int]:
    """As `_reads`, for parts that are ranges: neighbours come in one read and are cut out of it when it is here."""
    reads: list[Read] = []
    total = 0
    for (key, size, version), low, high, cuts in _runs(spec):
        if low == high:  # nothing but empty parts, and no server knows an empty range: the byte before them
            low, high = (low - 1, high) if low else (0, 1)
        total += high - low
        tag = (target, [(name, start - low, stop - low) for name, start, stop in cuts], leaf, None)
        reads.append(Read(leaf.index.store, key, size, version, low, high, tag))
    target.tokens = list(range(len(reads)))
    return reads, total


_Run: TypeAlias = "tuple[tuple[str, int | None, str | None], int, int, list[tuple[str, int, int]]]"


def _runs(spec: SampleSpec) -> Iterator[_Run]:
    """Parts in reach of each other: their object, from where to where, and (name, start, stop) of each."""
    of: tuple[str, int | None, str | None] | None = None
    low = high = 0
    cuts: list[tuple[str, int, int]] = []
    for name, key, size, version, start, stop in spec[1]:
        assert stop is not None
        if of is None or of[0] != key or not high <= start <= high + _GAP:
            if of is not None:
                yield of, low, high, cuts
            of, low, cuts = (key, size if size >= 0 else None, version), start, []
        cuts.append((name, start, stop))
        high = stop
    if of is not None:
        yield of, low, high, cuts


def settle(read: Read, result: Blob | HeadraceError) -> Read | list[Slot]:
    """Put one result where it belongs. Runs on a fetch thread.

    Returns:
        The slots that have all their bytes now (mostly none), or the read to send again: the object is no longer the
        one that was listed, and nobody pinned it.
    """
    target, name, leaf, listed = read.tag
    if isinstance(result, Blob):
        if isinstance(name, str):
            target.sample[name] = result.data
        elif len(result.data) == read.length():
            for part, start, stop in name:
                target.sample[part] = result.data[start:stop]
        else:  # cut to pieces, nothing would tell that some are too short
            target.error = ("fetch", _short(read, len(result.data)))
        if listed is not None and leaf.changes is not None:
            leaf.changes.note([Changed(read.path, listed, result.info.version)])
    elif read.version is not None and isinstance(result, ChangedError) and not leaf.index.pinned:
        return Read(read.store, read.key, None, None, 0, None, (target, name, leaf, read.version))
    else:
        target.error = ("fetch", (result if isinstance(name, str) else _range_error(read, result)).at(read.path))
    if target.tokens.pop():
        return []
    if isinstance(target, Slot):
        return [target]
    return [slot for slot in target.complete() if count_down(slot)]


def _range_error(read: Read, error: HeadraceError) -> HeadraceError:
    """A range that begins behind the object's end was asked of another object than the one that was indexed."""
    if type(error) is not InputError:
        return error
    return ChangedError(f"has changed: {error.reason}", path=read.path, hint="open the dataset again")


def _short(read: Read, size: int) -> TryAgainError:
    """What is wrong with an answer of `size` bytes to that read of a range."""
    reason = f"bytes {read.start:,} to {read.stop:,} were asked for, {size:,} bytes came"
    return TryAgainError(reason, path=read.path, hint="the store, or a proxy before it, cuts answers short")


def count_down(slot: Slot) -> bool:
    """One of a window's frames is here; True when it was the last, and the window is put together."""
    if slot.tokens.pop():
        return False
    slot.sample, slot.error = join_frames(slot.sample)
    return True


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
        rows = np.unique(np.linspace(0, len(leaf.index) - 1, 32).astype(np.int64))
        sizes = leaf.index.sizes(rows)
        total += int(sizes.sum())
        count += len(rows)
    return max(1, total // max(count, 1))


__all__ = ["Course", "Group", "Leaf", "Maker", "count_down", "mean_size", "register", "settle"]
