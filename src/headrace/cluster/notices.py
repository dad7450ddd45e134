"""Nodes that are about to go: Ray calls it draining.

A node drains when who started it gets SIGTERM (a preempted machine, a pod that is deleted; 30 s,
``RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S``), when an autoscaler takes it away, and by ``ray drain-node``. Ray starts
nothing more on it, ends nothing there, and leaves the rest to who uses it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def going(ray: Any) -> dict[str, float]:
    """Ids of the nodes that drain, and when each is gone, of `time.time`; infinite: nobody has said. Any thread.

    Ray tells that through its state module only, which is none of its public ones: where it does not, there is none.
    """
    with suppress(Exception):
        told: dict[str, int] = ray._private.state.state.get_draining_nodes()
        return {name: at / 1000 if at else float("inf") for name, at in told.items()}
    return {}
