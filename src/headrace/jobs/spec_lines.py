"""On which line of a TOML text a key is written: what `tomllib` does not tell.

A scanner, not a parser: it is used on text that `tomllib` has read, at least up to where it stops (TOML 1.0,
https://toml.io/en/v1.0.0). Keys are the way to a value, as in the parsed document: names, and indices in lists.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

Keys = tuple[str | int, ...]

_SPACE = re.compile(r"(?:[ \t\n\r]++|#[^\n]*+)*+")
_BETWEEN = re.compile(r"(?:[ \t\n\r,]++|#[^\n]*+)*+")
_BLANK = re.compile(r"[ \t]*+")
_KEY = re.compile(r"""[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")
_DOT = re.compile(r"[ \t]*+\.[ \t]*+")
_EQUALS = re.compile(r"[ \t]*+=[ \t]*+")
_CLOSING = re.compile(r"[ \t]*+\]{1,2}")
_STRING = re.compile(
    r'''"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}'''
    r"""|'''(?:[^']++|'{1,2}(?!'))*+'{3,5}"""
    r"""|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}#\n]++")


class Written(NamedTuple):
    """One key of the text. `whole`: its value is there too; `within`: keys of the inline table or list it is in."""

    keys: Keys
    line: int
    whole: bool
    within: int


class Lines:
    """The lines of one text. Any thread."""

    def __init__(self, text: str) -> None:
        self._written = tuple(_Scanner(text).keys())
        explicit: dict[Keys, int] = {}
        implied: dict[Keys, int] = {}
        for one in self._written:
            explicit.setdefault(one.keys, one.line)
            for above in _above(one.keys):
                implied.setdefault(above, one.line)
        self._lines = implied | explicit

    def of(self, keys: Keys) -> int | None:
        """The line, from 1, of the key, or of the nearest one above it; None: nothing on the way to it is written."""
        found = (self._lines.get(keys[:end]) for end in range(len(keys), 0, -1))
        return next((line for line in found if line is not None), None)

    def repeated(self) -> tuple[Keys, int, int] | None:
        """The first key that is written again, or added to a value that is complete: its line, and the earlier one."""
        seen: dict[Keys, int] = {}
        whole: dict[Keys, int] = {}
        implied: dict[Keys, int] = {}
        for one in self._written:
            earlier = [seen.get(one.keys), implied.get(one.keys) if one.whole else None]
            earlier += [whole.get(above) for above in _above(one.keys) if len(above) > one.within]
            found = next((line for line in earlier if line is not None), None)
            if found is not None:
                return one.keys, one.line, found
            seen[one.keys] = one.line
            if one.whole:
                whole[one.keys] = one.line
            for above in _above(one.keys):
                implied.setdefault(above, one.line)
        return None


def _above(keys: Keys) -> Iterator[Keys]:
    return (keys[:end] for end in range(1, len(keys)))


class _Scanner:
    """Goes over a text once. Ends where it understands no more."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [match.start() for match in re.finditer("\n", text)]
        self._counts: dict[Keys, int] = {}

    def keys(self) -> Iterator[Written]:
        table: Keys = ()
        while self._more():
            line = self._line()
            if self._text[self._at] == "[":
                table = self._header()
                yield Written(table, line, whole=False, within=0)
                continue
            keys = self._dotted()
            if not keys:
                return
            yield Written((*table, *keys), line, whole=True, within=0)
            self._take(_EQUALS)
            yield from self._value((*table, *keys))

    def _more(self) -> bool:
        self._take(_SPACE)
        return self._at < len(self._text)

    def _header(self) -> Keys:
        """The table that a header opens; of an array of tables its newest."""
        array = self._text.startswith("[[", self._at)
        self._at += 2 if array else 1
        keys = self._dotted()
        table: Keys = ()
        for key in keys[:-1]:
            table = (*table, key)
            table = (*table, self._counts[table] - 1) if table in self._counts else table
        table = (*table, *keys[-1:])
        if array:
            self._counts[table] = self._counts.get(table, 0) + 1
            table = (*table, self._counts[table] - 1)
        self._take(_CLOSING)
        return table

    def _dotted(self) -> Keys:
        keys: list[str] = []
        self._take(_BLANK)
        while (key := self._take(_KEY)) is not None:
            try:
                keys.append(tomllib.loads(f"key = {key}")["key"] if key[0] in "\"'" else key)
            except tomllib.TOMLDecodeError:  # an escape that is none
                return ()
            if self._take(_DOT) is None:
                break
        return tuple(keys)

    def _value(self, keys: Keys) -> Iterator[Written]:
        opening = self._text[self._at : self._at + 1]
        if opening == "[":
            yield from self._list(keys)
        elif opening == "{":
            yield from self._inline(keys)
        elif self._take(_STRING) is None and self._take(_PLAIN) is None:
            self._at = len(self._text)  # not TOML

    def _list(self, keys: Keys) -> Iterator[Written]:
        self._at += 1
        index = 0
        while self._goes_on("]"):
            yield Written((*keys, index), self._line(), whole=True, within=len(keys))
            yield from self._value((*keys, index))
            index += 1

    def _inline(self, keys: Keys) -> Iterator[Written]:
        self._at += 1
        while self._goes_on("}"):
            line, inner = self._line(), (*keys, *self._dotted())
            yield Written(inner, line, whole=True, within=len(keys))
            self._take(_EQUALS)
            yield from self._value(inner)

    def _goes_on(self, closing: str) -> bool:
        """Whether one more item follows; goes over what is between, or the end."""
        self._take(_BETWEEN)
        if self._text.startswith(closing, self._at):
            self._at += 1
            return False
        return self._at < len(self._text)

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _line(self) -> int:
        return bisect_right(self._breaks, self._at) + 1
