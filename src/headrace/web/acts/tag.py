"""``/act/runs/ID/tag``: what `headrace runs tag` and `headrace runs note` do."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.web.told import Act, Done
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: an id. `tags`: all that it shall have; None: as it has. `change`: tags that are given beside what it has;
    of a null value: taken away. `note`: None: as it is. `over`: the version that was seen (`noted` of the run; empty:
    there was none); None: what is there now.
    """

    run: str
    tags: dict[str, str] | None = None
    change: dict[str, str | None] | None = None
    note: str | None = None
    over: str | None = None


@dataclass(frozen=True, slots=True)
class Tagged(Done):
    """What it has now, and its version."""

    tags: dict[str, str] | None = None
    note: str = ""
    noted: str = ""


def tag(world: World, asked: Asked) -> Tagged:
    """Raises ChangedError: somebody else changed them since. NotFoundError: there is no such run. InputError."""
    run = world.runs.run(asked.run)
    record = run.record()
    kept = run.notes(record)
    changes: dict[str, str | None] = {}
    if asked.tags is not None:
        changes = {**dict.fromkeys(kept.notes.tags_over(record)), **asked.tags}
    changes |= asked.change or {}
    try:
        kept = run.annotate(changes, asked.note, over=kept.version if asked.over is None else asked.over)
    finally:
        world.renew(run.id)  # who is told that they were changed looks again, and shall see them
    tags = kept.notes.tags_over(record)
    return Tagged(f"{run.id} is tagged anew.", None, tags, kept.notes.note, kept.version)


ACT = Act("/runs/{run}/tag", "tag", "tag", Asked, Tagged, tag, "Give a run tags and a note, whenever it ran.")
