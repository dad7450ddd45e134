"""Zip archives, and what is written as one: NumPy's ``.npz``, PyTorch's checkpoints. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
from typing import Final

from headrace.base.errors import CorruptError, HeadraceError
from headrace.base.units import format_bytes
from headrace.formats import LONGEST, fields_of
from headrace.web.previews.preview import NAMES, Kind, Made, Preview, facts, some_of, table
from headrace.web.previews.source import Source

_ARRAYS: Final = 50
"""Arrays whose type and shape are read: each takes a read of its own."""


def _make(source: Source) -> Made:
    try:
        with zipfile.ZipFile(source.file()) as archive:
            return _told(archive)
    except HeadraceError:
        raise
    except Exception as error:  # what damaged archives make zipfile raise is of many kinds
        raise CorruptError(f"is no zip archive that can be read: {error}", path=source.path) from error


def _told(archive: zipfile.ZipFile) -> Made:
    members = archive.infolist()
    shown = members[:NAMES]
    arrays = [one for one in shown if one.filename.endswith(".npy")]
    shapes = {one.filename: _array(archive, one) for one in arrays[:_ARRAYS]}
    notes = some_of(len(shown), len(members), "members")
    notes += some_of(len(shapes), len(arrays), "arrays with type and shape") if arrays else ()
    rows = [(one.filename, format_bytes(one.file_size), *_more(one, shapes)) for one in shown]
    columns = ("Member", "Size", "Type", "Shape") if arrays else ("Member", "Size", "In the archive")
    return Made(Preview("zip", facts(members=len(members)), notes, **table(columns, rows)))


def _more(member: zipfile.ZipInfo, shapes: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    if shapes:
        return shapes.get(member.filename, ("", ""))
    return (format_bytes(member.compress_size),)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[str, str]:
    """Type and shape; what is wrong in place of them. Raises NoRoomError."""
    if member.flag_bits & 1:
        return "encrypted", ""
    with archive.open(member) as file:
        head = file.read(LONGEST)
    try:
        dtype, _, shape = fields_of(head)
    except CorruptError:
        return "no array", ""
    return str(dtype), " × ".join(map(str, shape)) or "one value"


KIND = Kind("zip", (".zip", ".npz"), ((0, b"PK\x03\x04"), (0, b"PK\x05\x06")), _make)
