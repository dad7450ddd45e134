"""What all of a metric comes to, summed up block by block."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

import numpy as np

from headrace.tracking.blocks import Blocks

_NONE: Final = float("nan")


@dataclass(frozen=True, slots=True)
class Total:
    """Of one metric of one rank. `odd`: values that are NaN or infinite; `low`, `high`: of the others; `last`: the
    latest of these, NaN where there is none. `step`, `time_us`: the latest, steps NaN where none was given.
    """

    points: int = 0
    odd: int = 0
    low: float = _NONE
    high: float = _NONE
    last: float = _NONE
    step: float = _NONE
    time_us: int = 0


class Totals:
    """By name and rank. One thread adds; any may look."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, int], Total] = {}

    def copy(self) -> Totals:
        """Others that go on from here."""
        made = Totals()
        made.all = dict(self.all)
        return made

    def add(self, blocks: Blocks) -> None:
        """Blocks that are no part of what was added before."""
        for name, rank, array in blocks.groups():
            one = self.all.get((name, rank), Total())
            some = np.flatnonzero(np.isfinite(array["last"]))
            later = int(array["time"].max(initial=0)) >= one.time_us
            self.all[name, rank] = Total(
                one.points + int(array["points"].sum()),
                one.odd + int(array["odd"].sum()),
                float(np.fmin.reduce(array["low"], initial=one.low)),
                float(np.fmax.reduce(array["high"], initial=one.high)),
                float(array["last"][some[-1]]) if some.size and (later or not isfinite(one.last)) else one.last,
                float(array["step"][-1]) if later else one.step,
                max(one.time_us, int(array["time"].max(initial=0))),
            )

    def by_name(self) -> dict[str, Total]:
        """Of each metric the lowest rank that logged it, sorted by name."""
        found: dict[str, tuple[int, Total]] = {}
        for (name, rank), one in list(self.all.items()):
            if rank < found.get(name, (inf, one))[0]:
                found[name] = rank, one
        return {name: one for name, (_, one) in sorted(found.items())}
