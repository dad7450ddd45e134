"""A run ordered to stop, from any machine; and waited for."""

from __future__ import annotations

import time
from typing import NamedTuple

from headrace.base.errors import DeadlineError
from headrace.tracking.record import Order
from headrace.tracking.runs import Run, RunView

_LOOK_S = 1.0  # seconds between looks whether the run is over


class Stopped(NamedTuple):
    """How the run stands now. `ordered`: it was not over, and was ordered to stop."""

    view: RunView
    ordered: bool


def stop(run: Run, grace_s: float | None = None, *, wait_s: float | None = None) -> Stopped:
    """Order a run to stop; its runner sees that within seconds, wherever it is. One that is over is left alone.

    Args:
        run: which.
        grace_s: between SIGTERM and SIGKILL; None: as the job says.
        wait_s: wait so long, at most, until it is over; None: not at all.

    Any thread.

    Raises:
        NotFoundError: there is no such run. ReadOnlyError: the home. DeadlineError: it is not over after `wait_s`. Any
        store error.
    """
    view = run.look()
    if view.over:
        return Stopped(view, ordered=False)
    run.order_stop(Order.from_here(grace_s))
    if wait_s is None:
        return Stopped(view, ordered=True)
    until = time.monotonic() + wait_s
    while not (view := run.look()).over and time.monotonic() < until:
        time.sleep(_LOOK_S)
    if not view.over:
        raise DeadlineError(f"is still {view.state}", path=run.id, hint="headrace logs tells what it does")
    return Stopped(view, ordered=True)
