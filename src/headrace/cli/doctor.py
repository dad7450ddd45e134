"""``headrace doctor [PATH]``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from headrace.cli.output import json_option, show_table

if TYPE_CHECKING:
    from headrace.checkup import Finding

_SIGNS = {"ok": "ok  ", "note": "note", "warn": "WARN", "fail": "FAIL"}


@click.command()
@click.argument("path", required=False)
@click.option("--write", is_flag=True, help="Also write a few throwaway objects, to see what the store can do.")
@click.option("--seconds", default=12.0, show_default=True, help="Time to spend measuring the store.")
@json_option
def command(path: str | None, *, write: bool, seconds: float, as_json: bool) -> None:
    """Check settings, cache and, with PATH, the store behind it; say what to change, and whether packing pays.

    Exits with 1 if a check failed. Measuring reads objects below PATH, past the cache; what packing would give is
    measured beside it, by at most 256 MB in a quarter of the time more.
    """
    import headrace as hr

    findings: list[Finding] = []
    for finding in hr.doctor(path, write=write, seconds=seconds, tell=lambda line: click.echo(line, err=True)):
        findings.append(finding)
        if not as_json:
            click.echo(f"{_SIGNS[finding.status]}  {finding.text}")
            if finding.advice:
                click.echo(f"      -> {finding.advice}")
    if as_json:
        show_table([dataclasses.asdict(finding) for finding in findings], [], as_json=True)
    if any(finding.status == "fail" for finding in findings):
        raise click.exceptions.Exit(1)
