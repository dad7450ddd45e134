"""``/act/runs/ID/stop``: what `headrace stop` does."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.base.errors import InputError
from headrace.tracking.stopping import stop as order
from headrace.web.told import Act, Done
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: an id. `grace`: seconds between SIGTERM and SIGKILL; None: as the job says."""

    run: str
    grace: float | None = None


def stop(world: World, asked: Asked) -> Done:
    """Order it to. Raises NotFoundError: there is no such run. InputError: a grace below zero."""
    if asked.grace is not None and not asked.grace >= 0:
        raise InputError(f"{asked.grace} is no time", path="grace", hint="seconds, 0 or more")
    run = world.runs.run(asked.run)
    stopped = order(run, asked.grace)
    if not stopped.ordered:
        world.followers.forget(run.id)
        return Done(f"{run.id} was over already: {stopped.view.state}.")
    return Done(f"{run.id} is ordered to stop. Its runner sees that within seconds.")


ACT = Act("/runs/{run}/stop", "stop", "stop", Asked, Done, stop, "Order a run to stop, wherever it is.")
