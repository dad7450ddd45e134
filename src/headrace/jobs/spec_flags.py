"""Flags over a spec: ``retry.attempts=3``, by the names of the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.jobs.spec_errors import FieldError
from headrace.jobs.spec_fields import keyed, plain, read, unknown
from headrace.jobs.spec_values import at

_T = TypeVar("_T")


def override(spec: _T, values: Mapping[str, object]) -> _T:
    """A spec with some of its values replaced: what ``headrace run --set NAME=VALUE`` does.

    Names are dotted as in the file: ``retry.attempts``, ``inputs.train``, ``inputs.train.as``, ``tags.team``,
    ``environment.variables.OMP_NUM_THREADS``. A text is read for its field: ``"3"``, ``"2h"``, ``"true"``. For a list
    it is one item, or a list as TOML writes one (``["a", "b"]``); for `command` the shell's line, or such a list. An
    empty text gives the field its default again, takes an input away, and is a value like others for tags and
    variables. Values that are not text are taken as the file would hold them. ``inputs.NAME=SOURCE`` keeps the rest of
    that input.

    Raises:
        SettingError: an unknown name, or a value that its field does not take; names the field.
    """
    table: dict[str, Any] = plain(spec)
    for name, value in values.items():
        _put(type(spec), table, name.split("."), value)
    return read(type(spec), table)


def _put(kind: type[Any], table: dict[str, Any], parts: list[str], value: object) -> None:
    key, rest = parts[0], parts[1:]
    known = keyed(kind)
    if key not in known:
        raise unknown(key, known)
    told = known[key].metadata
    if "section" in told:
        _need(key, rest, next(iter(keyed(told["section"]))))
        at(lambda: _put(told["section"], table[key], rest, value), key)
    elif "each" in told:
        _need(key, rest, "NAME")
        at(lambda: _entry(told["each"], told["short"], table[key], rest, value), key)
    elif "names" in told:
        _need(key, rest, "NAME")
        table[key][".".join(rest)] = value
    elif "items" in told:
        raise FieldError("is a list of tables", key, hint="it is changed in the job's file")
    elif rest:
        raise FieldError("is no table", key, hint=f"write {key}=VALUE")
    elif value == "":
        table.pop(key, None)
    else:
        table[key] = at(lambda: told["flag"](value), key) if isinstance(value, str) else value


def _entry(kind: type[Any], short: str, table: dict[str, Any], parts: list[str], value: object) -> None:
    name, rest = parts[0], parts[1:]
    if value == "" and not rest:
        table.pop(name, None)
        return
    at(lambda: _put(kind, table.setdefault(name, {}), rest or [short], value), name)


def _need(key: str, rest: list[str], example: str) -> None:
    if not rest or not rest[0]:
        raise FieldError("is a table", key, hint=f"name what is in it: {key}.{example}=VALUE")
