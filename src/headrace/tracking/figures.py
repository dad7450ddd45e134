"""The figures of a run, or of a stretch of it, from its metrics in the bucket: what `headrace why` judges."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import accumulate
from math import isfinite
from typing import Final

import numpy as np

from headrace.base.figures import Figures
from headrace.tracking.arrow import Table
from headrace.tracking.blocks import Blocks, blocks_of
from headrace.tracking.reporter import GAUGES, PREFIX

_LASTING: Final = ("system/cpus", "process.cores")
_SECONDS: Final = f"{PREFIX}process.seconds"
NAMES: Final = (f"{PREFIX}*", "system/*", "job/*")


class Tally:
    """Figures being summed up: of any number of blocks, of one stretch of time or of several. One thread.

    `rank`: what the job's processes tell is taken of this one only; None: of all.
    """

    def __init__(self, rank: int | None = None) -> None:
        self._rank = rank
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._gauges: defaultdict[str, Counter[float]] = defaultdict(Counter)
        """Of those whose median is wanted, how many values by value; of others the sum and the number are enough."""
        self._means: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
        self._seconds: defaultdict[int, float] = defaultdict(float)

    def copy(self) -> Tally:
        """Another one that goes on from here."""
        made = Tally(self._rank)
        made._sums.update(self._sums)
        made._means.update(self._means)
        made._seconds.update(self._seconds)
        made._gauges.update({name: Counter(counts) for name, counts in self._gauges.items()})
        return made

    def add(self, blocks: Blocks) -> None:
        """Those of `NAMES`; others do no harm, but take time."""
        for name, rank, array in blocks.groups():
            of_job = name.startswith(PREFIX)
            counts = array["points"] - array["odd"]
            if not (count := int(counts.sum())) or (of_job and self._rank not in (None, rank)):
                continue
            bare = name.removeprefix(PREFIX)
            if name == _SECONDS:
                self._seconds[rank] += float(array["sum"].sum())
            if of_job and bare not in GAUGES:
                self._sums[bare] += float(array["sum"].sum())
            elif bare in _LASTING:
                for value, many in zip(array["last"].tolist(), counts.tolist(), strict=True):
                    self._gauges[bare][value] += many
            else:
                whole, before = self._means[bare]
                self._means[bare] = whole + float(array["sum"].sum()), before + count

    def figures(self) -> Figures:
        """Of all that was added. Increments are summed over processes and ranks, gauges are averaged; of the cores that
        may be used it is the median, for when the job is over it is what its runner may. How long the processes were
        looked at, by the clock on the wall, is what the rank says that was there longest.
        """
        means = {name: whole / count for name, (whole, count) in self._means.items()}
        means |= {name: _median(counts) for name, counts in self._gauges.items()}
        return Figures(dict(self._sums), means, max(self._seconds.values(), default=0.0))


def _median(counts: Counter[float]) -> float:
    """The lower one of an even number of values."""
    values = sorted(value for value in counts if isfinite(value))
    reached = list(accumulate(counts[value] for value in values))
    return values[next(at for at, count in enumerate(reached) if count > (reached[-1] - 1) // 2)]


def figures_of(
    points: Table, *, last_s: float | None = None, rank: int | None = None, span: tuple[int, int] | None = None
) -> Figures:
    """Of a table of points, of those of `NAMES`, as `Tally.figures`.

    `last_s`: of the last seconds that it tells of; None: of all. `span`: of these times only, [first, last) in
    microseconds since the epoch. `rank`: of one rank only. Any thread.
    """
    if not points.num_rows:
        return Figures()
    blocks = blocks_of(points, longest=1)[1]
    times = blocks.array["time"]
    wanted = np.ones(len(times), np.bool_)
    if last_s is not None:
        wanted &= times > times[np.isfinite(blocks.array["last"])].max(initial=0) - int(last_s * 1e6)
    if span is not None:
        wanted &= (times >= span[0]) & (times < span[1])
    tally = Tally(rank)
    tally.add(Blocks(blocks.names, blocks.array[wanted]))
    return tally.figures()
