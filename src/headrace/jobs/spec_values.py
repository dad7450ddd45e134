"""Values of a spec, from what a file or a flag's text holds to what the spec holds.

Each raises FieldError, which never shows a value of the wrong kind: that may be a secret.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from headrace.base.errors import InputError
from headrace.base.units import parse_bytes, parse_seconds
from headrace.jobs.spec_errors import FieldError

Check = Callable[[str], object]
_T = TypeVar("_T")
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_MOST = 1 << 62  # whatever is counted, no machine has as much, and it fits an int64


def at(parse: Callable[[], _T], *keys: str | int) -> _T:
    """What `parse` gives; its FieldError is of the field below `keys`."""
    try:
        return parse()
    except FieldError as error:
        raise error.below(*keys) from None


def a_text(value: object, check: Check | None = None) -> str:
    """Text that may be handed to a program."""
    if not isinstance(value, str):
        raise _wrong(value, "text", hint=None if isinstance(value, (list, dict)) else "put it in quotes")
    if "\0" in value:
        raise FieldError("holds a NUL character")
    if check is not None:
        check(value)
    return value


def a_table(value: object) -> Mapping[str, object]:
    """A table."""
    if not isinstance(value, Mapping):
        raise _wrong(value, "a table")
    return cast("Mapping[str, object]", value)


def each(value: object, parse: Callable[[object], _T]) -> tuple[_T, ...]:
    """A list, item by item."""
    if not isinstance(value, (list, tuple)):
        raise _wrong(value, "a list")
    found = cast("Sequence[object]", value)
    return tuple(at(lambda one=one: parse(one), index) for index, one in enumerate(found))


def named(value: object, check: Check, parse: Callable[[object], _T]) -> dict[str, _T]:
    """A table, by its names, which are checked."""
    found: dict[str, _T] = {}
    for name, one in a_table(value).items():
        at(lambda name=name: check(name), name)
        found[name] = at(lambda one=one: parse(one), name)
    return found


def whole(value: object, least: int, most: int = _MOST) -> int:
    """A whole number within bounds, both included."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, "a whole number")
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most}"
        raise FieldError(f"is out of range: {bound}")
    return value


def truth(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _wrong(value, "true or false")
    return value


def seconds(value: object, *, positive: bool) -> float:
    """A duration, finite."""
    found = _united(value, parse_seconds, "a duration")
    if not math.isfinite(found) or (positive and found == 0):
        raise FieldError("is out of range", hint="a duration is finite" + (", and more than 0" if positive else ""))
    return found


def size(value: object) -> int:
    """Bytes."""
    if isinstance(value, float):
        raise _wrong(value, "a size", hint="write it like 512MB, or a whole number of bytes")
    found = _united(value, parse_bytes, "a size")
    if found > _MOST:
        raise FieldError("is out of range", hint="no machine has as many bytes")
    return found


def listed(text: str, item: Callable[[str], object] = str) -> object:
    """A flag's text as a list: as TOML writes one, or one item."""
    if not text.lstrip().startswith("["):
        return [item(text)]
    try:
        return tomllib.loads(f"list = {text}")["list"]
    except (ValueError, RecursionError):
        raise FieldError("is no list in TOML", hint='write ["a", "b"], with quotes around texts') from None


def whole_text(text: str) -> object:
    """A flag's text as a whole number, if it is one."""
    try:
        return int(text)
    except ValueError:
        return text


def truth_text(text: str) -> object:
    """A flag's text as true or false, if it is one of their names."""
    return _TRUTHS.get(text.strip().lower(), text)


def _united(value: object, parse: Callable[..., _T], wanted: str) -> _T:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _wrong(value, wanted)
    try:
        return parse(value, name="")
    except InputError as error:
        raise FieldError(error.reason.removeprefix(": "), hint=error.hint) from None
    except (ValueError, OverflowError):  # thousands of digits
        raise FieldError("is out of range") from None


def _wrong(value: object, wanted: str, *, hint: str | None = None) -> FieldError:
    kinds = ((bool, "true or false"), (int, "a number"), (float, "a number"), (str, "text"), (Mapping, "a table"))
    found = next((name for kind, name in kinds if isinstance(value, kind)), None)
    if found is None:
        found = "nothing" if value is None else "a list" if isinstance(value, (list, tuple)) else "a date or a time"
    return FieldError(f"is {found}, not {wanted}", hint=hint)
