"""How records lie that are like one seen before: what formats tell `headrace.dataset.scatter` of theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

LEAST = 64 << 10
"""Bytes of an array from which on the copy costs more than putting it in its place does."""


class Array(NamedTuple):
    """One array of a record, at bytes [start, stop) of it."""

    name: str
    start: int
    stop: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Value(NamedTuple):
    """Another value of it, and what makes it of its bytes."""

    name: str
    start: int
    stop: int
    decode: Callable[[memoryview], Any]


class Layout(NamedTuple):
    """How records lie that are like one seen before. `size`: bytes of each; `parts`: in the order of the sample's
    names, which is that of their bytes; all other bytes say what these are.
    """

    size: int
    parts: tuple[Array | Value, ...]


@runtime_checkable
class IsArray(Protocol):
    """Decodes a value that is one array, behind bytes that say so or none."""

    def place(self, data: memoryview) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
        """Where its numbers begin, of which type they are, and of what shape. Raises as decoding it does."""
        ...


def laid_out(record: memoryview, parts: Sequence[tuple[str, Callable[[memoryview], Any], int, int]]) -> Layout | None:
    """The layout of a record of these parts: name, decoder, start, stop. None where large arrays are not most of it."""
    found: list[Array | Value] = []
    for name, decode, start, stop in parts:
        if stop - start >= LEAST and isinstance(decode, IsArray):
            head, dtype, shape = decode.place(record[start:stop])
            found.append(Array(name, start + head, stop, dtype, shape))
        else:
            found.append(Value(name, start, stop, decode))
    held = sum(one.stop - one.start for one in found if isinstance(one, Array))
    return Layout(len(record), tuple(found)) if 2 * held > len(record) else None


@runtime_checkable
class HasLayout(Protocol):
    """A stage that can tell of one record how others like it lie. Any thread."""

    def layout(self, record: memoryview) -> Layout | None:
        """None: it has no large arrays, or their places do not follow from the bytes around them. May raise what it
        raises for a bad record.
        """
        ...
