"""Values that a parameter takes, as ``--sweep NAME=VALUES`` writes them: ``0.1,0.01``, ``1..3``, ``1..9/2``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from headrace.jobs.spec_errors import FieldError

MOST: Final = 1_000
"""Of one parameter, and of one job's tasks with all their parameters."""
_RANGE: Final = re.compile(r"(-?[0-9]{1,18})\.\.(-?[0-9]{1,18})(?:/([0-9]{1,18}))?")
_LIKE_RANGE: Final = re.compile(r"[-+.0-9eE]*[0-9]\.\.[-+.0-9eE/]*")
_HINT: Final = "values are written 0.1,0.01; whole numbers 1..3, or 1..9/2 for every second one"


def values(text: str) -> tuple[str, ...]:
    """In the order they are written, the ends of a range included.

    Raises:
        SettingError: nothing between two commas, a range that is none or holds nothing, one value twice, too many.
    """
    found: list[str] = []
    for item in text.split(","):
        for value in _item(item.strip()):
            found.append(value)
            if len(found) > MOST:
                raise FieldError(f"holds more than {MOST} values")
    return distinct(tuple(found))


def distinct(found: tuple[str, ...]) -> tuple[str, ...]:
    """The same, if there is one and none comes twice. Raises SettingError."""
    if not found:
        raise FieldError("is empty", hint=_HINT)
    seen = set[str]()
    for value in found:
        if value in seen:
            raise FieldError(f"names {value} twice")
        seen.add(value)
    return found


def _item(item: str) -> Iterator[str]:
    if not item:
        raise FieldError("has an empty value", hint=_HINT)
    match = _RANGE.fullmatch(item)
    if match is None:
        if _LIKE_RANGE.fullmatch(item):
            raise FieldError(f"{item!r} is no range", hint=_HINT)
        yield item
        return
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0 or last < first:
        raise FieldError(f"{item!r} holds nothing", hint=_HINT)
    yield from (str(number) for number in range(first, last + 1, step))
