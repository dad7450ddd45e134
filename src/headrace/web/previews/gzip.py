"""gzip: the beginning of what is in it, unpacked; shown as CSV, tar or text.

Source: RFC 1952. A file of a few kilobytes may hold terabytes, so never more than `_MOST` is unpacked.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Final

from headrace.base.errors import CorruptError, HeadraceError
from headrace.base.units import format_bytes
from headrace.web.previews import tables, tar
from headrace.web.previews.preview import Kind, Made
from headrace.web.previews.source import Source
from headrace.web.previews.text import beginning

_MOST: Final = 1 << 20
"""Bytes that are unpacked: more than any of those that show them read."""
_PIECE: Final = 64 << 10  # bytes read at a time
_MEMBERS: Final = 1000
"""Members that are unpacked: they may be empty."""
_GZIP: Final = 31
"""zlib's number for gzip with its header and checksum."""
_WITHIN: Final = (tables.DELIMITED, tar.KIND)


def _make(source: Source) -> Made:
    data, whole, problem = _unpacked(source)
    if not data and problem:
        raise CorruptError(problem, path=source.path)
    path = f"{source.path[: -len('.tgz')]}.tar" if source.name.endswith(".tgz") else source.path.removesuffix(".gz")
    inner = Source(path, len(data), lambda start, stop: data[start:stop])
    made, notes = _shown(inner), ()
    if problem:
        notes = (f"Unpacked are its first {format_bytes(len(data))}; no more can be: {problem}.",)
    elif not whole:
        notes = (f"Unpacked are its first {format_bytes(len(data))}. There is more.",)
    shown = made.preview
    return Made(replace(shown, kind=f"{shown.kind}, compressed by gzip", notes=(*notes, *shown.notes)))


def _shown(inner: Source) -> Made:
    """Never as what is compressed once more, or needs its end."""
    head = bytes(inner.read(0, 512))
    kind = next((one for one in _WITHIN if inner.name.endswith(one.suffixes) or one.fits(head)), None)
    if kind is not None and inner.size:
        try:
            return kind.make(inner)
        except HeadraceError as error:
            made = beginning(inner)
            note = f"It is shown as {made.preview.kind}, for as {kind.name} it cannot be: {error.reason}."
            return replace(made, preview=replace(made.preview, notes=(note, *made.preview.notes)))
    return beginning(inner)


def _unpacked(source: Source) -> tuple[bytes, bool, str]:
    """The first bytes of all members, one after the other; whether that is all; what is wrong with what follows."""
    found, at, left, member, members = bytearray(), 0, b"", zlib.decompressobj(_GZIP), 1
    try:
        while len(found) < _MOST:
            if not left:
                left = bytes(source.read(at, at + _PIECE))
                at += len(left)
                if not left:
                    return bytes(found), member.eof, "" if member.eof else "it is cut off"
            if member.eof:
                if not left.strip(b"\0"):  # what pads the last member, as RFC 1952 has it from tapes
                    left = b""
                    continue
                if (members := members + 1) > _MEMBERS:
                    return bytes(found), False, f"it has more than {_MEMBERS:,} members"
                member = zlib.decompressobj(_GZIP)
            found += member.decompress(left, _MOST - len(found))
            left = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        return bytes(found), False, f"it is damaged ({error})"
    return bytes(found), member.eof and not left and at >= source.size, ""


KIND = Kind("gzip", (".gz", ".tgz"), ((0, b"\x1f\x8b\x08"),), _make)
