"""Text, whatever its encoding, and bytes that are none: the first lines."""

from __future__ import annotations

import codecs
from typing import Final

from headrace.base.units import format_bytes
from headrace.web.previews.preview import Made, Preview, cut
from headrace.web.previews.source import Source

_READ: Final = 64 << 10  # bytes of the beginning that are read
_LINES: Final = 200  # lines shown
_LINE: Final = 500  # characters of a line
_HEX: Final = 256  # bytes shown of what is no text
_ODD: Final = 0.1
"""Share of characters that no text has, up to which bytes are taken for text."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


def beginning(source: Source) -> Made:
    """Of any file. Raises what reading raises."""
    if not source.size:
        return Made(Preview("empty", notes=("It is empty.",)))
    data = bytes(source.read(0, _READ))
    text = decoded(data, whole=len(data) == source.size)
    return Made(_bytes(data, source.size) if text is None else _text(text, len(data), source.size))


def decoded(data: bytes, *, whole: bool) -> str | None:
    """None: it is no text. What is no character is U+FFFD."""
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    if encoding is None and b"\0" in data:
        return None
    text = data.decode(encoding or "utf-8", "replace").removeprefix("\ufeff")
    if not whole:
        text = text.rstrip("\ufffd")  # cut within a character
    odd = sum(letter == "\ufffd" or not (letter.isprintable() or letter in "\t\r\n\f\x1b") for letter in text)
    return text if odd <= _ODD * len(text) else None


def _text(text: str, read: int, size: int) -> Preview:
    lines = text.replace("\r\n", "\n").split("\n")
    complete = read == size
    if complete and lines[-1] == "":
        lines.pop()
    notes: list[str] = []
    if len(lines) > _LINES or not complete:
        count = min(len(lines), _LINES)
        notes.append(f"The first {f'{count:,} lines' if count > 1 else 'line'} of {format_bytes(size)}.")
    shown = lines[:_LINES]
    if any(len(line) > _LINE for line in shown):
        notes.append(f"Lines of more than {_LINE} characters are cut: they end with …")
    return Preview("text", notes=tuple(notes), text="\n".join(cut(line, _LINE) for line in shown))


def _bytes(data: bytes, size: int) -> Preview:
    lines: list[str] = []
    for at in range(0, min(len(data), _HEX), 16):
        row = data[at : at + 16]
        letters = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {letters}")
    notes = (f"The first {_HEX} of {size:,} bytes.",) if size > _HEX else ()
    return Preview("bytes", notes=notes, text="\n".join(lines))
