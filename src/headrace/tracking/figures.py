"""The figures of a run, or of a stretch of it, from its metrics in the bucket: what `headrace why` judges."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.base.figures import Figures
from headrace.tracking.arrow import Table, to_array
from headrace.tracking.points import SCHEMA
from headrace.tracking.reporter import GAUGES, PREFIX

_LASTING: Final = ("system/cpus", "process.cores")
NAMES: Final = (f"{PREFIX}*", "system/*", "job/*")


def figures_of(
    points: Table, *, last_s: float | None = None, rank: int | None = None, span: tuple[int, int] | None = None
) -> Figures:
    """Of a table of points, of those of `NAMES`. Increments are summed over processes and ranks, gauges are averaged.

    `last_s`: of the last seconds that it tells of; None: of all. `span`: of these times only, [first, last) in
    microseconds since the epoch. `rank`: of one rank only. Any thread.
    """
    if not points.num_rows:
        return Figures()
    whole = points.unify_dictionaries().combine_chunks()
    time, _, ranked, coded, value = (whole.column(name).chunk(0) for name in SCHEMA.names)
    names: list[str] = coded.dictionary.to_pylist()
    codes, ranks = to_array(coded.indices, np.int32), to_array(ranked, np.int32)
    times, values = to_array(time, "datetime64[us]").astype(np.int64), to_array(value, np.float64)
    wanted = np.isfinite(values)
    if last_s is not None:
        wanted &= times > times.max() - int(last_s * 1e6)
    if span is not None:
        wanted &= (times >= span[0]) & (times < span[1])
    of_job = np.array([name.startswith(PREFIX) for name in names])[codes]
    if rank is not None:
        wanted &= ~of_job | (ranks == rank)
    sums: defaultdict[str, float] = defaultdict(float)
    means: dict[str, float] = {}
    for code, name in enumerate(names):
        rows = wanted & (codes == code)
        if not rows.any():
            continue
        bare = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and bare not in GAUGES:
            sums[bare] += float(values[rows].sum())
        else:
            means[bare] = _gauge(bare, values[rows])
    return Figures(dict(sums), means, _seconds(names, codes, ranks, values, wanted))


def _gauge(name: str, values: NDArray[np.float64]) -> float:
    """The mean; of the cores that may be used the median, for when the job is over it is what its runner may."""
    if name in _LASTING:
        return float(np.sort(values)[(len(values) - 1) // 2])
    return float(values.mean())


def _seconds(
    names: list[str], codes: NDArray[np.int32], ranks: NDArray[np.int32], values: NDArray[np.float64],
    wanted: NDArray[np.bool_],
) -> float:  # fmt: skip
    """How long the processes were looked at, by the clock on the wall: what the rank that was there longest says."""
    name = f"{PREFIX}process.seconds"
    if name not in names:
        return 0.0
    rows = wanted & (codes == names.index(name))
    return max((float(values[rows & (ranks == rank)].sum()) for rank in np.unique(ranks[rows])), default=0.0)
