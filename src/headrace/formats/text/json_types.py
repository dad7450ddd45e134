"""The types of columns of JSON lines: found in the beginning of every file, widened over all, and held to.

What a column holds is looked up in the first `LOOKED_AT` bytes of each file, while it is indexed. Whole numbers and
others make floats; numbers and truth values of which none is missing are arrays in a batch, floats also where some are
(NaN); objects that all have the same names are dicts of such columns; anything else, and what is mixed, is a list. A
later row that does not fit is an error which says what to give, `columns={"x": "float64"}`. See
``design/022-json-types.md``.

Why not all of a file: looking for the types of every value would make indexing several times slower.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from headrace.base.errors import CorruptError, InputError
from headrace.catalog import RESERVED_FIELDS
from headrace.formats.columns.typed_columns import LIST, Form, Forms

LOOKED_AT = 256 << 10  # bytes
_MOST = 1024
"""Columns; those beyond are lists."""
_DEEPEST = 8  # objects inside objects whose fields have types; what is deeper is taken as it is
_INT64_END = 1 << 63  # from here on a number is none


class Kind(NamedTuple):
    """What a column has held. `name`: ``bool``, ``int64``, ``float64``, ``dict``, ``null``, or ``list`` for all else.
    `gaps`: whether it was null, or missing. `fields`: of a dict.
    """

    name: str
    gaps: bool = False
    fields: Mapping[str, Kind] = {}


class _Never:
    """No value is one of these."""


Kinds = Mapping[str, Kind]
_NULL = Kind("null", gaps=True)


def kinds_in(rows: Iterable[Any]) -> Kinds | None:
    """The columns of some rows, None where there are none; what is no dict is the column ``data``."""
    return widened(
        _fields(cast("dict[str, Any]", row) if isinstance(row, dict) else {"data": row}, 0) for row in rows
    )


def widened(all_kinds: Iterable[Kinds | None]) -> Kinds | None:
    """The columns of several rows, or files, together; one of which nothing was seen counts for nothing."""
    found: Kinds | None = None
    for kinds in all_kinds:
        if kinds is not None:
            found = kinds if found is None else _rows_both(found, kinds)
    return found


def dump(kinds: Kinds | None) -> bytes:
    """As JSON; nothing of None."""
    return b"" if kinds is None else json.dumps(_plain(kinds), separators=(",", ":")).encode()


def load(data: bytes) -> Kinds | None:
    """What `dump` made."""
    return _read(json.loads(data)) if data else None


def forms_of(kinds: Kinds) -> dict[str, Form]:
    """What columns are in batches."""
    return {name: _form(kind) for name, kind in kinds.items() if name not in RESERVED_FIELDS}


def given(types: Mapping[str, str]) -> dict[str, Form]:
    """The types that the user gave.

    Raises:
        InputError: one is none.
    """
    return {name: _given(name, kind) for name, kind in types.items()}


class Check(NamedTuple):
    """A column whose values have to be of one type. `plain`: that of Python whose values need no closer look."""

    name: str
    plain: type
    form: Form


def checks_of(forms: Forms) -> tuple[Check, ...]:
    """What `fitted` has to look at."""
    plain = {"float64": float, "bool": bool, "int64": int}
    return tuple(
        Check(name, plain.get(form, _Never) if isinstance(form, str) else _Never, form)
        for name, form in forms.items()
        if form != LIST
    )


def fitted(row: dict[str, Any], checks: Sequence[Check]) -> dict[str, Any]:
    """A row with its numbers as their columns have them.

    Raises:
        CorruptError: a value does not fit its column's type.
    """
    for name, plain, form in checks:
        value: Any = row.get(name)
        if type(value) is plain and (plain is not int or -_INT64_END <= value < _INT64_END):
            continue
        if value is None and name in row and _is_float(form):
            row[name] = _number(form, np.nan)
        elif value is None and not _is_float(form):
            raise _misfit(name, form, "null" if name in row else "missing", "object")
        elif value is not None:
            row[name] = _fitted(name, form, value)
    return row


def _fitted(name: str, form: Form, value: Any) -> Any:
    if not isinstance(form, str):
        if not isinstance(value, dict):
            raise _misfit(name, form, repr(value), "object")
        try:
            return fitted(cast("dict[str, Any]", value), checks_of(form))
        except CorruptError as error:
            raise CorruptError(f"in column {name!r}: {error.reason}", hint=_hint(name, "object")) from None
    dtype = np.dtype(form)
    kind = type(value)
    if dtype.kind == "b":
        if kind is bool:
            return value
        raise _misfit(name, form, repr(value), "object")
    if dtype.kind == "f" and kind in (int, float):
        try:
            return _number(form, float(value))
        except OverflowError:
            raise _misfit(name, form, repr(value), "object") from None
    if kind is int or (kind is float and value.is_integer()):
        limits = np.iinfo(dtype) if dtype.kind in "iu" else None
        if limits is not None and limits.min <= value <= limits.max:
            return _number(form, int(value))
    raise _misfit(name, form, repr(value), "float64" if kind is float else "object")


def _number(form: Form, value: Any) -> Any:
    """Python's own where that says as much."""
    return value if form in ("int64", "float64", "bool") else np.dtype(cast("str", form)).type(value)


