"""Samples at chosen places, read now: no epoch, no threads of their own but for users' functions.

All that is asked for at once is read side by side: what the cache has of whole objects on the calling thread, some
dozens at a time, ranges of shards joined where they are neighbours, and the rest through the fetch room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.base.threads import Threads
from headrace.catalog import Stage
from headrace.fetch import Fetcher, Read
from headrace.loader.order.order import Ints, Stream
from headrace.loader.pipeline.bad_samples import failure
from headrace.loader.pipeline.feeder import Leaf, Maker, register, separate, settle
from headrace.loader.pipeline.run_stages import StageError, key_in, run_stages, threads_of
from headrace.loader.pipeline.slots import Slot
from headrace.loader.pipeline.whole_objects import ObjectGroup
from headrace.store.protocol import Blob, ObjectInfo

_ROOM = 64 << 20
"""Bytes of neighbours in shards that are tied together."""
_GROUP = 64  # samples read from the cache together


def samples_at(
    stream: Stream, leaves: tuple[Leaf, ...], stages: tuple[Stage, ...], epoch: int, places: Ints, fetcher: Fetcher
) -> list[Any]:
    """The samples at these positions of an epoch, in this order, behind all stages. Any thread.

    `places`: int64 [n], each in [0, stream.size); the same one may come again, and is read once.

    Raises:
        As the loader without `on_error`: a store's error, BadSampleError, ChangedError.
    """
    if not len(places):
        return []
    chosen, back = np.unique(places, return_inverse=True)
    raw = _read(leaves, *stream.locate(epoch, chosen), fetcher)
    work = [(raw[number], (*leaves[raw[number].leaf].stages, *stages)) for number in back.tolist()]
    if len(work) == 1 or not stages:
        return [_made(slot, through) for slot, through in work]
    with Threads(threads_of([stages]), "headrace-at") as pool:
        return list(pool.map(_made, *zip(*work, strict=True)))


def places_of(indices: Sequence[int], size: int | None) -> Ints:
    """Places, negative ones counted from the end, as int64 [n], each in [0, size). `size` None: without end.

    Raises:
        IndexError: there is no such place. TypeError: no integers.
    """
    given = np.asarray(indices)
    if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
        raise TypeError(f"places are integers in one list, not {type(indices).__name__} of {given.dtype}")
    places = given.astype(np.int64)
    if size is not None:
        places = np.where(places < 0, places + size, places)
    wrong = (places < 0) | (places >= (size if size is not None else np.iinfo(np.int64).max))
    if wrong.any():
        raise IndexError(f"there is no place {given[wrong][0]} among {size} samples")
    return places


def _read(leaves: tuple[Leaf, ...], leaf: Ints, row: Ints, fetcher: Fetcher) -> list[Slot]:
    local = np.arange(len(row), dtype=np.int64)
    maker = Maker(leaves, _ROOM)
    first = leaves[int(leaf[0])]
    groups: list[ObjectGroup] = []
    if fetcher.cache is not None and fetcher.keeps(first.index.store) and all(one.window is None for one in leaves):
        groups = maker.together((local, leaf, row), 0, _GROUP, fetcher.cache)
    if groups:
        slots, reads = _from_cache(groups, first, fetcher)
    else:
        made = list(maker.make(local, leaf, row))
        slots, reads = [one.slot for one in made], [read for one in made for read in one.reads]
    if reads or not groups:
        _fetch(slots, reads, fetcher)
    return slots


def _from_cache(groups: list[ObjectGroup], leaf: Leaf, fetcher: Fetcher) -> tuple[list[Slot], list[Read]]:
    """The samples of all groups, and what of them is still to be read."""
    found = [fetcher.kept(group.kept.entries) for group in groups]
    missing: list[Read] = []
    for group, data in zip(groups, found, strict=True):
        whole = [one for one in data if one is not None]
        if len(whole) == len(data):
            group.fill(whole)
            group.open()
            continue
        for read, one in zip(separate(group, leaf), data, strict=True):
            if one is None:
                missing.append(read)
            else:
                settle(read, Blob(one, ObjectInfo(read.key, len(one), read.version)))
    return [slot for group in groups for slot in group.slots], missing


def _fetch(slots: list[Slot], reads: list[Read], fetcher: Fetcher) -> None:
    """Read what these samples still need. Raises DeadlineError."""
    for slot in slots:
        if slot.tokens:
            register(slot)
    while reads:
        results = fetcher.start(reads, here=True).wait()
        settled = [settle(read, result) for read, result in zip(reads, results, strict=True)]
        reads = [one for one in settled if isinstance(one, Read)]


def _made(slot: Slot, stages: Sequence[Stage]) -> Any:
    """One sample; of its own, since another may be made of the same bytes."""
    if slot.error is not None:
        raise failure(slot.key, *slot.error)
    sample = dict(slot.sample)
    try:
        return run_stages(stages, sample)[0]
    except StageError as error:
        raise failure(key_in(sample, slot.key), error.stage, error.error) from error.error
