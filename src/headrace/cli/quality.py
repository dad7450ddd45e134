"""A data set's quality report, for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headrace.base.units import format_bytes
from headrace.cli.output import Column, printable, show_record, show_table

if TYPE_CHECKING:
    from headrace.catalog import Report, SampleGroup

_FOLDERS_SHOWN = 20  # the largest: a screen of them


def show(name: str, report: Report, *, as_json: bool) -> None:
    """Print it."""
    if as_json:
        show_record({"id": name, **report.as_dict()}, as_json=True)
        return
    sizes = report.sizes
    click.echo(f"{name}: {report.objects:,} objects, {report.samples:,} samples, {format_bytes(sizes.total)}")
    click.echo(
        f"sizes: smallest {format_bytes(sizes.smallest)}, median {format_bytes(sizes.median)}, "
        f"largest {format_bytes(sizes.largest)}\n"
    )
    _groups("SUFFIX", report.suffixes)
    click.echo()
    _groups("FOLDER", report.folders[:_FOLDERS_SHOWN])
    if report.folder_count > _FOLDERS_SHOWN:
        click.echo(f"… and {report.folder_count - _FOLDERS_SHOWN:,} more folders")
    click.echo()
    for line in _concerns(report):
        click.echo(line)


def _groups(title: str, groups: tuple[SampleGroup, ...]) -> None:
    columns = [Column("name", title), Column("objects", "OBJECTS", "count"), Column("bytes", "SIZE", "bytes")]
    show_table([asdict(group) for group in groups], columns, as_json=False)


def _concerns(report: Report) -> list[str]:
    lines: list[str] = []
    if report.empty:
        lines.append(f"{report.empty:,} empty objects, such as {_some(report.empty_examples)}")
    same = report.duplicates
    if same.copies:
        examples = " = ".join(same.examples[0][:3])
        lines.append(f"{same.copies:,} duplicates ({format_bytes(same.bytes)}), such as {printable(examples)}")
    lines += [f"{gap.samples:,} samples lack .{gap.suffix}, such as {_some(gap.examples)}" for gap in report.missing]
    return lines or ["no empty objects, no duplicates, no sample lacks a part"]


def _some(examples: tuple[str, ...]) -> str:
    return printable(", ".join(examples[:3]))
