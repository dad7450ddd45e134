"""Fields of a spec: each says what it takes, in what unit, what it means, and how a flag's text is read.

All of that is metadata of the dataclass field, from which the reader, the flags and the reference page follow::

    parse    value as the file holds it → value as the spec holds it; takes its own result too
    flag     text of a flag → value as the file would hold it
    kind     what it takes, in words;  unit: of the parsed value;  doc: what it means
    default  as the file would say it
    section  the dataclass of a table with known keys;  each: that of a table's values;  names: a table of texts
    items    the dataclass of a list's tables
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar, cast

from headrace.base.units import parse_bytes, parse_seconds
from headrace.jobs import spec_values as values
from headrace.jobs.spec_errors import FieldError
from headrace.jobs.spec_values import Check

Parse = Callable[[object], object]
_T = TypeVar("_T")


def declare(
    parse: Parse, doc: str, default: object, kind: str, *, flag: Callable[[str], object] = str, **more: object
) -> Any:
    """A field of any kind. `default`: None where it may be left out. `more`: further metadata; `start`: the value that
    the default stands for, where it is another.
    """
    start = more.pop("start", default)
    told = {"parse": partial(_optional, parse) if default is None else parse, "flag": flag, "kind": kind, "doc": doc}
    metadata = {**told, "unit": "", "default": default, **more}
    return field(default_factory=dict, metadata=metadata) if default == {} else field(default=start, metadata=metadata)


def text(doc: str, *, default: str | None = None, check: Check | None = None, kind: str = "text") -> Any:
    """Text; without a default it may be left out. `check` raises FieldError."""
    return declare(partial(values.a_text, check=check), doc, default, kind)


def duration(doc: str, *, default: str | None, positive: bool = False) -> Any:
    """Seconds, finite."""
    parse = partial(values.seconds, positive=positive)
    start = None if default is None else parse_seconds(default)
    return declare(parse, doc, default, "duration", unit="seconds", start=start)


def size(doc: str, *, default: str) -> Any:
    """Bytes."""
    return declare(values.size, doc, default, "size", unit="bytes", start=parse_bytes(default))


def count(doc: str, *, default: int, least: int = 0) -> Any:
    """A whole number."""
    parse = partial(values.whole, least=least)
    return declare(parse, doc, default, "whole number", unit="count", flag=values.whole_text)


def truth(doc: str, *, default: bool) -> Any:
    """True or false."""
    return declare(values.truth, doc, default, "true or false", flag=values.truth_text)


def texts(doc: str, *, default: tuple[str, ...] = (), check: Check | None = None) -> Any:
    """A list of texts."""
    parse = partial(values.each, parse=partial(values.a_text, check=check))
    return declare(parse, doc, default, "list of texts", flag=values.listed)


def numbers(doc: str, *, least: int, most: int) -> Any:
    """A list of whole numbers, empty by default."""
    parse = partial(values.each, parse=partial(values.whole, least=least, most=most))
    return declare(parse, doc, (), "list of whole numbers", flag=partial(values.listed, item=values.whole_text))


def names(doc: str, *, check: Check, absent: bool = False) -> Any:
    """A table of texts by name, which is checked. `absent`: a value may be None, for one that is not known."""
    parse = partial(_optional, values.a_text) if absent else values.a_text
    told = _told(partial(values.named, check=check, parse=parse), doc, "table of texts")
    return field(default_factory=dict, metadata={**told, "names": True})


def section(kind: type[Any], doc: str) -> dict[str, Any]:
    """The metadata of a table with known keys: a dataclass of its own."""
    return {**_told(partial(read, kind), doc, "table"), "section": kind}


def some_texts(doc: str) -> Any:
    """A list of texts, or none, which is not the same as an empty one."""
    return declare(partial(values.each, parse=values.a_text), doc, None, "list of texts", flag=values.listed)


def items(kind: type[Any], doc: str) -> Any:
    """Tables in a list, as ``[[key]]`` writes them."""
    parse = partial(values.each, parse=partial(read, kind))
    return field(default=(), metadata={**_told(parse, doc, "list of tables"), "items": kind})


def part(kind: type[Any], doc: str) -> dict[str, Any]:
    """The metadata of a table with known keys that may be left out."""
    return _told(partial(_optional, partial(read, kind)), doc, "table")


def many(kind: type[Any], short: str, doc: str, *, check: Check) -> Any:
    """Tables by name, which is checked; a text stands for a table with that one under the key `short`."""
    parse = partial(values.named, check=check, parse=partial(_short, kind, short))
    told = _told(parse, doc, "table of texts or tables")
    return field(default_factory=dict, metadata={**told, "each": kind, "short": short})


def key_of(one: Field[Any]) -> str:
    """The key of a field in the file: ``as_`` is written ``as``."""
    return one.name.rstrip("_")


def keyed(kind: Any) -> dict[str, Field[Any]]:
    """The fields of a dataclass by their keys, in order."""
    return {key_of(one): one for one in fields(kind)}


def settle(spec: object) -> None:
    """Read every field of a new spec as its declaration says, in place. Raises FieldError."""
    for key, one in keyed(spec).items():
        parse: Parse = one.metadata["parse"]
        value = getattr(spec, one.name)
        object.__setattr__(spec, one.name, values.at(lambda parse=parse, value=value: parse(value), key))


def read(kind: type[_T], table: object) -> _T:
    """A spec's dataclass from a table as the file holds it; its instances are taken as they are. Raises FieldError."""
    if isinstance(table, kind):
        return table
    known = keyed(kind)
    told = values.a_table(table)
    for key in told:
        if key not in known:
            raise unknown(key, known)
    return kind(**{known[key].name: value for key, value in told.items()})


def plain(value: object) -> Any:
    """A spec, or a part of one, as a file would hold it: tables, lists, texts, numbers."""
    if is_dataclass(value):
        return {key: plain(getattr(value, one.name)) for key, one in keyed(value).items()}
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in cast("Mapping[str, object]", value).items()}
    return [plain(one) for one in cast("tuple[object, ...]", value)] if isinstance(value, tuple) else value


def told(value: object, usual: object) -> dict[str, Any]:
    """As `plain`, without what is as in `usual`, of the same kind, or is not given."""
    found: dict[str, Any] = {}
    for key, one in keyed(value).items():
        here, there = getattr(value, one.name), getattr(usual, one.name)
        if here != there:
            found[key] = told(here, there) if "section" in one.metadata else _given(plain(here))
    return found


def _given(value: Any) -> Any:
    """Without what is None, in tables of tables too: a file has no word for it."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: _given(one) for key, one in table.items() if one is not None}
    return [_given(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


def unknown(key: str, known: Mapping[str, Field[Any]]) -> FieldError:
    """No field has that key."""
    tables = {name: one.metadata["section"] for name, one in known.items() if "section" in one.metadata}
    near = [f"{name}.{key}" for name, kind in tables.items() if key in keyed(kind)]
    near += difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
    return FieldError("is not a known key", key, hint=hint)


def _told(parse: Parse, doc: str, kind: str) -> dict[str, Any]:
    return {"parse": parse, "flag": str, "kind": kind, "unit": "", "default": {}, "doc": doc}


def _optional(parse: Parse, value: object) -> object:
    return None if value is None else parse(value)


def _short(kind: type[_T], short: str, value: object) -> _T:
    if isinstance(value, str):
        listed = keyed(kind)[short].metadata["kind"] == "list of texts"
        return read(kind, {short: [value] if listed else value})
    return read(kind, value)
