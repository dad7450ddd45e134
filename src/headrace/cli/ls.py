"""``headrace ls [PATH]``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from headrace.cli.output import Row, format_value, json_option, printable, rfc3339, show_table

if TYPE_CHECKING:
    from headrace.namespace import Entry, Namespace


@click.command()
@click.argument("path", default="/")
@click.option("-l", "long", is_flag=True, help="Sizes and times too.")
@click.option("-r", "-R", "--recursive", is_flag=True, help="All files below PATH.")
@json_option
def command(path: str, *, long: bool, recursive: bool, as_json: bool) -> None:
    """List the folder at PATH, one file, or all files of the snapshot NAME@VERSION."""
    from headrace.cli.target import is_snapshot, open_namespace

    recursive = recursive or is_snapshot(path)
    entries = _entries(open_namespace(), path, recursive=recursive)
    if as_json:
        show_table((as_row(entry) for entry in entries), [], as_json=True)
        return
    for line in _lines(entries, long=long, whole_paths=recursive):
        sys.stdout.write(line)


def as_row(entry: Entry) -> Row:
    """An entry as scripts see it."""
    return {
        "path": entry.path,
        "name": entry.name,
        "kind": entry.kind,
        "size": entry.size,
        "mtime": rfc3339(entry.mtime_us),
        "etag": entry.etag,
    }


def _entries(namespace: Namespace, path: str, *, recursive: bool) -> Iterable[Entry]:
    from headrace.cli.target import target

    if recursive:
        from headrace.catalog import files_named

        return files_named(path, namespace=namespace)
    where = target(namespace, path)
    entry = namespace.stat(where)
    return [entry] if entry.kind == "file" else namespace.list(where)


def _lines(entries: Iterable[Entry], *, long: bool, whole_paths: bool) -> Iterator[str]:
    for entry in entries:
        name = printable(entry.path if whole_paths else entry.name)
        name += "/" if entry.kind == "folder" and not name.endswith("/") else ""
        if not long:
            yield name + "\n"
            continue
        size = "" if entry.kind == "folder" else format_value(entry.size, "bytes")
        yield f"{size:>9}  {format_value(rfc3339(entry.mtime_us), 'time'):<19}  {name}\n"
