"""Bytes, seconds and moments as people write them: ``"512MB"``, ``"1.5GiB"``, ``"30s"``, ``"2h"``, ``"2026-01-31"``."""

from __future__ import annotations

import re
import time
from datetime import datetime

from headrace.base.errors import InputError, SettingError

_BYTES = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*\Z")


def parse_bytes(text: str | int, *, name: str = "size") -> int:
    """Bytes from ``"512MB"`` (powers of 1000), ``"512MiB"`` (powers of 1024), or a plain number of bytes.

    Raises:
        SettingError: not a size; `name` says which setting it was.
    """
    if isinstance(text, int):
        if text < 0:
            raise SettingError(f"{name}: {text} is negative", hint="sizes are zero or more bytes")
        return text
    match = _NUMBER.match(text)
    unit = _BYTES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise SettingError(f"{name}: {text!r} is not a size", hint="write it like 512MB, 1.5GiB or 1048576")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def parse_seconds(text: str | float, *, name: str = "duration") -> float:
    """Seconds from ``"30s"``, ``"250ms"``, ``"5m"``, ``"2h"``, ``"1d"``, or a plain number of seconds.

    Raises:
        SettingError: not a duration; `name` says which setting it was.
    """
    if isinstance(text, (int, float)):
        if not text >= 0:
            raise SettingError(f"{name}: {text} is negative", hint="durations are zero or more seconds")
        return float(text)
    match = _NUMBER.match(text)
    unit = _SECONDS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise SettingError(f"{name}: {text!r} is not a duration", hint="write it like 30s, 250ms or 5m")
    return float(match[1]) * unit


def parse_moment(text: str | float, *, name: str = "time") -> float:
    """Seconds since the epoch from ``"2d"`` (so long ago), ``"2026-01-31T12:00"`` (in this machine's zone where it
    names none), or a number of such seconds.

    Raises:
        InputError: not a time. SettingError: not a duration. `name` says which option it was.
    """
    if isinstance(text, (int, float)):
        return float(text)
    if "-" not in text:
        return time.time() - parse_seconds(text, name=name)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InputError(f"{name} {text}: is no time", hint="like 2d, 3h, or 2026-01-31T12:00") from None


def format_bytes(count: float) -> str:
    """``1234567`` → ``"1.23 MB"`` (powers of 1000, three significant digits)."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if abs(count) < 999.5:
            return f"{count:.3g} {unit}"
    return f"{count / 1000:.3g} PB"


def format_seconds(seconds: float) -> str:
    """``0.0123`` → ``"12.3 ms"``; ``75`` → ``"1m15s"``."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"
