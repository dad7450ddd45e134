"""Samples that are made together and lie together in a shard: one read for many of them.

A read of a few megabytes costs the store, the network and us hardly more than one of a few kilobytes. So the ranges
of a stretch of samples are put in the order in which they lie, and runs of them without large gaps are read at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from headrace.base.errors import ChangedError, HeadraceError, InputError, TryAgainError
from headrace.catalog import LIST_AGAIN, Part, SampleSpec
from headrace.fetch import Read
from headrace.loader.joining_limits import GAP, MOST_JOINED
from headrace.loader.pipeline.slots import Frame, Slot, join_frames
from headrace.store.protocol import Blob, Store

_Wanted: TypeAlias = "tuple[str, int, int, int, Part]"
"""Object, start, stop, place of the sample, part."""
_place = itemgetter(0, 1, 2)
_first = itemgetter(1)


class Cuts(NamedTuple):
    """What is to be made of one answer. `cuts`: (whose part, its name, start, stop within the answer); `targets`: whom
    to tell that these bytes are here, each once.
    """

    cuts: list[tuple[Slot | Frame, str, int, int]]
    targets: list[Slot | Frame]


def join_reads(store: Store, made: Sequence[tuple[Slot | Frame, SampleSpec]]) -> list[tuple[Read, int, int]]:
    """(read tagged with its `Cuts`, place in `made` of the first target it serves, of the last), by the first.

    Sets every target's tokens. All parts give `Part.stop`.
    """
    wanted = [
        (part.key, part.start, part.stop or 0, place, part) for place, (_, spec) in enumerate(made) for part in spec[1]
    ]
    wanted.sort(key=_place)
    counts = [0] * len(made)
    found: list[tuple[Read, int, int]] = []
    for run, high in _runs(wanted):
        key, low, _, _, part = run[0]
        if low == high:  # nothing but empty parts, and no server knows an empty range: the byte before them
            low, high = (low - 1, high) if low else (0, 1)
        places = sorted({one[3] for one in run})
        for place in places:
            counts[place] += 1
        cuts = [(made[place][0], one.name, start - low, stop - low) for _, start, stop, place, one in run]
        tag = Cuts(cuts, [made[place][0] for place in places])
        size = part.size if part.size >= 0 else None
        found.append((Read(store, key, size, part.version, low, high, tag), places[0], places[-1]))
    for (target, _), count in zip(made, counts, strict=True):
        target.tokens = list(range(count))
    found.sort(key=_first)
    return found


def _runs(wanted: list[_Wanted]) -> Iterator[tuple[list[_Wanted], int]]:
    """Ranges in reach of each other, and where they end together. `wanted` is sorted."""
    run: list[_Wanted] = []
    high = 0
    for one in wanted:
        key, start, stop, _, _ = one
        longer = stop > high and stop - run[0][1] > MOST_JOINED if run else False
        if run and (longer or key != run[0][0] or start > high + GAP):  # what lies within makes no read longer
            yield run, high
            run, high = [], 0
        run.append(one)
        high = max(high, stop)
    if run:
        yield run, high


def settle_cuts(read: Read, result: Blob | HeadraceError) -> list[Slot]:
    """Cut an answer and put the pieces where they belong. Runs on a fetch thread, or the one that waits.

    Returns:
        The slots that have all their bytes now.
    """
    found: Cuts = read.tag
    if isinstance(result, Blob) and len(result.data) == read.length():
        data = result.data
        for target, name, start, stop in found.cuts:
            target.sample[name] = data[start:stop]
    else:  # cut to pieces, nothing would tell that some are too short
        error = short_answer(read, len(result.data)) if isinstance(result, Blob) else range_error(read, result)
        error = error.at(read.path)
        for target in found.targets:
            target.error = ("fetch", error)
    ready: list[Slot] = []
    for target in found.targets:
        ready += arrived(target)
    return ready


def arrived(target: Slot | Frame) -> list[Slot]:
    """One of a target's reads has ended: the slots that have everything now."""
    if target.tokens.pop():
        return []
    if isinstance(target, Slot):
        return [target]
    return [slot for slot in target.complete() if count_down(slot)]


def count_down(slot: Slot) -> bool:
    """One of a window's frames is here; True when it was the last, and the window is put together."""
    if slot.tokens.pop():
        return False
    slot.sample, slot.error = join_frames(slot.sample)
    return True


def range_error(read: Read, error: HeadraceError) -> HeadraceError:
    """What a range's error means: one that begins behind the object's end was asked of another object than the one that
    was indexed.
    """
    if type(error) is not InputError:
        return error
    return ChangedError(f"has changed: {error.reason}", path=read.path, hint=LIST_AGAIN)


def short_answer(read: Read, size: int) -> TryAgainError:
    """What is wrong with an answer of `size` bytes to that read of a range."""
    reason = f"bytes {read.start:,} to {read.stop:,} were asked for, {size:,} bytes came"
    return TryAgainError(reason, path=read.path, hint="the store, or a proxy before it, cuts answers short")
