"""How many tasks run side by side on this machine: as many as its CPUs and GPUs that they ask for allow."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.jobs.resources import Machine
from headrace.jobs.spec_parts import ResourceSpec


class Room:
    """What one job's tasks have of the machine. One thread.

    Args:
        machine: what there is; None: it is not ours to give (a cluster's).
        at_once: most tasks side by side; None: as many as fit, and one that asks for nothing has the machine alone.
    """

    def __init__(self, machine: Machine | None, at_once: int | None) -> None:
        self._machine, self._at_once = machine, at_once

    def fits(self, wanted: ResourceSpec, running: Sequence[ResourceSpec]) -> bool:
        """Whether one more may start. Alone each may: what the machine does not have is refused when it starts."""
        if not running:
            return True
        if self._at_once is not None and len(running) >= self._at_once:
            return False
        if self._machine is None:
            return True
        every = [*running, wanted]
        if self._at_once is None and any(not one.cpus and one.gpus == "all" for one in every):
            return False
        named = [number for one in every if isinstance(one.gpus, tuple) for number in one.gpus]
        cpus, gpus = sum(one.cpus for one in every), sum(_gpus(one) for one in every)
        free = cpus <= len(self._machine.cpus) and gpus <= len(self._machine.gpus)
        return free and len(set(named)) == len(named)


def _gpus(wanted: ResourceSpec) -> int:
    """How many it asks for; ``all`` asks for none by number."""
    if isinstance(wanted.gpus, tuple):
        return len(wanted.gpus)
    return wanted.gpus if isinstance(wanted.gpus, int) else 0
