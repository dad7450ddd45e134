"""``headrace cat PATH…``."""

from __future__ import annotations

import shutil
import sys

import click

from headrace.base.errors import InputError
from headrace.base.units import parse_bytes

_CHUNK = 4 << 20  # bytes copied at a time


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--range", "span", metavar="START:STOP", help="Only bytes from START up to, not including, STOP.")
def command(paths: tuple[str, ...], *, span: str | None) -> None:
    """Write the files at each PATH to standard output.

    --range takes sizes, either may be left out: 100:200, :64kB, 1MiB:
    """
    from headrace.cli.target import open_namespace, target

    namespace = open_namespace()
    for path in paths:
        where = target(namespace, path)
        if span is not None:
            sys.stdout.buffer.write(namespace.read(where, *parse_span(span)))
            continue
        with namespace.open(where) as file:
            shutil.copyfileobj(file, sys.stdout.buffer, _CHUNK)
    sys.stdout.buffer.flush()


def parse_span(text: str) -> tuple[int, int | None]:
    """``"100:200"`` → (100, 200); ``"1MiB:"`` → (1048576, None).

    Raises:
        InputError: not a range, or it ends before it starts.
    """
    start, colon, stop = text.partition(":")
    first = parse_bytes(start or 0, name="--range")
    last = parse_bytes(stop, name="--range") if stop else None
    if not colon or (last is not None and last < first):
        raise InputError(f"--range: {text!r} is not a range of bytes", hint="write it like 100:200, :64kB or 1MiB:")
    return first, last
