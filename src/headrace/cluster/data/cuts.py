"""How a listing and a set of shards are cut into pieces: functions of what is asked for alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from headrace.base.threads import Threads
from headrace.formats import Shard
from headrace.store.protocol import Folder, ObjectInfo

Part: TypeAlias = str | tuple[ObjectInfo, ...]
"""Of a listing: a prefix that is listed by itself, or objects that are known already."""
SHARD_BYTES: Final = 256 << 20
"""Of shards in a piece, unless one alone is larger."""
_SHARDS: Final = 64  # shards of a piece, at most: small ones cost a request each
_LEVELS: Final = 4  # of folders that are looked into for pieces
_AT_ONCE: Final = 16  # LISTs side by side: they wait for the store


def cut(ask: Callable[[str], Folder | None], prefix: str, wanted: int) -> list[Part]:
    """A prefix as folders, at least `wanted` of them where there are so many in the uppermost levels, and the objects
    beside them, in the order of keys.

    `ask`: one level of the listing; None where that is not worth it, since it holds objects for the most part. Called
    from several threads.
    """
    parts: list[Part] = [prefix]
    leaves: set[str] = set()
    with Threads(_AT_ONCE, thread_name_prefix="headrace-cut") as pool:
        for _ in range(_LEVELS):
            asked = [part for part in parts if isinstance(part, str) and part not in leaves]
            if not asked or sum(isinstance(part, str) for part in parts) >= wanted:
                break
            levels = dict(zip(asked, pool.map(ask, asked), strict=True))
            leaves |= {name for name, level in levels.items() if level is None}
            parts = [inner for part in parts for inner in _opened(part, levels)]
    return parts


def _opened(part: Part, levels: dict[str, Folder | None]) -> Iterator[Part]:
    level = levels.get(part) if isinstance(part, str) else None
    if level is None:
        yield part
        return
    within = set(level.folders)  # a key that ends in "/" is told in its folder, too
    found = [*level.folders, *(one for one in level.objects if one.key not in within)]
    found.sort(key=lambda one: one if isinstance(one, str) else one.key)
    for is_folder, some in groupby(found, lambda one: isinstance(one, str)):
        if is_folder:
            yield from (one for one in some if isinstance(one, str))
        else:
            yield tuple(one for one in some if not isinstance(one, str))


def grouped(parts: Sequence[Part], pieces: int) -> list[tuple[Part, ...]]:
    """Neighbouring parts together, in about so many pieces with as many folders each."""
    folders = sum(isinstance(part, str) for part in parts)
    most = max(1, -(-folders // max(1, pieces)))
    groups: list[list[Part]] = []
    count = 0
    for part in parts:
        if not groups or (count >= most and isinstance(part, str)):
            groups.append([])
            count = 0
        groups[-1].append(part)
        count += isinstance(part, str)
    return [tuple(group) for group in groups]


def shard_slices(shards: Sequence[Shard]) -> Iterator[tuple[Shard, ...]]:
    """Neighbouring shards together, up to `SHARD_BYTES`."""
    held: list[Shard] = []
    size = 0
    for shard in shards:
        held.append(shard)
        size += max(0, shard.size)
        if size >= SHARD_BYTES or len(held) >= _SHARDS:
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)
