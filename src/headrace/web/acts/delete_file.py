"""``/act/delete``: what `headrace rm` does with one file."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from headrace.base.errors import ChangedError, InputError
from headrace.web.pages import browse
from headrace.web.told import Act, Done
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """`path`: of a file; `version`: the one that is meant, none: whatever is there."""

    path: str
    version: str = ""


def delete(world: World, asked: Asked) -> Done:
    """Delete it. Raises NotFoundError, ReadOnlyError, ChangedError: it is another by now. InputError: a folder."""
    browse.check(asked.path)
    found = world.tree.stat(asked.path, refresh=True)
    if not found.is_file:
        raise InputError("is a folder", path=asked.path, hint=f"headrace rm -r {asked.path}")
    if asked.version and found.version != asked.version:
        raise ChangedError("it is another by now", path=asked.path, hint="look at it again")
    world.tree.delete(asked.path)
    world.forget_listings()
    folder = asked.path[: asked.path.rfind("/") + 1]
    return Done(f"{asked.path} is deleted.", f"/files{quote(folder)}")


ACT = Act("/delete", "delete-file", "write", Asked, Done, delete, "Delete a file.")
