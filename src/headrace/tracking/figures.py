"""The figures of a run, or of a stretch of it, from its metrics in the bucket: what `headrace why` judges."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import accumulate
from math import isfinite
from typing import Final

import numpy as np

from headrace.base.figures import Figures
from headrace.tracking.arrow import Table
from headrace.tracking.blocks import Blocks, blocks_of
from headrace.tracking.reporter import GAUGES, PREFIX

_LASTING: Final = ("system/cpus", "process.cores")
_SECONDS: Final = "process.seconds"
_BATCHES: Final = "loader.batches"
_OF_NODE: Final = ("system/", "job/")
NAMES: Final = (f"{PREFIX}*", "system/*", "job/*")


class Tally:
    """Figures being summed up: of any number of blocks, of one stretch of time or of several. One thread.

    `rank`: what the job's processes tell is taken of this one only; None: of all.
    """

    def __init__(self, rank: int | None = None) -> None:
        self._rank = rank
        self._sums: dict[int, dict[str, float]] = {}
        self._means: dict[int, dict[str, tuple[float, int]]] = {}
        self._gauges: dict[int, dict[str, Counter[float]]] = {}
        """All by rank, then by name. Of gauges whose median is wanted, how many values by value; of others the sum and
        the number are enough."""

    def copy(self) -> Tally:
        """Another one that goes on from here."""
        made = Tally(self._rank)
        made._sums = {rank: dict(sums) for rank, sums in self._sums.items()}
        made._means = {rank: dict(means) for rank, means in self._means.items()}
        made._gauges = {
            rank: {name: Counter(counts) for name, counts in gauges.items()} for rank, gauges in self._gauges.items()
        }
        return made

    def add(self, blocks: Blocks) -> None:
        """Those of `NAMES`; others do no harm, but take time."""
        for name, rank, array in blocks.groups():
            of_job = name.startswith(PREFIX)
            counts = array["points"] - array["odd"]
            if not (count := int(counts.sum())) or (of_job and self._rank not in (None, rank)):
                continue
            bare = name.removeprefix(PREFIX)
            if of_job and bare not in GAUGES:
                sums = self._sums.setdefault(rank, {})
                sums[bare] = sums.get(bare, 0.0) + float(array["sum"].sum())
            elif bare in _LASTING:
                values = self._gauges.setdefault(rank, {}).setdefault(bare, Counter())
                for value, many in zip(array["last"].tolist(), counts.tolist(), strict=True):
                    values[value] += many
            else:
                means = self._means.setdefault(rank, {})
                whole, before = means.get(bare, (0.0, 0))
                means[bare] = whole + float(array["sum"].sum()), before + count

    def figures(self) -> Figures:
        """Of all that was added. Increments are summed over processes and ranks, gauges are averaged; of the cores that
        may be used it is the median, for when the job is over it is what its runner may. How long the processes were
        looked at, by the clock on the wall, is what the rank says that was there longest.

        Where several ranks have a loop, each has its own beside. The machine's figures, which count to the lowest rank
        on it, are those of the ranks after it too.
        """
        sums: defaultdict[str, float] = defaultdict(float)
        for told in self._sums.values():
            for name, value in told.items():
                sums[name] += value
        seconds = max((told.get(_SECONDS, 0.0) for told in self._sums.values()), default=0.0)
        whole = Figures(dict(sums), self._gauged({*self._means, *self._gauges}), seconds)
        loops = sorted(rank for rank, told in self._sums.items() if told.get(_BATCHES))
        if len(loops) < 2:
            return whole
        nodes = sorted(rank for rank, means in self._means.items() if any(name.startswith(_OF_NODE) for name in means))
        return replace(whole, ranks={rank: self._of_rank(rank, nodes) for rank in loops})

    def _of_rank(self, rank: int, nodes: list[int]) -> Figures:
        node = nodes[max(0, bisect_right(nodes, rank) - 1)] if nodes else 0
        sums = self._sums[rank]
        return Figures(dict(sums), self._gauged({rank, node}), sums.get(_SECONDS, 0.0), node=node)

    def _gauged(self, ranks: set[int]) -> dict[str, float]:
        """Gauges of these ranks together, by name."""
        means: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        lasting: defaultdict[str, Counter[float]] = defaultdict(Counter)
        for rank in ranks:
            for name, one in self._means.get(rank, {}).items():
                means[name].append(one)
            for name, counts in self._gauges.get(rank, {}).items():
                lasting[name].update(counts)
        found = {name: sum(one for one, _ in some) / sum(count for _, count in some) for name, some in means.items()}
        return found | {name: _median(counts) for name, counts in lasting.items()}


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
