"""Mode, owner and modification time in an object's metadata, under the names that s3fs and rclone use.

`mode` is `st_mode` in decimal, type included, as s3fs writes it (rclone's octal text is understood); `uid` and `gid`
are decimal; `mtime` is seconds since the epoch with nine decimals, which both read. A symbolic link is an object named
``<name>.rclonelink`` that holds its target, as rclone's ``--links`` has it: a listing shows it for what it is.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LINK_SUFFIX: Final = ".rclonelink"
NAMES: Final = ("mode", "uid", "gid", "mtime")
_LARGEST_MODE: Final = 0o177777  # type and permissions have 16 bits
_NS: Final = 1_000_000_000  # nanoseconds in a second


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a file's metadata says of it; None: it says nothing.

    `mode`: as `st_mode`, with the type's bits. `mtime_ns`: nanoseconds since the epoch.
    """

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime_ns: int | None = None

    def over(self, other: Attributes) -> Attributes:
        """These, and `other`'s where these say nothing."""
        return Attributes(
            other.mode if self.mode is None else self.mode,
            other.uid if self.uid is None else self.uid,
            other.gid if self.gid is None else self.gid,
            other.mtime_ns if self.mtime_ns is None else self.mtime_ns,
        )

    def metadata(self, kind: int = stat.S_IFREG) -> dict[str, str]:
        """As an object's metadata. `kind`: the type's bits where `mode` has none."""
        found: dict[str, str] = {}
        if self.mode is not None:
            found["mode"] = str(self.mode if stat.S_IFMT(self.mode) else self.mode | kind)
        if self.uid is not None:
            found["uid"] = str(self.uid)
        if self.gid is not None:
            found["gid"] = str(self.gid)
        if self.mtime_ns is not None:
            seconds, rest = divmod(abs(self.mtime_ns), _NS)
            found["mtime"] = f"{'-' if self.mtime_ns < 0 else ''}{seconds}.{rest:09d}"
        return found


def from_metadata(metadata: Mapping[str, str]) -> Attributes:
    """What an object's metadata says; names in lower case. What cannot be read counts as not said."""
    mode, uid, gid, mtime = (metadata.get(name) for name in NAMES)
    return Attributes(_mode(mode), _count(uid), _count(gid), _time(mtime))


def link_path(path: str) -> str:
    """Where the symbolic link shown at `path` is stored."""
    return path + LINK_SUFFIX


def is_link(name: str) -> bool:
    """Whether an object of this name is shown as a symbolic link."""
    return name.endswith(LINK_SUFFIX) and name != LINK_SUFFIX


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _mode(text: str | None) -> int | None:
    """Decimal, or octal: a leading 0, or a number that no mode has in decimal, such as rclone's ``100644``."""
    number = _count(text)
    if number is None or text is None:
        return None
    if (text.startswith("0") and len(text) > 1) or number > _LARGEST_MODE:
        try:
            number = int(text, 8)
        except ValueError:
            return None
    return number if number <= _LARGEST_MODE else None


def _time(text: str | None) -> int | None:
    """Exact: a float would lose nanoseconds."""
    seconds, _, fraction = (text or "").partition(".")
    sign = -1 if seconds.startswith("-") else 1
    whole, part = _count(seconds.removeprefix("-")), _count((fraction or "0")[:9].ljust(9, "0"))
    if whole is None or part is None:
        return None
    return sign * (whole * _NS + part)
