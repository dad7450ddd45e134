"""Ranges cut into parts that are requested side by side."""

from __future__ import annotations

from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""Bytes [start, stop) of an object."""


def cut(start: int, stop: int, part: int, *, aligned: bool = False) -> list[Span]:
    """Bytes [start, stop) in order, at most `part` bytes each; none where the range is empty. Any thread.

    `aligned`: parts end at multiples of `part`, as the blocks of a cache entry do, so none lies in two blocks.
    """
    spans: list[Span] = []
    while start < stop:
        end = min(stop, start - start % part + part if aligned else start + part)
        spans.append((start, end))
        start = end
    return spans
