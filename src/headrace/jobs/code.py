"""What a run's record says about its code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, cast

from headrace.base.errors import CorruptError

FORMAT: Final = 1
_LATER = "was this run recorded by a later version of headrace?"


@dataclass(frozen=True, slots=True)
class Code:
    """What was captured. `kind`: ``git`` (a working tree), ``folder`` (no git there), ``checkout`` (of URL@REF).

    `digest`: SHA-256 of the tree, see archive.py; `files`, `bytes`: of the tree, links counted too; `commit`: HEAD's;
    `branch` None: detached; `remote`: its URL, without credentials; `ref`: what a checkout was asked for; `subfolder`:
    where the command runs, below the tree's root; `staged`, `unstaged`, `untracked`: files; `unpushed`: commits;
    `outside`: links that lead out of the tree; `notes`: what is worth knowing, for people.
    """

    kind: str
    digest: str
    files: int
    bytes: int
    commit: str | None = None
    branch: str | None = None
    remote: str | None = None
    ref: str | None = None
    subfolder: str = ""
    dirty: bool = False
    staged: int = 0
    unstaged: int = 0
    untracked: int = 0
    unpushed: int = 0
    outside: int = 0
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For the run's record; all text is valid Unicode."""
        return {"format": FORMAT, **asdict(self), "notes": list(self.notes)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Code:
        """What `as_json` gave. Fields that are not known are passed over.

        Raises:
            CorruptError: it is none, or of a later format.
        """
        if told.get("format") != FORMAT:
            raise CorruptError(f"code of a run: format {told.get('format')!r} is not known", hint=_LATER)
        known: dict[str, Any] = {one.name: told[one.name] for one in fields(cls) if one.name in told}
        for name, value in known.items():
            if not _CHECKS[name](value):
                raise CorruptError(f"code of a run: {name} cannot be {value!r}", hint=_LATER)
        known["notes"] = tuple(known.get("notes", ()))
        try:
            return cls(**known)
        except TypeError as error:
            raise CorruptError(f"code of a run: {error}", hint=_LATER) from error


def is_below(value: object) -> bool:
    """Whether it is a folder's name below another, as text; the empty one is that folder itself."""
    if not isinstance(value, str) or value.startswith("/") or ".." in value.split("/") or "\0" in value:
        return False
    return value == value.encode("utf-8", "replace").decode("utf-8")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_text, cast("list[object]", value)))


_CHECKS: Final = {
    **dict.fromkeys(("kind", "digest"), _is_text),
    **dict.fromkeys(("commit", "branch", "remote", "ref"), _is_text_or_none),
    **dict.fromkeys(("files", "bytes", "staged", "unstaged", "untracked", "unpushed", "outside"), _is_count),
    "subfolder": is_below,
    "dirty": _is_flag,
    "notes": _is_texts,
}
