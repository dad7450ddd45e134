"""CSV: one record is one sample.

As in RFC 4180: quoted fields may hold separators, line ends and doubled quotes, fields without quotes may not hold any.
Lines: `lines`. A header line concerns all records of its file. `Csv.preamble` reads it once, for the index to keep, and
`Csv.decoder` makes what decodes the records of that shard.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from headrace.base.errors import CorruptError, InputError
from headrace.catalog import KEY
from headrace.formats.codecs.known_codecs import TEXT
from headrace.formats.shard_format import Member, ShardBytes
from headrace.formats.text.lines import LONGEST_LINE, MARK, Layout, lines, members, ranges


@dataclass(frozen=True)
class Csv:
    """One record a line, under a header line that names the columns. A sample is the part ``data``, its key the
    record's number.

    Args:
        delimiter: one ASCII character; a tab for TSV.
        columns: their names, for files that have no header line.
        longest: bytes of the longest record.
        encoding: of the text, as Python names it. In UTF-8, and where one byte is one character, records are found
            where they lie; else a file is made anew in UTF-8 as a whole.

    Raises:
        InputError: the delimiter is no such character, or nobody knows the encoding.
    """

    delimiter: str = ","
    columns: tuple[str, ...] | None = None
    longest: int = LONGEST_LINE
    encoding: str = "utf-8"
    version: int = 1
    suffixes: tuple[str, ...] = (".csv",)
    may_be_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n':
            raise InputError(f"delimiter={self.delimiter!r} is not one ASCII character that can separate fields")
        try:
            "".encode(self.encoding)
        except LookupError:
            raise InputError(f"encoding={self.encoding!r} is not known", hint='"latin-1", "utf-16" …') from None

    @property
    def name(self) -> str:
        """What tells apart how files are read; see `headrace.formats.shard_format.Format`."""
        plain = self.delimiter == "," and codecs.lookup(self.encoding).name == "utf-8"
        return "csv" if plain else f"csv-{ord(self.delimiter):02x}-{codecs.lookup(self.encoding).name}"

    @property
    def _read_as(self) -> str:
        """The encoding of records as they are found."""
        return self.encoding if _in_bytes(self.encoding) else "utf-8"

    def repacked(self, shard: ShardBytes) -> str | None:  # noqa: ARG002
        """See `headrace.formats.shard_format.Repacked`: text in which a line end is no single byte."""
        return None if _in_bytes(self.encoding) else f"{TEXT}{codecs.lookup(self.encoding).name}"

    def looks_like(self, head: memoryview) -> str | None:
        """What to give, where a file that begins so is no CSV as it was asked for, but looks like another one."""
        raw = bytes(head)
        if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or 3 * raw.count(0) > len(raw) > 0:
            return 'it looks like UTF-16: encoding="utf-16"'
        line = raw.removeprefix(MARK).partition(b"\n")[0]
        mark = max("\t;|,", key=lambda one: line.count(one.encode()))
        if mark != self.delimiter and line.count(mark.encode()) > line.count(self.delimiter.encode()):
            return f"its fields look as if {_MARKS[mark]} separated them: delimiter={mark!r}"
        return _NO_UTF8 if self._read_as == "utf-8" and not _is_utf8(raw) else None

    def recognise(self, head: memoryview) -> bool:
        """Whether the whole lines are text in two columns or more, as many in most of them as in the first. A first
        line that is longer than what is here has a delimiter.

        (Believe the suffix first. A bad row is the matter of who decodes it.)
        """
        raw = bytes(head)
        if not _in_bytes(self.encoding):
            try:
                raw = codecs.getincrementaldecoder(self.encoding)().decode(raw).encode()
            except UnicodeError:
                return False
        raw = raw.removeprefix(MARK)
        data = np.frombuffer(raw, np.uint8)
        ends, stray = self._layout.ends(data)
        if stray is not None:
            return False
        if not len(ends):
            return self.delimiter.encode() in raw and _is_utf8(raw) and b"\0" not in raw
        try:
            rows = [self.decode(memoryview(raw[a:b])) for a, b in ranges(data, ends) if a < b]
        except CorruptError:
            return False
        width = len(rows[0]) if rows else 0
        fit = sum(len(row) == width for row in rows)
        return width > 1 and 2 * fit > len(rows) and not any("\0" in "".join(row) for row in rows)

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every record after the header. Reads the whole shard.

        Raises:
            CorruptError: a record is longer than `longest`, or quotes are not as RFC 4180 has them.
        """
        return members(lines(shard, self._layout, self.longest), skip=0 if self.columns else 1)

    def decode(self, data: memoryview) -> list[str]:
        """The record's fields; with their names from `decoder`.

        Raises:
            CorruptError: the record is not UTF-8, or its quotes are wrong.
        """
        try:
            text = str(data, self._read_as)
        except UnicodeDecodeError as error:
            hint = _NO_UTF8 if self._read_as == "utf-8" else None
            raise CorruptError(f"the record is not {self._read_as.upper()}: {error}", hint=hint) from None
        return _fields(text, self.delimiter)

    def preamble(self, shard: ShardBytes) -> bytes:
        """The header line, without its end: what `decoder` needs to know of a shard. Reads its first 1 MiB, or more.

        Raises:
            CorruptError: as `scan`.
        """
        if self.columns:
            return b""
        for start, stop in lines(shard, self._layout, self.longest):
            return bytes(shard.read(start, stop))
        return b""

    def decoder(self, preamble: bytes) -> Callable[[memoryview], dict[str, str]]:
        """What turns a record's bytes into a dict of strings by column.

        Raises:
            CorruptError: the header names a column twice. The function it returns: as `decode`, or the record has
                more or fewer fields than the header.
        """
        columns = self.columns or tuple(self.decode(memoryview(preamble)))
        if len(set(columns)) < len(columns):
            twice = next(column for column in columns if columns.count(column) > 1)
            raise CorruptError(f"the header names the column {twice!r} twice", hint="give columns= other names")
        return _Record(self, columns)

    @property
    def _layout(self) -> Layout:
        return Layout(ord(self.delimiter))


