"""A run in one small object, ``<home>/runs/<id>/summary.json``: what lists show of it, without its points.

It is written hourly and at the end, whole each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, Self

from headrace.tracking.record import Written

if TYPE_CHECKING:
    from headrace.base.figures import Figures
    from headrace.base.verdict import Verdict
    from headrace.tracking.totals import Total

NAME: Final = "summary.json"
MAIN: Final = ("loss", "train/loss", "train_loss", "val/loss", "val_loss", "accuracy", "reward")
"""The metric that is shown first, if there is one of these names."""
OURS: Final = ("system/", "job/", "headrace/")
"""Before the names of metrics that a job did not log itself."""
_MOST: Final = 1000
"""Metrics told of, at most."""


@dataclass(frozen=True, slots=True)
class Summary(Written):
    """`time`: RFC 3339; `segment`: the last segment of metrics that is in it.

    `bound`, `cause`, `statement`, `gain`: the verdict, as `headrace why` says. `waited`: share of the loop's time in
    which it waited, 0 to 1. `metrics`: of each that the job logged ``last``, ``min``, ``max``, ``step``, ``points``;
    null is what has no finite value. `left_out`: how many metrics are not told of, for there are too many.
    """

    time: str
    segment: int
    bound: str
    cause: str
    statement: str
    gain: float
    waited: float
    metrics: Mapping[str, Any] = field(default_factory=dict[str, Any])
    left_out: int = 0

    @classmethod
    def of(cls, time: str, segment: int, verdict: Verdict, figures: Figures, totals: Mapping[str, Total]) -> Self:
        """Of a run at a time."""
        own = {name: one for name, one in totals.items() if not name.startswith(OURS)}
        some = dict(list(own.items())[:_MOST])
        return cls(
            time, segment, verdict.bound, verdict.cause, verdict.statement, round(verdict.gain, 3), waited(figures),
            {name: told(one) for name, one in some.items()}, len(own) - len(some),
        )  # fmt: skip

    @property
    def loss(self) -> float | None:
        """The last value of the main metric, where that is a loss."""
        main = main_metric(self.metrics)
        return self.metrics[main].get("last") if main is not None and "loss" in main.lower() else None


def waited(figures: Figures) -> float:
    """Share of the loop's time in which it waited, 0 to 1."""
    whole = figures.sum("loader.wait_s") + figures.sum("loader.own_s")
    return round(figures.sum("loader.wait_s") / whole, 4) if whole else 0.0


def main_metric(metrics: Mapping[str, Any]) -> str | None:
    """The name of what is shown first, of those that the job logged."""
    known = next((name for name in MAIN if name in metrics), None)
    own = [name for name in metrics if not name.startswith(OURS)]
    return known or next((name for name in own if "loss" in name.lower()), None) or next(iter(own), None)


def told(one: Total) -> dict[str, float | int | None]:
    """``last``, ``min``, ``max``, ``step`` and ``points`` of a metric; null is what has no finite value."""
    numbers = {"last": one.last, "min": one.low, "max": one.high, "step": one.step}
    return {**{name: value if isfinite(value) else None for name, value in numbers.items()}, "points": one.points}
