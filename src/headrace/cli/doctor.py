"""``headrace doctor [PATH]``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from headrace.cli.output import json_option, show_table

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.cli.checkup import Finding

_SIGNS = {"ok": "ok  ", "note": "note", "warn": "WARN", "fail": "FAIL"}
_OBJECTS = 2000
"""Objects to read while measuring; more than a store's own small caches would favour."""


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
    from headrace.base.settings import Settings

    settings = Settings.load()
    findings: list[Finding] = []
    for finding in _findings(settings, path, write=write, seconds=seconds):
        findings.append(finding)
        if not as_json:
            click.echo(f"{_SIGNS[finding.status]}  {finding.text}")
            if finding.advice:
                click.echo(f"      -> {finding.advice}")
    if as_json:
        show_table([dataclasses.asdict(finding) for finding in findings], [], as_json=True)
    if any(finding.status == "fail" for finding in findings):
        raise click.exceptions.Exit(1)


def _findings(settings: Settings, path: str | None, *, write: bool, seconds: float) -> Iterator[Finding]:
    from headrace.cli.checkup.finding import guarded
    from headrace.cli.checkup.node import check_cache, check_settings

    yield from guarded("settings", lambda: check_settings(settings))
    yield from guarded("cache", lambda: check_cache(settings.cache))
    if path is not None:
        yield from guarded("store", lambda: _store(settings, path, write=write, seconds=seconds))


def _store(settings: Settings, path: str, *, write: bool, seconds: float) -> Iterator[Finding]:
    from headrace.base.units import format_seconds
    from headrace.cli.checkup.finding import guarded
    from headrace.cli.checkup.packing import Spot, check_packing
    from headrace.cli.checkup.reach import check_capabilities, check_clock, check_reach, check_uploads
    from headrace.cli.checkup.speed import check_speed
    from headrace.cli.target import open_namespace, target
    from headrace.dataset.below import reads_below

    namespace = open_namespace()
    where = target(namespace, path)
    location = namespace.resolve(where)
    prefix = location.key if location.key == "" or location.key.endswith("/") else f"{location.key}/"
    yield from guarded("clock", lambda: check_clock(location.store))
    yield from check_reach(location.store, prefix)
    yield from guarded("capabilities", lambda: check_capabilities(location.store, write=write))
    if write:
        yield from guarded("uploads", lambda: check_uploads(location.store, prefix, where))
    reads = list(islice((read for read in reads_below(namespace, path) if read.size), _OBJECTS))
    yield from guarded("speed", lambda: check_speed(settings, reads, seconds=seconds))
    scratch = prefix if write and not location.read_only else None
    spot = Spot(path, location.store, scratch)
    more = seconds / 4
    if reads:
        click.echo(f"reading for {format_seconds(more)} more, at most 256 MB, to see whether packing pays", err=True)
    yield from guarded("packing", lambda: check_packing(settings, reads, spot, seconds=more))
