"""Files and bytes, folder by folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.namespace.entry import Entry


class Usage(NamedTuple):
    """What lies below a folder: how many files, of how many bytes."""

    path: str
    files: int
    size: int


def add_up(root: str, entries: Iterable[Entry], depth: int) -> list[Usage]:
    """Files and bytes of each folder down to `depth` levels below `root`, which comes last. `entries` lie below it."""
    base = root.rstrip("/")
    sums: dict[str, list[int]] = {root: [0, 0]}
    for entry in entries:
        folders = entry.path[len(base) + 1 :].split("/")[:-1][:depth]
        for level in range(len(folders) + 1):
            folder = "/".join((base, *folders[:level])) if level else root
            total = sums.setdefault(folder, [0, 0])
            total[0] += 1
            total[1] += entry.size
    rest = sorted(folder for folder in sums if folder != root)
    return [Usage(folder, *sums[folder]) for folder in (*rest, root)]
