"""What came of the metrics of a run, in a few numbers for each: of its summary, or of all its points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.tracking.runs import Run
from headrace.tracking.summary import OURS, told


def results(run: Run) -> dict[str, Mapping[str, Any]]:
    """Of each metric that the job logged itself ``last``, ``min``, ``max``, ``step`` and ``points``, by name.

    Of a run that is over, one GET of its summary, where that tells of all; else its points are read.

    Raises NotFoundError, CorruptError, UnsupportedError, any store error.
    """
    summary = run.summary() if run.look().over else None
    if summary is not None and not summary.left_out:
        return dict(summary.metrics)
    from headrace.tracking.blocks import blocks_of
    from headrace.tracking.reading import read_metrics
    from headrace.tracking.totals import Totals

    totals = Totals()
    totals.add(blocks_of(read_metrics(run.store, f"{run.prefix}metrics/").table)[1])
    return {name: told(one) for name, one in totals.by_name().items() if not name.startswith(OURS)}
