"""What a run takes up in its bucket, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.tracking.runs import Run

_PARTS: Final = ("outputs", "checkpoints", "logs", "metrics", "code", "inputs")
RECORD: Final = "record"


@dataclass(frozen=True, slots=True)
class Held:
    """`part`: a folder of the run, or ``record`` for what is left."""

    part: str
    objects: int
    bytes: int


def held(run: Run) -> list[Held]:
    """Those parts that hold anything, by one listing of all its objects. Raises any store error."""
    counts = dict.fromkeys((*_PARTS, RECORD), 0)
    sizes = dict.fromkeys(counts, 0)
    for page in run.store.list(run.prefix):
        for info in page:
            first, slash, _ = info.key[len(run.prefix) :].partition("/")
            part = first if slash and first in _PARTS else RECORD
            counts[part] += 1
            sizes[part] += info.size
    return [Held(part, count, sizes[part]) for part, count in counts.items() if count]
