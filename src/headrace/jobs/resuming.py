"""From where a run goes on: the newest complete checkpoint of the runs that led to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from headrace.base.errors import HeadraceError
from headrace.jobs.bring import bring_checkpoint
from headrace.tracking.newest import newest_checkpoint
from headrace.tracking.runs import Run

_FARTHEST: Final = 100
"""Runs that are looked at: two requests each, and one a checkpoint, while the command waits."""


def lineage(first: Run, started: str, tell: Callable[[str], None]) -> Iterator[Run]:
    """`first`, the run that it was resumed from, the one that this was resumed from, and so on; each once.

    `started`: id of the run that is being started, which is none of them, though an id that was deleted and given
    again may lead back to it. A run that was merely run again (`rerun`) began at the beginning, and ends the line.
    `tell` gets why it ends early. Records are read as the line is walked.
    """
    run: Run | None = first
    seen = {started}
    while run is not None and run.id not in seen:
        if len(seen) > _FARTHEST:
            tell(f"{_FARTHEST} runs were looked at, those before {run.id} are not")
            return
        seen.add(run.id)
        yield run
        try:
            run = run.resumed_from()
        except HeadraceError as error:
            tell(f"nobody knows what {run.id} was resumed from: {error}")
            return


def resume(runs: Iterable[Run], folder: str, tell: Callable[[str], None]) -> str | None:
    """Bring the newest complete checkpoint of the first of `runs` that has one into `folder`; its path there.

    None: there is none. `tell` gets whose it is, whether only its name makes it the newest, and what was looked for
    in vain. Raises nothing: who cannot have a checkpoint begins without.
    """
    for run in runs:
        try:
            newest = newest_checkpoint(run)
            if newest is not None:
                tell(f"goes on from checkpoint {newest.name} of {run.id}{newest.doubt}")
                return bring_checkpoint(run, newest.name, folder)
            tell(f"{run.id} has no complete checkpoint")
        except (HeadraceError, OSError) as error:
            tell(f"no checkpoint can be had of {run.id}: {error}")
    return None
