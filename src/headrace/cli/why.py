"""``headrace why RUN``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from headrace.cli.output import as_text, json_option

if TYPE_CHECKING:
    from headrace.base.verdict import Verdict
    from headrace.tracking import RecordedRun

_EVERY_S = 5.0  # seconds between verdicts


@click.command()
@click.argument("run")
@click.option("--last", metavar="TIME", help='Of the last "5m" only.  [default: of the whole run]')
@click.option("--rank", type=int, help="Of one rank only.  [default: of all together]")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@json_option
def command(run: str, *, last: str | None, rank: int | None, watch: bool, as_json: bool) -> None:
    """Say what limits RUN, live or afterwards: the evidence, what to change, and what it would bring.

    RUN is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """
    import headrace as hr
    from headrace.base.units import parse_seconds

    seconds = parse_seconds(last) if last is not None else None
    found = hr.run(run)
    while True:
        verdict = found.why(last_s=seconds, rank=rank)
        if watch and not as_json:
            click.clear()
        _show(found, verdict, as_json=as_json)
        if not watch:
            break
        time.sleep(_EVERY_S)


def _show(run: RecordedRun, verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        click.echo(as_text({"id": run.id, **verdict.as_dict()}, indent=2))
        return
    click.echo(f"{run.id}: {verdict.bound}\n{verdict.statement}")
    for title, lines in (("Evidence", verdict.evidence), ("What to change", verdict.advice)):
        if lines:
            click.echo(f"\n{title}")
            for line in lines:
                click.echo(f"  - {line}")
    if verdict.gain >= 1.01:
        click.echo(f"\nGain to expect: {verdict.gain_text}")
