"""A gate: a condition on a run's metrics under which a model is published. The language: `headrace.base.where`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headrace.base.errors import ConditionError, InputError
from headrace.base.where import METRICS, SUMMARIES, Where

_SHOWN: Final = 20  # names in a hint


def parse(text: str) -> Where:
    """Raises InputError: it is none."""
    where = Where.parse(text, METRICS)
    if not where.names:
        raise InputError("--if names no metric", hint="like accuracy >= 0.97")
    return where


def check(text: str, metrics: Mapping[str, Mapping[str, Any]], of: str) -> None:
    """Whether it holds of the metrics of the run `of`, each with its ``last``, ``min`` and ``max``.

    Raises:
        ConditionError: it does not, or a metric that it names has no finite value; says the values. InputError: it is
        no condition, or the run has logged no such metric.
    """
    where = parse(text)
    scope: dict[str, Any] = {}
    for name, told in metrics.items():
        scope[name] = told.get("last")
        scope |= {f"{one}({name})": told.get(one) for one in SUMMARIES}
    unknown = sorted(where.names - scope.keys())
    if unknown:
        known = ", ".join(list(metrics)[:_SHOWN]) or "none"
        raise InputError(f"--if: it has logged no {unknown[0]!r}", path=of, hint=f"its metrics: {known}")
    said = ", ".join(f"{name} is {_text(scope[name])}" for name in sorted(where.names))
    if any(scope[name] is None for name in where.names) or not where.keeps(scope):
        hint = "nothing was published"
        raise ConditionError(f"{text!r} does not hold: {said}", path=of, hint=hint)


def _text(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"
