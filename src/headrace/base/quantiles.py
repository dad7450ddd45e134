"""Quantiles, without NumPy: of few values, which are sorted as soon as they would be converted."""

from __future__ import annotations

from collections.abc import Sequence


def quantiles(values: Sequence[float], shares: Sequence[float]) -> list[float]:
    """For each share (0 to 1) the value below which that part of `values` (at least one) lies; between two of them in
    proportion, as `numpy.quantile`.
    """
    found = sorted(values)
    told: list[float] = []
    for share in shares:
        place = share * (len(found) - 1)
        below = int(place)
        above = min(below + 1, len(found) - 1)
        told.append(float(found[below] + (found[above] - found[below]) * (place - below)))
    return told
