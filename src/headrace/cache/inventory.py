"""What lies in the folders: the truth behind every count. Names alone tell sizes, so nothing is opened to count."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from headrace.cache.blockmap import BlockMap
from headrace.cache.names import SHARDS, Layout, charge_of, is_name, size_of


def names_in(folder: str, shard: str) -> list[str]:
    """Names in one shard of ``objects/``, ``blocks/`` or ``pins/``; empty where the shard is not there.

    Raises:
        OSError: the shard cannot be read.
    """
    try:
        found = os.listdir(folder + shard)
    except FileNotFoundError:
        return []
    return [name for rest in found if is_name(name := shard + rest)]


def all_names(folder: str, part: tuple[int, int] = (0, 1)) -> Iterator[str]:
    """Every name of ``objects/``, ``blocks/`` or ``pins/``. `part`: (number, of how many), of its folders. Raises
    OSError.
    """
    for shard in SHARDS[part[0] :: part[1]]:
        yield from names_in(folder, shard)


def allocated(path: str) -> int:
    """Bytes of disk that a (sparse) file takes; 0 when it is not there."""
    try:
        return os.stat(path).st_blocks * 512
    except OSError:
        return 0


def partial_charge(layout: Layout, name: str) -> int:
    """Bytes that a block entry counts for now; 0 when it is not there."""
    try:
        fd = os.open(f"{layout.partial(name)}/map", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        table = BlockMap.load(fd)
        return table.charge() if table else 0
    finally:
        os.close(fd)


def count_entries(layout: Layout) -> tuple[int, int]:
    """Entries and bytes held, fills under way included. A few µs an entry. Raises OSError."""
    entries = size = 0
    for shard in SHARDS:
        names = names_in(layout.objects, shard)
        entries += len(names)
        size += sum([charge_of(size_of(name)) for name in names])
        for name in names_in(layout.blocks, shard):
            entries += 1
            size += partial_charge(layout, name)
    return entries, size + sum(allocated(path) for path, _, _ in leftovers(layout))


def leftovers(layout: Layout) -> Iterator[tuple[str, bool, float]]:
    """What lies in the temporary folders: path, whether in one that is not of this machine and boot, age in seconds."""
    for node in _listed(layout.tmp):
        folder = f"{layout.tmp}{node}"
        foreign = folder + "/" != layout.claims
        for name in _listed(folder):
            path = f"{folder}/{name}"
            for claim in _listed(path) if len(name) == 2 else ():
                yield f"{path}/{claim}", foreign, _age(f"{path}/{claim}")
            if (len(name) != 2 and path != layout.owners) or foreign:
                yield path, foreign, _age(path)
        if foreign:
            yield folder, True, _age(folder)


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0
