"""JSON Lines: one line is one sample.

As on jsonlines.org: UTF-8, one JSON value a line, LF or CRLF, with or without one after the last line, a byte order
mark skipped, empty lines skipped. The types of columns: `json_types`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, cast

from headrace.base.errors import CorruptError
from headrace.catalog import KEY
from headrace.formats.columns.typed_columns import Form
from headrace.formats.shard_format import Member, ShardBytes
from headrace.formats.text import json_types
from headrace.formats.text.json_types import LOOKED_AT
from headrace.formats.text.lines import LONGEST_LINE, MARK, PIECE, Layout, lines, members

_BLANK = b" \t\r\n"


@dataclass(frozen=True)
class JsonLines:
    """One JSON value a line. A sample is the part ``data``, its key the number of the line, not counting empty ones."""

    longest: int = LONGEST_LINE
    name: str = "jsonl"
    version: int = 2
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson")
    may_be_empty: ClassVar[bool] = True

    def recognise(self, head: memoryview) -> bool:
        """Whether the first line is a JSON object or array, as far as it is here, or there are blank lines alone. (So
        is a small JSON file: believe the suffix first.)
        """
        if not len(head):
            return False
        line, end, _ = bytes(head).removeprefix(MARK).lstrip(_BLANK).partition(b"\n")
        if not end:  # it goes on behind these bytes, or is the last
            return line[:1] in (b"", b"{", b"[")
        try:
            return isinstance(self.decode(memoryview(line)), (dict, list))
        except CorruptError:
            return False

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every line that is not blank; whether it is JSON shows when it is decoded. Reads the whole shard.

        Raises:
            CorruptError: a line is longer than `longest`.
        """
        return members(lines(shard, Layout(None), self.longest))

    def decode(self, data: memoryview) -> Any:
        """The line's value: what `json.loads` makes of it.

        Raises:
            CorruptError: the line is not UTF-8, or not JSON.
        """
        try:
            return json.loads(str(data, "utf-8"))
        except RecursionError:
            raise CorruptError("the line nests too deeply") from None
        except ValueError as error:
            raise CorruptError(f"the line is not JSON: {error}") from None

    def preamble(self, shard: ShardBytes, /) -> bytes:
        """The types of columns in its beginning."""
        data = bytes(shard.read(0, PIECE)).removeprefix(MARK)
        whole = data[:LOOKED_AT]
        if len(data) > LOOKED_AT:
            whole = whole[: whole.rfind(b"\n") + 1]
        return json_types.dump(json_types.kinds_in(self._values(whole)))

    def together(self, preambles: Sequence[bytes], /) -> bytes:
        """One preamble for all shards of a set; see `headrace.formats.shard_format.Joined`."""
        return json_types.dump(json_types.widened(map(json_types.load, dict.fromkeys(preambles))))

    def decoder(self, preamble: bytes, /) -> Callable[[memoryview], Any]:
        """What decodes lines, with the types of columns in `preamble`. The function it returns raises CorruptError: as
        `decode`; a value does not fit its column.
        """
        kinds = json_types.load(preamble) or {}
        return JsonRow(self, json_types.forms_of(kinds), KEY in kinds)

    def _values(self, data: bytes) -> Iterator[Any]:
        for line in data.split(b"\n"):
            try:
                if line.strip(_BLANK):
                    yield self.decode(memoryview(line))
            except CorruptError:  # it is met again when it is read, and named then
                continue


@dataclass(frozen=True)
class JsonRow:
    """Decodes lines of JSON. A class, so that it can be pickled.

    `forms`: what columns are in batches. `keyed`: whether the first lines have keys of their own; any may.
    """

    format: JsonLines
    forms: Mapping[str, Form]
    keyed: bool
    may_be_keyed: ClassVar[bool] = True

    def __call__(self, data: memoryview) -> Any:
        value = self.format.decode(data)
        if isinstance(value, dict):
            return json_types.fitted(cast("dict[str, Any]", value), self._checks)
        return json_types.fitted({"data": value}, self._checks)["data"]

    @cached_property
    def _checks(self) -> tuple[json_types.Check, ...]:
        return json_types.checks_of(self.forms)

    def typed(self, types: Mapping[str, str]) -> JsonRow:
        """With these types for some columns. Raises InputError: one is none."""
        return replace(self, forms={**self.forms, **json_types.given(types)})


JSONL = JsonLines()
