"""A lot's rows out of decoded row groups: those that match, in the lot's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.base.arrow import from_numbers, pa
from headrace.catalog import KEY
from headrace.formats import DecodedRows, RowGroup, names_in, values_of
from headrace.loader.tables.lots import Lot, RowTake
from headrace.loader.tables.stretch import Stretch


class Taken(NamedTuple):
    """What one row group gives to a lot: a table, the numbers of its rows in the group, and their places in the lot,
    None for all in order.
    """

    table: Any
    rows: Any
    places: Any


def taken(take: RowTake, decoded: DecodedRows) -> Taken:
    """The rows of `take` that are in its decoded row group."""
    rows, places = take.rows, take.places
    if decoded.kept is not None:
        flags = np.zeros(decoded.table.num_rows, np.bool_)
        flags[decoded.kept] = True
        match = flags[rows.start : rows.stop] if isinstance(rows, range) else flags[rows]
        if not match.all():
            places = np.flatnonzero(match) if places is None else places[match]
            rows = np.asarray(rows)[match]
            return Taken(decoded.table.take(from_numbers(rows)), rows, places)
    if take.run:
        return Taken(decoded.table.slice(int(rows[0]), len(rows)), rows, places)
    return Taken(decoded.table.take(from_numbers(np.asarray(rows))), rows, places)


def put_together(lot: Lot, groups: Sequence[RowGroup], parts: Sequence[Taken], *, arrow: bool) -> Stretch:
    """What all row groups of a lot gave; `arrow`: as a table, its values are not looked at."""
    of = None
    if len(parts) == 1:
        table, rows, kept = parts[0]
        numbers = _beyond(rows, groups[0].first)
        files: tuple[str, ...] = (groups[0].name,)
    else:
        places = np.concatenate([places for _, _, places in parts])
        order = np.argsort(places, kind="stable")
        table = pa.concat_tables([one for one, _, _ in parts]).combine_chunks().take(from_numbers(order))
        names = dict.fromkeys(group.name for group in groups)
        which = {name: number for number, name in enumerate(names)}
        numbers = np.concatenate(
            [_beyond(rows, group.first) for (_, rows, _), group in zip(parts, groups, strict=True)]
        )[order]
        of = np.repeat([which[group.name] for group in groups], [len(rows) for _, rows, _ in parts]).astype(np.int64)[
            order
        ]
        files = tuple(names)
        kept = places[order]
    local, dropped = lot.local, None
    if kept is not None and len(kept) < len(lot.local):
        local = np.asarray(lot.local)[kept]
        dropped = np.append(kept - np.arange(len(kept)), len(lot.local) - len(kept))
    values = own = None
    if not arrow:
        own = names_in(table[KEY]) if KEY in table.column_names else None
        named = zip(table.column_names, table.columns, strict=True)
        values = {name: values_of(column) for name, column in named if name != KEY}
    return Stretch(table, values, local, numbers, files, of, dropped, own)


def _beyond(rows: Any, first: int) -> Any:
    """Numbers of a file's rows, of those of a row group."""
    return range(rows.start + first, rows.stop + first) if isinstance(rows, range) else rows + first
