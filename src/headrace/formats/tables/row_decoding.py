"""Row by row: what `Dataset.open` puts before the user's stages. A row group is decoded once for all of its rows."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.catalog import KEY, GivesKeys, key_of
from headrace.formats.columns.stacking import own_arrays
from headrace.formats.tables.arrow_values import Values, names_in, values_of
from headrace.formats.tables.row_group import RowGroup

GROUP, ROW = "__group__", "__row__"
"""Names of what a sample brings beside its bytes: the `RowGroup`, and the row's place in it."""
_KEEP = 256 << 20  # bytes of decoded row groups kept for the rest of their rows


class Ready:
    """A decoded row group, by columns."""

    def __init__(self, group: RowGroup, pieces: list[Any]) -> None:
        decoded = group.decode(pieces)
        self.kept = None
        if decoded.kept is not None:
            self.kept = np.zeros(group.rows, np.bool_)
            self.kept[decoded.kept] = True
        try:
            self.columns: dict[str, Values] = {
                name: values_of(column)
                for name, column in zip(decoded.table.column_names, decoded.table.columns, strict=True)
                if name != KEY
            }
            own = KEY in decoded.table.column_names
            self.names: list[Any] | None = names_in(decoded.table[KEY]).to_pylist() if own else None
            """The rows' own keys, as bytes."""
        except HeadraceError as error:
            raise error.at(group.url) from None
        self.bytes = int(decoded.table.nbytes)

    def key(self, row: int, number: str) -> str:
        """A row's key; `number`: where it has none of its own."""
        return number if self.names is None else key_of(self.names[row], number)


class Decoder:
    """Decoded row groups, those used last, up to `keep` bytes and always one. Any thread; one decodes, others wait."""

    def __init__(self, keep: int = _KEEP) -> None:
        self._keep = keep
        self._lock = threading.Lock()
        self._ready: OrderedDict[Any, Ready] = OrderedDict()
        self._turns: dict[Any, threading.Lock] = {}
        self._held = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return Decoder, (self._keep,)

    def get(self, group: RowGroup, pieces: list[Any]) -> Ready:
        """The group, of these bytes where it is not kept.

        Raises:
            CorruptError: they are damaged.
        """
        key = group.key
        with self._lock:
            ready = self._found(key)
            turn = None if ready is not None else self._turns.setdefault(key, threading.Lock())
        if ready is not None or turn is None:
            return cast("Ready", ready)
        with turn:
            with self._lock:
                ready = self._found(key)
            if ready is None:
                try:
                    ready = Ready(group, pieces)
                finally:
                    with self._lock:
                        self._turns.pop(key, None)
                self._put(key, ready)
        return ready

    def _found(self, key: Any) -> Ready | None:
        ready = self._ready.get(key)
        if ready is not None:
            self._ready.move_to_end(key)
        return ready

    def _put(self, key: Any, ready: Ready) -> None:
        with self._lock:
            if key in self._ready:
                return
            self._ready[key] = ready
            self._held += ready.bytes
            while self._held > self._keep and len(self._ready) > 1:
                _, old = self._ready.popitem(last=False)
                self._held -= old.bytes


class _Stage:
    """A stage of ours is like any other of its kind: what it works on comes with the sample."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


class Matches(_Stage):
    """A filter: whether the row is one that ``where`` asks for. Of a window: whether all of its rows are."""

    def __call__(self, sample: Mapping[str, Any]) -> bool:
        return all(ready.kept is None or bool(ready.kept[row]) for ready, row in _rows(self._decoder, sample))


class TableRows(_Stage, GivesKeys):
    """A map: bytes to the row's values. Of a window: to lists of them. `own`: whether rows' own keys are read."""

    def __init__(self, decoder: Decoder, *, own: bool) -> None:
        super().__init__(decoder)
        self._own = own

    def may_name(self) -> bool:
        """See `GivesKeys.may_name`."""
        return self._own

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """``__key__``, the columns, ``__shard__``. Raises CorruptError."""
        rows = _rows(self._decoder, sample)
        first, at = rows[0]
        found: dict[str, Any] = {KEY: first.key(at, sample[KEY])}
        if isinstance(sample[GROUP], list):
            for name in first.columns:
                found[name] = [own_arrays(ready.columns[name].at(row)) for ready, row in rows]
        else:
            for name, values in first.columns.items():
                found[name] = own_arrays(values.at(at))  # the row group is kept, and the row is the user's
        found["__shard__"] = sample["__shard__"]
        return found


def _rows(decoder: Decoder, sample: Mapping[str, Any]) -> list[tuple[Ready, int]]:
    group = sample[GROUP]
    if not isinstance(group, list):
        one: RowGroup = group
        return [(decoder.get(one, [sample[part.name] for part in one.parts]), sample[ROW])]
    groups = cast("list[RowGroup]", group)
    return [
        (decoder.get(one, [sample[part.name][at] for part in one.parts]), sample[ROW][at])
        for at, one in enumerate(groups)
    ]
