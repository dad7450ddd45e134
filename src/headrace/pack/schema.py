"""The columns of a packing: names and types, as ``--columns`` and ``--schema`` give them.

``f32[39], i64`` or ``label:i64, features:f32[39], note:str?``: a type, perhaps the length of a vector (``[]``: any
length), perhaps ``?`` where a value may be missing, perhaps a name in front. A schema file says the same as a table
``columns`` of name and type, in TOML or JSON; order counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from headrace.base.arrow import pa
from headrace.base.errors import InputError, NotFoundError

KINDS: dict[str, Any] = {
    "f16": pa.float16(), "f32": pa.float32(), "f64": pa.float64(),
    "i8": pa.int8(), "i16": pa.int16(), "i32": pa.int32(), "i64": pa.int64(),
    "u8": pa.uint8(), "u16": pa.uint16(), "u32": pa.uint32(), "u64": pa.uint64(),
    "bool": pa.bool_(), "str": pa.large_string(), "bytes": pa.large_binary(),
}  # fmt: skip
_DTYPES = {name: np.dtype(name[0] + str(int(name[1:]) // 8)) for name in KINDS if name[0] in "fiu"}
_DTYPES["bool"] = np.dtype(np.bool_)
_ONE = re.compile(r"(?:(?P<name>[^\s:,\[\]]+)\s*:\s*)?(?P<kind>[a-z]+\d*)\s*(?P<vector>\[\s*\d*\s*\])?\s*(?P<null>\??)")
KEY = "__key__"
_MOST_WIDTH = 1 << 24  # numbers of a vector: more is a mistake
_MOST_FIELDS = 10_000  # columns: more are one vector
_MOST_FILE = 1 << 20  # bytes of a schema file that are read
_SYNTAX = '"f32[39], i64", or "label:i64, features:f32[39], note:str?"'


@dataclass(frozen=True, slots=True)
class Field:
    """One column. `width`: None: one value; 0: a list of any length; n: a vector of n."""

    name: str
    kind: str
    width: int | None = None
    nullable: bool = False
    named: bool = True
    """Whether the user gave the name."""

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Of numbers; None for str and bytes."""
        return _DTYPES.get(self.kind)

    @property
    def arrow(self) -> Any:
        """Its type in Arrow."""
        item = KINDS[self.kind]
        if self.width is None:
            return item
        inner = pa.field("item", item, nullable=False)
        return pa.large_list(inner) if self.width == 0 else pa.list_(inner, self.width)

    @property
    def type(self) -> str:
        """The type as it is written: ``f32[39]``."""
        vector = "" if self.width is None else f"[{self.width or ''}]"
        return f"{self.kind}{vector}{'?' if self.nullable else ''}"

    def __str__(self) -> str:
        return f"{self.name}:{self.type}" if self.named else self.type


KEY_COLUMN = Field(KEY, "str")


@dataclass(frozen=True, slots=True)
class Schema:
    """Columns in their order. Immutable."""

    fields: tuple[Field, ...]
    inferred: bool = False
    """Whether they are those of the first samples: then a sample with other parts is a bad one."""

    def keyed(self) -> Schema:
        """With a column for each sample's key in front."""
        return replace(self, fields=(KEY_COLUMN, *self.fields))

    @property
    def arrow(self) -> Any:
        """As Arrow's schema."""
        return pa.schema([pa.field(one.name, one.arrow, nullable=one.nullable) for one in self.fields])

    @property
    def cells(self) -> int | None:
        """Cells of a row of text; None where a list may have any length."""
        widths = [1 if one.width is None else one.width for one in self.fields]
        return None if 0 in widths else sum(widths)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))

    @staticmethod
    def parse(text: str) -> Schema:
        """From ``--columns``; columns without a name are ``c0``, ``c1`` … by their place.

        Raises:
            InputError: with the column that makes no sense.
        """
        pieces = [piece.strip() for piece in text.split(",")]
        if len(pieces) > _MOST_FIELDS:
            raise InputError(f"{len(pieces)} columns", hint="numbers of one type are one vector: f32[39]")
        return _checked([_field(piece, place) for place, piece in enumerate(pieces)])

    @staticmethod
    def read(data: bytes, name: str) -> Schema:
        """From a schema file called `name`: ``.json``, else TOML.

        Raises:
            InputError: it is none.
        """
        hint = '[columns] in TOML, {"columns": {…}} in JSON, with lines such as label = "i64"'
        try:
            if name.lower().endswith(".json"):
                found: Any = json.loads(data)
            else:
                import tomllib

                found = tomllib.loads(data.decode())
            columns = found["columns"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"is no schema: {type(error).__name__}: {error}", path=name, hint=hint) from error
        if not isinstance(columns, Mapping) or not columns:
            raise InputError("has no table of columns", path=name, hint=hint)
        fields = [_field(f"{title}:{kind}", place) for place, (title, kind) in enumerate(cast("Any", columns).items())]
        return _checked(fields)


def read_schema(path: str) -> Schema:
    """From a schema file on this machine.

    Raises:
        NotFoundError, InputError.
    """
    try:
        with open(path, "rb") as file:
            return Schema.read(file.read(_MOST_FILE), path)
    except FileNotFoundError:
        raise NotFoundError("no such file", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from error


def _field(text: str, place: int) -> Field:
    match = _ONE.fullmatch(text)
    kind = match["kind"] if match else ""
    if match is None or kind not in KINDS:
        raise InputError(f"column {place + 1}, {text[:60]!r}, is none", hint=f"{_SYNTAX}; types: {', '.join(KINDS)}")
    width = int(match["vector"].strip("[] ") or 0) if match["vector"] else None
    if width is not None and (kind in ("str", "bytes") or width > _MOST_WIDTH or match["vector"].strip("[] ") == "0"):
        raise InputError(f"column {place + 1}, {text[:60]!r}, is no vector", hint="vectors are of numbers: f32[39]")
    name = match["name"]
    if name is not None and name.startswith("__"):
        raise InputError(f"column {place + 1}, {text[:60]!r}: names with __ are headrace's own", hint=_SYNTAX)
    return Field(name or f"c{place}", kind, width, bool(match["null"]), name is not None)


def _checked(fields: list[Field]) -> Schema:
    names = [one.name for one in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two columns are called {twice!r}", hint=_SYNTAX)
    return Schema(tuple(fields))
