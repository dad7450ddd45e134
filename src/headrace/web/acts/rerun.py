"""``/act/runs/ID/rerun``: what `headrace rerun` does, on the machine of this server."""

from __future__ import annotations

import logging
import subprocess
import threading
from dataclasses import dataclass
from typing import Final

from headrace.jobs import begin, failure
from headrace.tracking.record import new_id
from headrace.web.told import Act, Done
from headrace.web.world import World

_log = logging.getLogger("headrace.web")
_WAIT_S: Final = 20.0  # seconds until the run is recorded: its code and inputs are found first


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: an id. `resume`: go on from its newest complete checkpoint."""

    run: str
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Begun(Done):
    """`run`: the new one. `recorded`: False, it is still being prepared: an environment is built, an image fetched."""

    run: str = ""
    recorded: bool = False


def rerun(world: World, asked: Asked) -> Begun:
    """As another run, which is told of once it is recorded, or after some seconds.

    Raises NotFoundError: there is no such run. What the command says, with its exit code's class.
    """
    run = world.runs.run(asked.run)
    new = new_id(run.record().name)
    process = begin(["rerun", "--detach", "--id", new, *(["--resume"] if asked.resume else []), "--", run.id])
    try:
        _, told = process.communicate(timeout=_WAIT_S)
    except subprocess.TimeoutExpired:
        threading.Thread(target=_follow, args=(process, new), name="headrace-web-rerun", daemon=True).start()
        return Begun(f"{new} is being prepared. It is in the list of runs once it starts.", "/runs", new)
    if process.returncode:
        raise failure("rerun", process.returncode, told, run.id)
    world.renew(new)
    return Begun(f"{new} has begun.", f"/runs/{new}", new, recorded=True)


def _follow(process: subprocess.Popen[str], new: str) -> None:
    """Until it has begun; nobody waits for it any more, so what went wrong is for who reads what the server prints."""
    _, told = process.communicate()
    if process.returncode:
        _log.warning("%s has not begun: %s", new, told.strip())


ACT = Act(
    "/runs/{run}/rerun", "rerun", "rerun", Asked, Begun, rerun, "Run a run again from its record, on this machine."
)
