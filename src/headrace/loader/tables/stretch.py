"""A stretch of rows on their way to batches, and batches out of stretches: columns at a time, never row by row."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast, overload

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Column, Table, pa
from headrace.catalog import key_of
from headrace.formats import Values, join


class Stretch(NamedTuple):
    """Rows of an epoch, one after the other.

    `values`: the table's columns, None where batches are to be tables. `local`: the rows' places in the stripe.
    `numbers`: their numbers in their files; `files`: the files' names, `of`: which of them, None where there is one.
    `dropped`: rows that did not match, before each row within the stretch, and at the end; None: none. `own`: the rows'
    own keys, as bytes, None where none are read.
    """

    table: Table
    values: dict[str, Values] | None
    local: npt.NDArray[np.int64] | range
    numbers: npt.NDArray[np.int64] | range
    files: tuple[str, ...]
    of: npt.NDArray[np.int64] | None
    dropped: npt.NDArray[np.int64] | None
    own: Column | None = None

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.local)


class Cut(NamedTuple):
    """Rows [start, stop) of a stretch."""

    stretch: Stretch
    start: int
    stop: int


def batch_of(cuts: Sequence[Cut]) -> Any:
    """The batch: a table, or a dict as `headrace.formats.columns.stacking.collate` makes it of rows."""
    first = cuts[0].stretch
    if first.values is None:
        tables = [stretch.table.slice(start, stop - start) for stretch, start, stop in cuts]
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    batch: dict[str, Any] = {"__key__": Keys(cuts)}
    for name in first.values:
        batch[name] = join([(cast("dict[str, Values]", one.values)[name], start, stop) for one, start, stop in cuts])
    batch["__shard__"] = Files(cuts)
    return batch


@dataclass(frozen=True)
class _Slice:
    """Of a cut, what names its rows."""

    numbers: npt.NDArray[np.int64] | range
    files: tuple[str, ...]
    of: npt.NDArray[np.int64] | None
    own: Column | None


class _Names(Sequence[str]):
    """A list of strings that are made when asked for: one for every row would cost more than the rows."""

    def __init__(self, cuts: Sequence[Cut]) -> None:
        self._slices = [
            _Slice(
                one.numbers[start:stop],
                one.files,
                None if one.of is None else one.of[start:stop],
                None if one.own is None else one.own.slice(start, stop - start),
            )
            for one, start, stop in cuts
        ]

    @abstractmethod
    def _all(self) -> Iterator[str]:
        """All of them, one after the other."""

    def _list(self) -> list[str]:
        return list(self._all())

    def __len__(self) -> int:
        return sum(len(one.numbers) for one in self._slices)

    def __iter__(self) -> Iterator[str]:
        return self._all()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._list()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._list() == list(cast("Sequence[Any]", other))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self._list(), dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._list(),)

    def __repr__(self) -> str:
        return repr(self._list())


class Keys(_Names):
    """``__key__`` of a batch."""

    def _all(self) -> Iterator[str]:
        for one in self._slices:
            numbers = (f"{number:08d}" for number in _plain(one.numbers))
            yield from numbers if one.own is None else map(key_of, one.own.to_pylist(), numbers)


class Files(_Names):
    """``__shard__`` of a batch."""

    def _all(self) -> Iterator[str]:
        for one in self._slices:
            for number in [0] * len(one.numbers) if one.of is None else one.of.tolist():
                yield one.files[number]


def _plain(numbers: npt.NDArray[np.int64] | range) -> Sequence[int]:
    return numbers if isinstance(numbers, range) else numbers.tolist()