@dataclass(frozen=True)
class _Record:
    """Decodes records of one header. A class, so that it can be pickled."""

    format: Csv
    columns: tuple[str, ...]

    @property
    def keyed(self) -> bool:
        """Whether records have keys of their own."""
        return KEY in self.columns

    def __call__(self, data: memoryview) -> dict[str, str]:
        values = self.format.decode(data)
        if len(values) != len(self.columns):
            raise CorruptError(f"the record has {len(values)} fields, the header {len(self.columns)}")
        return dict(zip(self.columns, values, strict=True))


CSV = Csv()
_MARKS = {"\t": "tabs", ";": "semicolons", "|": "bars", ",": "commas"}
_NO_UTF8 = 'it is no UTF-8: encoding="latin-1", or what else it is in'


def csv_as(delimiter: str | None, encoding: str | None) -> Csv:
    """A CSV that is written otherwise than RFC 4180 and UTF-8 have it. Raises InputError."""
    suffixes = (".tsv", ".tab", *CSV.suffixes) if delimiter == "\t" else CSV.suffixes
    return Csv(delimiter or CSV.delimiter, encoding=encoding or CSV.encoding, suffixes=suffixes)


@cache
def _in_bytes(encoding: str) -> bool:
    """Whether a byte below 128 is the ASCII character of its number wherever it stands."""
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        return True
    alone = [bytes([one]).decode(encoding, "replace") for one in range(256)]
    return alone[:128] == list(map(chr, range(128))) and all(len(one) == 1 for one in alone) and (
        len(bytes(range(128, 256)).decode(encoding, "replace")) == 128
    )


def _is_utf8(raw: bytes) -> bool:
    """Whether they are, but for a character cut off at their end."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return False
    return True


def _fields(text: str, delimiter: str) -> list[str]:
    """The fields of one record. Not by the csv module, whose longest field is one setting for the whole process."""
    if '"' not in text:
        if "\r" in text:
            raise CorruptError("a carriage return in a field without quotes", hint="end lines with LF or CRLF")
        return text.split(delimiter)
    pattern = _field_pattern(delimiter)
    fields: list[str] = []
    at = 0
    while match := pattern.match(text, at):
        quoted, plain, end = match.groups()
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        if not end:
            return fields
        at = match.end()
    raise CorruptError(f"field {len(fields) + 1} of the record is not quoted as it should be")


@cache
def _field_pattern(delimiter: str) -> re.Pattern[str]:
    mark = re.escape(delimiter)
    return re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"|([^"\r\n{mark}]*))({mark}|\Z)')
