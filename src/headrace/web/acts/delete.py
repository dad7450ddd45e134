"""``/act/runs/ID/delete``: what `headrace runs rm` does."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.web.told import Act, Done
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: an id. `force`: also if it is not over."""

    run: str
    force: bool = False


@dataclass(frozen=True, slots=True)
class Deleted(Done):
    """`objects`: how many that were."""

    objects: int = 0


def delete(world: World, asked: Asked) -> Deleted:
    """All that is recorded of it. Raises NotFoundError: there is no such run. InputError: it is not over."""
    run = world.runs.run(asked.run)
    run.record()
    if not asked.force:
        run.check_over()
    count = run.delete()
    world.forget(run.id)
    return Deleted(f"{run.id} is deleted: {count:,} objects.", "/runs", count)


ACT = Act(
    "/runs/{run}/delete", "delete", "delete-runs", Asked, Deleted, delete,
    "Delete all that is recorded of a run: logs, metrics, outputs, checkpoints.",
)  # fmt: skip
