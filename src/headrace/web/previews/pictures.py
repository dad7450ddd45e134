"""Pictures: made small and new here, so that no byte of the file comes to a browser."""

from __future__ import annotations

from typing import Final

from headrace.loader import PICTURE_SUFFIXES, about_picture, small_picture
from headrace.web.previews.preview import Kind, Made, Preview, facts
from headrace.web.previews.source import Source

_SIDE: Final = 720
"""Pixels: no side of what is shown is longer."""


def _make(source: Source) -> Made:
    data = bytes(source.read(0, source.size))
    about = about_picture(data, source.path)
    made = small_picture(data, source.path, side=_SIDE)
    size = f"{about.width:,} × {about.height:,} pixels"
    told = facts(format=about.format, size=size, mode=about.mode, frames=about.frames if about.frames > 1 else None)
    notes = ("The first of its frames.",) if about.frames > 1 else ()
    if max(about.width, about.height) > _SIDE:
        notes += (f"It is shown smaller: at most {_SIDE} pixels a side.",)
    return Made(Preview("picture", told, notes, picture=True), made)


KIND = Kind(
    "picture",
    tuple(f".{one}" for one in sorted(PICTURE_SUFFIXES)),
    ((0, b"\x89PNG\r\n\x1a\n"), (0, b"\xff\xd8\xff"), (0, b"GIF8"), (8, b"WEBP"), (0, b"II*\0"), (0, b"MM\0*")),
    _make,
)
