"""Python's own parser, asked from many threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

_TRIES = 8
"""Each race that is lost was won by another thread: so many in a row do not happen."""
_T = TypeVar("_T")


def steadily(parse: Callable[[], _T]) -> _T:
    """What `parse` gives, which uses `ast`: again where another thread that did so came between.

    The interpreter counts the depth of a syntax tree in one place for all threads (CPython 3.11 and others, gh-106905),
    and says SystemError to whoever is counted wrong: seen where threads decode `.npy` files, whose headers are read so.
    Raises whatever `parse` does.
    """
    for _ in range(_TRIES):
        try:
            return parse()
        except SystemError:
            continue
    return parse()
