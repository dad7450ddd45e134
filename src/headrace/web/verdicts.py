"""Verdicts as pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.base.verdict import UNKNOWN, Verdict
from headrace.tracking.summary import Summary
from headrace.web.followers import Follower


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


def of_summary(summary: Summary) -> dict[str, Any]:
    """What lists of runs show beside how a run stands (`RunIndex.learn`)."""
    return {"verdict": summary.bound, "gain": summary.gain, "waited": summary.waited, "loss": summary.loss}


def columns(follower: Follower) -> dict[str, Any]:
    """The same of a run that is under way, or has no summary. Raises any store error."""
    measured, verdict = follower.measured(), follower.verdict()
    return of_summary(Summary.of("", 0, verdict, measured.figures(), measured.metrics))
