"""What is shown of a file: the same for every kind, so that one template draws them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from headrace.web.previews.source import Source

NAMES: Final = 200
"""Members, arrays, tensors or columns that are named."""
_CELL: Final = 200  # characters
_DIGITS: Final = 1 << 200
"""Whole numbers from here on are not written out."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that is known of the file."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Heading:
    """Of a column. `type`: of its values, where that is known."""

    name: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """`kind`: what the file is; `notes`: what of it is shown, and why no more; `picture`: whether there is a small one;
    `sound`: whether it can be played.

    `columns`, `rows`: a table; `text`: lines. Any of them may be empty.
    """

    kind: str
    facts: tuple[Fact, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[Heading, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    text: str = ""
    picture: bool = False
    sound: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A preview, and its picture: JPEG that was made here, or nothing."""

    preview: Preview
    picture: bytes = b""


@dataclass(frozen=True, slots=True)
class Kind:
    """Files of one kind.

    `suffixes`: with the dot, lower case; `magic`: bytes that such a file has, each with its place. `make`: raises
    HeadraceError where it is none, or more would have to be read than may be.
    """

    name: str
    suffixes: tuple[str, ...]
    magic: tuple[tuple[int, bytes], ...]
    make: Callable[[Source], Made]

    def fits(self, head: bytes) -> bool:
        """Whether a file that begins so looks like one."""
        return any(head[at : at + len(text)] == text for at, text in self.magic)


def cell(value: Any) -> str:
    """A value as it stands in a table: short, whatever it is."""
    if value is None:
        return "–"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value):,} bytes"
    if isinstance(value, int) and abs(value) >= _DIGITS:
        return f"a number of {value.bit_length():,} bits"
    return cut(str(value), _CELL)


def cut(text: str, most: int) -> str:
    """Said by an ellipsis where it is longer."""
    return text if len(text) <= most else f"{text[:most]}…"


def facts(**values: object) -> tuple[Fact, ...]:
    """Names with spaces for underscores; counts with commas; what is None is left out."""
    return tuple(
        Fact(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else cell(value))
        for name, value in values.items()
        if value is not None
    )


def some_of(count: int, total: int, what: str) -> tuple[str, ...]:
    """What to say where not all are shown."""
    return (f"The first {count:,} of {total:,} {what}.",) if count < total else ()


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> dict[str, Any]:
    """Of `Preview`."""
    told = tuple(tuple(map(cell, row)) for row in rows)
    return {"columns": tuple(map(Heading, columns)), "rows": told} if told else {}
