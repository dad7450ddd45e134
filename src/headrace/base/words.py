"""How values are written on a page. Names and lines of a log are anybody's text: what would hide it is shown."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime
from typing import Any, Final

from headrace.base.units import format_bytes, format_seconds

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: object) -> str:
    """Text as it may stand on a page: control characters, and those that turn the direction of what follows, by their
    numbers; lone surrogates as U+FFFD.
    """
    whole = str(text)
    if whole.isascii() and whole.isprintable():
        return whole
    return "".join(_one(letter) for letter in whole)


def _one(letter: str) -> str:
    if letter in _BIDI or (unicodedata.category(letter) in ("Cc", "Cf") and letter not in "\t\n\u200d"):
        return f"\\u{ord(letter):04x}" if ord(letter) > 0xFF else f"\\x{ord(letter):02x}"
    return "\ufffd" if unicodedata.category(letter) == "Cs" else letter


def number(value: float | None) -> str:
    """Four significant digits; what is no number by its name."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:.4g}"


def count(value: float | None) -> str:
    """With commas."""
    return "–" if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """Per cent."""
    return "–" if value is None else f"{100 * value:.0f} %"


def size(value: float | None) -> str:
    """Bytes."""
    return "–" if value is None else format_bytes(value)


def span(value: float | None) -> str:
    """Seconds."""
    if value is None:
        return "–"
    if value < 3600:
        return format_seconds(value) if value < 60 else f"{int(value // 60)}m {int(value % 60)}s"
    hours = int(value // 3600)
    if hours < 48:
        return f"{hours}h {int(value % 3600 // 60)}m"
    return f"{hours // 24}d {hours % 24}h"


def moment(text: str | None) -> str:
    """RFC 3339, to the second, UTC."""
    return (text or "")[:19].replace("T", " ")


def ago(text: str | None) -> str:
    """How long since then."""
    if not text:
        return "–"
    seconds = (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()
    return "now" if seconds < 5 else f"{span(seconds)} ago"


def command(words: Any) -> str:
    """As a shell takes it."""
    import shlex

    return plain(shlex.join(words))


FILTERS: Final = {
    "plain": plain, "number": number, "count": count, "share": share, "size": size, "span": span, "moment": moment,
    "ago": ago, "command": command,
}  # fmt: skip
