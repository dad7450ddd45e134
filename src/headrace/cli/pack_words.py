"""What ``headrace pack`` takes of the shards: its options, gathered in one value."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from headrace.base.errors import InputError
from headrace.cli.gathered import gathered

if TYPE_CHECKING:
    from headrace.loader import Skip
    from headrace.pack import PackOptions


@dataclass(frozen=True, slots=True)
class PackWords:
    """The options as they were given."""

    layout: str
    shard_size: str
    seed: int | None
    by: str
    function: str | None
    where: str | None
    columns: str | None
    schema: str | None
    source_format: str | None
    name: str | None
    max_errors: str
    workers: int
    verify: Literal["quick", "full"]

    def options(self) -> PackOptions:
        """What they mean. A function is looked for in the working folder first. Raises InputError."""
        from headrace.base.units import parse_bytes
        from headrace.pack import PackOptions

        if self.function:
            sys.path.insert(0, os.getcwd())
        return PackOptions(
            shard_size=parse_bytes(self.shard_size, name="--shard-size"), seed=self.seed, by=self.by,
            function=self.function, name=self.name, layout=self.layout, columns=_columns(self.columns, self.schema),
            where=self.where, source_format=self.source_format, max_errors=_budget(self.max_errors),
            workers=self.workers, verify=self.verify,
        )  # fmt: skip


_OPTIONS = (
    click.option("--format", "layout", type=click.Choice(["webdataset", "tfrecord", "parquet"]), default="webdataset",
                 show_default=True, help="Of the shards."),
    click.option("--shard-size", default="100MB", show_default=True, help="Most bytes of a shard."),
    click.option("--shuffle", "seed", type=int, metavar="SEED",
                 help="Pack in a random order, the same for the same SEED."),
    click.option("--by", default="stem", show_default=True, help="What makes one sample: stem, class or folder."),
    click.option("--map", "function", metavar="MODULE:FUNCTION", help="Apply a Python function to every sample."),
    click.option("--where", metavar="EXPR",
                 help='Pack only samples for which this holds: size < 10_000 and "cls" in parts.'),
    click.option("--columns", metavar="TYPES", help='Types of the columns of text: "label:i64, features:f32[39]".'),
    click.option("--schema", metavar="FILE", help="The same from a TOML or JSON file."),
    click.option("--from", "source_format", metavar="FORMAT",
                 help="Of SRC: csv, jsonl, tar …  [default: by its names]"),
    click.option("--name", metavar="PATTERN",
                 help="Names of the shards, with one %d.  [default: %06d.tar and the like]"),
    click.option("--max-errors", default="0", show_default=True, help="Samples that may be left out: 10, or 0.1%."),
    click.option("-j", "--workers", default=0, type=click.IntRange(0, 256),
                 help="Shards made at once.  [default: cores]"),
    click.option("--verify", type=click.Choice(["quick", "full"]), default="quick", show_default=True,
                 help="Compare the listing, or read every shard back."),
)  # fmt: skip


pack_options = gathered(PackWords, _OPTIONS)
"""A decorator: the options of the shards; the command receives them as ``words``."""


def _columns(text: str | None, file: str | None) -> str | None:
    if file is None:
        return text
    if text is not None:
        raise InputError("--columns and --schema say the same", hint="give one of them")
    from headrace.pack import read_schema

    return str(read_schema(file))


def _budget(text: str) -> Skip:
    from headrace.loader import Skip

    number, percent = (text[:-1], True) if text.endswith("%") else (text, False)
    try:
        return Skip(max_rate=float(number) / 100) if percent else Skip(max_count=int(number))
    except ValueError:
        raise InputError(f"--max-errors {text!r} is no number", hint="10 samples, or a share of all: 0.1%") from None
