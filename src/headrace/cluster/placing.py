"""Where a gang is to run: how many processes on which nodes, and the placement group that holds what they need.

https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html: all of a group or nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.cluster.notices import going
from headrace.jobs import Start
from headrace.jobs.spec_parts import ClusterSpec

_LOOK_S: Final = 2.0  # seconds between looks at what is free
_REPLAN_S: Final = 6.0
"""How long a group that should fit is waited for, before it is looked again what is free."""


@dataclass(frozen=True, slots=True)
class Free:
    """What a node has free."""

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Share:
    """What the gang has of a node. `processes`: how many it starts there; None: as the job says."""

    cpus: int
    gpus: int
    processes: int | None = None

    @property
    def bundle(self) -> dict[str, float]:
        """As Ray takes it; a bundle must hold something."""
        asked = {"CPU": float(self.cpus), "GPU": float(self.gpus)}
        return {name: count for name, count in asked.items() if count} or {"CPU": 0.001}


@dataclass(frozen=True, slots=True)
class Placed:
    """A group that is there, and what it has of each of its nodes."""

    group: Any
    shares: tuple[Share, ...]

    def let_go(self) -> None:
        """Give it back; ends the actors in it. Idempotent."""
        from ray.util.placement_group import remove_placement_group  # pyright: ignore

        with suppress(Exception):
            remove_placement_group(self.group)


def planned(wanted: ClusterSpec, free: Sequence[Free]) -> tuple[Share, ...] | None:
    """What to ask each node for; None: there is too little free. Any thread.

    Nodes are asked for as they are wanted, whatever is free: Ray waits for them, and an autoscaler sees what is asked
    for. Workers are spread over as few nodes as hold them, up to the most that are wanted.
    """
    if wanted.workers is None:
        return (Share(wanted.cpus_per_node, wanted.gpus_per_node),) * wanted.nodes
    least, most = wanted.workers
    rooms = sorted((_room(wanted, node) for node in free), reverse=True)
    sizes: list[int] = []
    for room in rooms:
        if size := min(room, most - sum(sizes)):
            sizes.append(size)
    if sum(sizes) < least:
        return None
    return tuple(Share(wanted.cpus_per_worker * size, wanted.gpus_per_worker * size, size) for size in sizes)


def ask(ray: Any, wanted: ClusterSpec) -> Placed | None:
    """Ask for what the job wants, without waiting for it; None: there is too little free."""
    from ray.util.placement_group import placement_group  # pyright: ignore

    shares = planned(wanted, _free(ray))
    if shares is None:
        return None
    return Placed(placement_group([share.bundle for share in shares], strategy="STRICT_SPREAD"), shares)


def is_there(ray: Any, start: Start, asked: Placed) -> bool:
    """Wait until the cluster gives what was asked for, saying so. False: it was to stop meanwhile; or what is free must
    be looked at anew. Then it is let go.
    """
    told, until = "", time.monotonic() + _REPLAN_S
    while not start.stopped():
        if asked.group.wait(_LOOK_S):
            return True
        told = _say(ray, start, told)
        if start.job.spec.cluster.workers is not None and time.monotonic() > until:
            break
    asked.let_go()
    return False


def wait_for_room(ray: Any, start: Start) -> Placed | None:
    """Ask until there is enough, saying so; None: it was to stop meanwhile."""
    told = ""
    while not start.stopped():
        if asked := ask(ray, start.job.spec.cluster):
            return asked
        told = _say(ray, start, told)
        time.sleep(_LOOK_S)
    return None


def _room(wanted: ClusterSpec, node: Free) -> int:
    """Workers that a node has room for."""
    rooms = [int(node.cpus // wanted.cpus_per_worker)] if wanted.cpus_per_worker else []
    rooms += [int(node.gpus // wanted.gpus_per_worker)] if wanted.gpus_per_worker else []
    return min(rooms, default=0)


def _free(ray: Any) -> list[Free]:
    """Of each node that lives. Ray tells that through its state module only, which is none of its public ones."""
    alive = {one["NodeID"]: one["Resources"] for one in _staying(ray)}
    with suppress(Exception):
        told = ray._private.state.available_resources_per_node()
        alive = {name: told.get(name, {}) for name in alive}
    return [Free(one.get("CPU", 0.0), one.get("GPU", 0.0)) for one in alive.values()]


def _staying(ray: Any) -> list[dict[str, Any]]:
    """Nodes that live, and are not about to go: Ray starts nothing more on those."""
    leaving = going(ray)
    return [one for one in ray.nodes() if one["Alive"] and one["NodeID"] not in leaving]


def _say(ray: Any, start: Start, told: str) -> str:
    """Why it waits, if that is another reason than `told`."""
    said = waits_for(start.job.spec.cluster, [one["Resources"] for one in _staying(ray)], _free(ray))
    if said != told:
        start.waits(said)
        start.tell(f"waits: {said}")
    return said


def waits_for(wanted: ClusterSpec, nodes: Sequence[dict[str, float]], free: Sequence[Free]) -> str:
    """What it asks for, and what there is, for people. `nodes`: all that each has, free or not."""
    if wanted.workers is not None:
        least, most = wanted.workers
        many = f"{least}" if least == most else f"{least} to {most}"
        each, unit = _amount(wanted.cpus_per_worker, wanted.gpus_per_worker), "workers"
    else:
        many, each, unit = f"{wanted.nodes}", _amount(wanted.cpus_per_node, wanted.gpus_per_node), "nodes"
    able = sum(
        node.get("CPU", 0) >= (wanted.cpus_per_worker if unit == "workers" else wanted.cpus_per_node)
        and node.get("GPU", 0) >= (wanted.gpus_per_worker if unit == "workers" else wanted.gpus_per_node)
        for node in nodes
    )
    there = _amount(sum(one.cpus for one in free), sum(one.gpus for one in free))
    return f"asks for {many} {unit} with {each} each; {able} of {len(nodes)} nodes are large enough, {there} are free"


def _amount(cpus: float, gpus: float) -> str:
    parts = [f"{cpus:g} {'CPU' if cpus == 1 else 'CPUs'}", f"{gpus:g} {'GPU' if gpus == 1 else 'GPUs'}" if gpus else ""]
    return " and ".join(part for part in parts if part)
