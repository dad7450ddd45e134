"""Tar: the files in it, found by reading headers alone."""

from __future__ import annotations

from itertools import islice

from headrace.base.errors import CorruptError, NoRoomError
from headrace.base.units import format_bytes
from headrace.formats import files_of
from headrace.web.previews.preview import NAMES, Kind, Made, Preview, table
from headrace.web.previews.source import Source


def _make(source: Source) -> Made:
    found: list[tuple[str, str]] = []
    notes: tuple[str, ...] = ()
    try:
        for name, start, stop in islice(files_of(source), NAMES + 1):
            found.append((name, format_bytes(stop - start)))
    except (CorruptError, NoRoomError) as error:
        if not found:
            raise
        notes = (f"The first {len(found):,} files; no more can be told: {error.reason}.",)
    if len(found) > NAMES:
        notes = (f"The first {NAMES:,} files; others follow.",)
    elif not notes:
        notes = (f"All {len(found):,} files.",)
    return Made(Preview("tar", notes=notes, **table(("File", "Size"), found[:NAMES])))


KIND = Kind("tar", (".tar",), ((257, b"ustar"),), _make)
