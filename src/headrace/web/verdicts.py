"""Verdicts as pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from headrace.base.figures import Figures
from headrace.base.verdict import UNKNOWN, Verdict
from headrace.tracking.figures import figures_of
from headrace.tracking.reading import Series
from headrace.tracking.recorded import OURS
from headrace.web.followers import Follower

_MAIN: Final = ("loss", "train/loss", "train_loss", "val/loss", "val_loss", "accuracy", "reward")
"""The metric that is shown first, if there is one of these names."""


@dataclass(frozen=True, slots=True)
class VerdictShown:
    """What limits it, as `headrace why` says."""

    bound: str
    cause: str
    statement: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    gain: float
    gain_text: str


def shown_verdict(verdict: Verdict) -> VerdictShown:
    """`gain_text` is empty where there is nothing to gain."""
    told = "" if verdict.bound == UNKNOWN or verdict.gain < 1.01 else verdict.gain_text
    return VerdictShown(
        verdict.bound, verdict.cause, verdict.statement, verdict.evidence, verdict.advice, round(verdict.gain, 3), told
    )


def waited(figures: Figures) -> float:
    """Share of the loop's time in which it waited, 0 to 1."""
    whole = figures.sum("loader.wait_s") + figures.sum("loader.own_s")
    return round(figures.sum("loader.wait_s") / whole, 4) if whole else 0.0


def main_metric(metrics: dict[str, Series]) -> str | None:
    """The name of what is shown first, of those that the job logged."""
    known = next((name for name in _MAIN if name in metrics), None)
    own = [name for name in metrics if not name.startswith(OURS)]
    return known or next((name for name in own if "loss" in name.lower()), None) or next(iter(own), None)


def columns(follower: Follower) -> dict[str, Any]:
    """What lists of runs show for which all that a run logged is read (`RunIndex.learn`). Raises any store error."""
    verdict, metrics = follower.verdict(), follower.series()
    main = main_metric(metrics)
    loss = metrics[main].last() if main is not None and "loss" in main.lower() else None
    return {
        "verdict": verdict.bound, "gain": round(verdict.gain, 3), "waited": waited(figures_of(follower.points())),
        "loss": loss if loss is not None and isfinite(loss) else None,
    }  # fmt: skip
