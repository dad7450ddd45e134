"""Parts of a run's record in words, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.base.units import format_bytes

_SHORT = 12  # characters of a commit: enough to name it in any repository
_KIN = {"resume": "goes on with", "task": "is a task of"}


def code(told: Mapping[str, Any] | None) -> str:
    """Which commit, and what was not committed."""
    if told is None:
        return "not recorded"
    size = f"{_counted(told['files'], 'file')}, {format_bytes(told['bytes'])}"
    if told["commit"] is None:
        return f"a folder without git ({size})"
    commit = told["commit"][:_SHORT]
    if told["kind"] == "checkout":
        return f"a clean checkout of {commit} ({size})"
    changed = told["staged"] + told["unstaged"]
    parts = [f"{changed:,} changed"] if changed else []
    parts += [f"{told['untracked']:,} new"] if told["untracked"] else []
    what = f"files {' and '.join(parts)}" if parts else "with changes" if told["dirty"] else "as committed"
    unpushed = f", {_counted(told['unpushed'], 'commit')} unpushed" if told["unpushed"] else ""
    return f"{commit}{' on ' + told['branch'] if told['branch'] else ''}, {what}{unpushed} ({size})"


def environment(told: Mapping[str, Any]) -> str | None:
    """An image, a lock file's environment, or the caller's own."""
    packages = f"{told.get('python')}, {_counted(len(told.get('packages') or ()), 'package')}"
    if told.get("image"):
        return str(told["image"])
    if told.get("lock"):
        return f"{told['lock']} ({packages})"
    return f"the caller's ({packages})" if told else None


def inputs(told: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Which data, how much of it, and how it was given."""
    parts: list[str] = []
    for name, one in told.items():
        what = f"{_counted(one['objects'], 'object')}, {format_bytes(one['bytes'])}"
        parts.append(f"{name} = {one['snapshot'] or one['source']} ({what}, as {one['given']})")
    return "; ".join(parts) or None


def parent(told: Mapping[str, Any] | None) -> str | None:
    """Which run it repeats, goes on with, or is a task of."""
    if told is None:
        return None
    return f"{_KIN.get(told['as'], 'repeats')} {told['run']}"


def tags(told: Mapping[str, str]) -> str | None:
    """As options of the list take them."""
    return " ".join(f"{name}={value}" if value else name for name, value in told.items()) or None


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
