"""One thing looked at, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from headrace.base.errors import HeadraceError

Status: TypeAlias = Literal["ok", "note", "warn", "fail"]
Check: TypeAlias = Callable[[], Iterator["Finding"]]


@dataclass(frozen=True, slots=True)
class Finding:
    """`id` is stable, for scripts; `advice` says what to change; `values` are the figures (bytes, seconds)."""

    id: str
    status: Status
    text: str
    advice: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])


def guarded(id_: str, check: Check) -> Iterator[Finding]:
    """The findings of `check`; an error it raises becomes the last of them."""
    try:
        yield from check()
    except HeadraceError as error:
        where = f"{error.path}: " if error.path else ""
        yield Finding(id_, "fail", f"{where}{error.reason}", error.hint, {"code": error.code})
    except OSError as error:
        yield Finding(id_, "fail", str(error), None, {"code": "os"})
