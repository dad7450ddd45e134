"""A job's file: its table, where in it something is wrong, and how one is written."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tomlkit

from headrace.base.errors import NotFoundError, SettingError
from headrace.jobs.spec_errors import FieldError
from headrace.jobs.spec_lines import Lines

MOST = 1 << 20
"""Bytes of the largest file that is read."""
_HINT = "see docs/reference/job.md"
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)\Z")
_REPEATED = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline table key")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file that is TOML: its `table`, and its `text` for the lines."""

    path: str
    text: str
    table: dict[str, Any]

    @contextmanager
    def located(self) -> Generator[None]:
        """A FieldError from inside gets the file and the line where its field is written."""
        try:
            yield
        except FieldError as error:
            line = Lines(self.text).of(error.keys)
            raise error.at(self.path if line is None else f"{self.path}:{line}") from None


def read_toml(path: str | os.PathLike[str]) -> TomlFile:
    """Read a file.

    Raises:
        NotFoundError: there is none. SettingError: not readable, not UTF-8, not TOML, too large; with the line.
    """
    name = os.fspath(path)
    text = _text(name).replace("\r\n", "\n")
    try:
        return TomlFile(name, text, tomllib.loads(text))
    except RecursionError:
        raise SettingError("is nested too deeply", path=name, hint=_HINT) from None
    except ValueError as error:  # also a number of thousands of digits
        raise _malformed(name, text, str(error)) from None


def write_toml(table: Mapping[str, Any]) -> str:
    """The text of such a file."""
    return tomlkit.dumps(table)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            body = file.read(MOST + 1)
    except FileNotFoundError:
        raise NotFoundError("there is no such job file", path=path, hint="a command goes after --") from None
    except OSError as error:
        raise SettingError(f"cannot be read: {error.strerror}", path=path, hint="check its permissions") from None
    if len(body) > MOST:
        raise SettingError("is larger than 1 MiB, so no job file", path=path, hint=_HINT)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise SettingError("is not text in UTF-8", path=f"{path}:{line}", hint="save it as UTF-8") from None


def _malformed(path: str, text: str, told: str) -> SettingError:
    place = _PLACE.search(told)
    reason = told[: place.start()] if place else told
    if place is None or place[1] is None:
        line = text.rstrip("\n").count("\n") + 1
        return SettingError(f"is not valid TOML: {reason}", path=f"{path}:{line}" if place else path, hint=_HINT)
    line, column = int(place[1]), int(place[2])
    if reason.startswith(_REPEATED) and (twice := Lines(_until(text, line, column)).repeated()):
        keys, line, first = twice
        return FieldError(f"is written twice, first on line {first}", *keys, path=f"{path}:{line}", hint=_HINT)
    return SettingError(f"is not valid TOML: {reason}, column {column}", path=f"{path}:{line}", hint=_HINT)


def _until(text: str, line: int, column: int) -> str:
    """The text before a place."""
    lines = text.split("\n")
    return "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])