def _misfit(name: str, form: Form, what: str, fits: str) -> CorruptError:
    told = form if isinstance(form, str) else "an object"
    return CorruptError(f"column {name!r} is {told}, and {what[:60]} here", hint=_hint(name, fits))


def _hint(name: str, fits: str) -> str:
    return f'give the type that fits all rows: columns={{{json.dumps(name)}: "{fits}"}}'


def _is_float(form: Form) -> bool:
    return isinstance(form, str) and np.dtype(form).kind == "f"


def _given(name: str, kind: Any) -> Form:
    if kind == "object":
        return LIST
    try:
        dtype = np.dtype(kind)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise InputError(
            f"columns: {name!r} cannot be {kind!r}", hint='"int64", "float64", "bool" and the like; "object" for a list'
        )
    return dtype.name


def _form(kind: Kind) -> Form:
    if kind.name == "float64":
        return kind.name
    if kind.gaps or kind.name in ("null", LIST):
        return LIST
    return {name: _form(one) for name, one in kind.fields.items()} if kind.name == "dict" else kind.name


def _kind(value: Any, depth: int) -> Kind:
    if value is None:
        return _NULL
    if value is True or value is False:
        return Kind("bool")
    if isinstance(value, int):
        return Kind("int64" if -_INT64_END <= value < _INT64_END else LIST)
    if isinstance(value, float):
        return Kind("float64")
    if isinstance(value, dict) and depth < _DEEPEST:
        return Kind("dict", fields=_fields(cast("dict[str, Any]", value), depth + 1))
    return Kind(LIST)


def _fields(row: Mapping[str, Any], depth: int) -> dict[str, Kind]:
    return {name: _kind(value, depth) for name, value in row.items()}


def _rows_both(one: Kinds, other: Kinds) -> dict[str, Kind]:
    """The columns of rows of both kinds: what one of them lacks has gaps."""
    found = dict(one)
    for name, kind in other.items():
        if name in found:
            found[name] = _both(found[name], kind)
        elif len(found) < _MOST:
            found[name] = kind._replace(gaps=True)
    for name in one:
        if name not in other and not found[name].gaps:
            found[name] = found[name]._replace(gaps=True)
    return found


def _both(one: Kind, other: Kind) -> Kind:
    gaps = one.gaps or other.gaps
    if one.name == "null" or other.name == "null":
        kept = one if other.name == "null" else other
        return kept._replace(gaps=True)
    if one.name == other.name:
        if one.name != "dict":
            return one if one.gaps == gaps else one._replace(gaps=gaps)
        if one.fields.keys() != other.fields.keys():
            return Kind(LIST, gaps)
        return Kind("dict", gaps, {name: _both(kind, other.fields[name]) for name, kind in one.fields.items()})
    return Kind("float64" if {one.name, other.name} == {"int64", "float64"} else LIST, gaps)


def _plain(kinds: Kinds) -> dict[str, Any]:
    return {name: [kind.name, kind.gaps, _plain(kind.fields)] for name, kind in kinds.items()}


def _read(plain: Mapping[str, Any]) -> dict[str, Kind]:
    return {name: Kind(str(kind), bool(gaps), _read(fields)) for name, (kind, gaps, fields) in plain.items()}
