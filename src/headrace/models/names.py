"""What models, their versions and their aliases are called."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headrace.base.errors import InputError

LATEST: Final = "latest"
"""Stands for the version with the highest number; no alias may be called so."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ALIAS: Final = re.compile(r"(?![vV][0-9]+$)[A-Za-z][A-Za-z0-9._-]{0,99}")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")


class Reference(NamedTuple):
    """``NAME@7`` (`number`), ``NAME@prod`` (`alias`); neither: the version with the highest number."""

    name: str
    number: int | None = None
    alias: str | None = None

    def __str__(self) -> str:
        what = self.number if self.number is not None else self.alias
        return self.name if what is None else f"{self.name}@{what}"


def parse(text: str) -> Reference:
    """Of ``NAME``, ``NAME@latest``, ``NAME@7`` or ``NAME@prod``. Raises InputError."""
    name, at, what = text.partition("@")
    check_name(name)
    if not at or what == LATEST:
        return Reference(name)
    number = as_number(what)
    if number is not None:
        return Reference(name, number)
    check_alias(what)
    return Reference(name, alias=what)


def as_number(text: str) -> int | None:
    """A version's number; None: it is written like none. A leading zero is none, as in Triton's folders."""
    return int(text) if _NUMBER.fullmatch(text) else None


def check_name(text: str) -> str:
    """`text`, as the name of a model. Raises InputError."""
    if not _NAME.fullmatch(text):
        hint = "letters, digits, . _ and -, at most 100, beginning with a letter or a digit"
        raise InputError(f"{text!r} is no name of a model", hint=hint)
    return text


def check_alias(text: str) -> str:
    """`text`, as an alias. Raises InputError."""
    if text == LATEST or not _ALIAS.fullmatch(text):
        hint = f"letters, digits, . _ and -, beginning with a letter; not {LATEST!r}, and not like v7: versions are 7"
        raise InputError(f"{text!r} is no alias of a model", hint=hint)
    return text
