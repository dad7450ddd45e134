"""What commands print: tables for people, JSON for scripts.

With ``--json`` a list is one JSON array of objects, each with its ``id`` or ``path``; sizes are bytes, durations
seconds, times RFC 3339. For people, a terminal gets a drawn table; a pipe gets the same columns, aligned, never cut.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import click

from headrace.base.units import format_bytes, format_seconds

Row: TypeAlias = Mapping[str, Any]
Kind: TypeAlias = Literal["text", "bytes", "count", "seconds", "time", "rate", "flag", "percent"]
_NUMBERS: Final = ("bytes", "count", "seconds", "rate", "percent")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Column:
    """One column for people: which value of the row, under which title, written how."""

    key: str
    title: str
    kind: Kind = "text"

    @property
    def right(self) -> bool:
        """Whether its values stand to the right, as numbers do."""
        return self.kind in _NUMBERS


def json_option(function: _Function) -> _Function:
    """The ``--json`` flag; the command receives it as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")(function)


def rfc3339(mtime_us: int) -> str | None:
    """Microseconds since the epoch as ``2026-01-31T12:00:00Z``; None for 0, which stands for unknown."""
    if not mtime_us:
        return None
    moment = datetime.fromtimestamp(mtime_us // 1_000_000, UTC).replace(microsecond=mtime_us % 1_000_000)
    return moment.isoformat(timespec="seconds" if moment.microsecond == 0 else "microseconds").replace("+00:00", "Z")


def show_table(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, empty: str = "nothing") -> None:
    """Print rows. JSON carries every key of a row; people see `columns`."""
    if as_json:
        _stream_json(rows)
        return
    cells = [[format_value(row.get(c.key), c.kind) for c in columns] for row in rows]
    if not cells:
        click.echo(empty)
    elif sys.stdout.isatty():
        _draw(cells, columns)
    else:
        _align(cells, columns)


def show_record(row: Row, *, as_json: bool, kinds: Mapping[str, Kind] | None = None) -> None:
    """Print one thing: a JSON object, or ``name  value`` lines without what is unknown."""
    if as_json:
        click.echo(as_text(dict(row), indent=2))
        return
    kinds = kinds or {}
    known = {key: format_value(value, kinds.get(key, "text")) for key, value in row.items() if value is not None}
    width = max((len(key) for key in known), default=0)
    for key, value in known.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {value}")


def show_differences(found: Sequence[Any], *, as_json: bool) -> None:
    """Print what two things do not have alike: `Difference` of jobs or of models."""
    rows = [{"id": f"{one.part}:{one.name}", **dataclasses.asdict(one), "same": one.same} for one in found]
    columns = (Column("part", "WHAT"), Column("name", "NAME"), Column("a", "A"), Column("b", "B"))
    show_table(rows, columns, as_json=as_json, empty="they are alike")


def as_text(value: Any, *, indent: int | None = None) -> str:
    """As JSON, which has no words for NaN and infinity: those are null."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in cast("list[Any]", value)]
    return value


def format_value(value: Any, kind: Kind) -> str:
    """One value for people; unknown is ``-``, and what is no number (NaN, infinity) stands as its name."""
    if value is None:
        return "-"
    if kind in _NUMBERS and (isinstance(value, str) or (isinstance(value, float) and not math.isfinite(value))):
        return str(value)
    writers: dict[Kind, Callable[[Any], str]] = {
        "bytes": format_bytes,
        "seconds": format_seconds,
        "count": lambda v: f"{v:,}",
        "rate": lambda v: f"{v:,.0f}" if v >= 100 else f"{v:.3g}",
        "percent": lambda v: f"{100 * v:.1f} %",
        "time": lambda v: str(v)[:19].replace("T", " "),
        "flag": lambda v: "yes" if v else "no",
    }
    if isinstance(value, (list, tuple)):
        return ", ".join(format_value(item, kind) for item in cast("list[Any]", value)) or "none"
    return writers[kind](value) if kind in writers else printable(str(value))


def printable(text: str) -> str:
    """`text` as it is for a pipe; on a terminal with control characters escaped, which a key may hold."""
    if text.isprintable() or not sys.stdout.isatty():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _stream_json(rows: Iterable[Row]) -> None:
    opening = "["
    for row in rows:
        sys.stdout.write(f"{opening}\n  {as_text(dict(row))}")
        opening = ","
    sys.stdout.write("[]\n" if opening == "[" else "\n]\n")


def _draw(cells: list[list[str]], columns: Sequence[Column]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _align(cells: list[list[str]], columns: Sequence[Column]) -> None:
    lines = [[c.title for c in columns], *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        padded = (
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        )
        click.echo("  ".join(padded).rstrip())
