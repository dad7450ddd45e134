"""Griffe's extension: what a docstring says of errors becomes a list.

Google's style wants one name a line; ours says several at once, or points to another function. Each is kept as written.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_RAISES = re.compile(r"^Raises:\n((?:[ ]+\S.*\n?)+)", re.MULTILINE)
_NAMED = re.compile(r"\w+Error(?:, \w+Error)*:")


class Raises(griffe.Extension):
    """For all docstrings that are shown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """As Griffe asks: `obj` has been read."""
        if obj.docstring is not None:
            obj.docstring.value = _RAISES.sub(_listed, obj.docstring.value)


def _listed(found: re.Match[str]) -> str:
    entries: list[str] = []
    for line in map(str.strip, found[1].splitlines()):
        if _NAMED.match(line) or not entries:
            entries.append(line)
        else:
            entries[-1] += " " + line
    return "**Raises**\n\n" + "\n".join(f"- {entry}" for entry in entries) + "\n"
