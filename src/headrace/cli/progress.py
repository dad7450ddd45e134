"""Drawing progress on standard error: a bar on a terminal, one closing line elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import click

from headrace.base.drawing import Tally, drawn
from headrace.base.progress import Progress
from headrace.base.settings import Settings


@contextlib.contextmanager
def progress(label: str, unit: str = "objects") -> Generator[Progress]:
    """Report to what this yields while the block runs; the closing line comes only when the block succeeds."""
    tally = Tally(label, unit)
    with drawn(tally, allowed=Settings.load().progress) as report:
        yield report
    click.echo(tally.closing_line(), err=True)


def passing(label: str) -> contextlib.AbstractContextManager[Progress]:
    """As `progress`, but nothing of it stays: a bar on a terminal, nothing elsewhere."""
    return drawn(Tally(label), allowed=Settings.load().progress)
