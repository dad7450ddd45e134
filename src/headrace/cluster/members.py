"""The nodes of a gang, as who leads it sees them."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from headrace.cluster.connection import ray_module
from headrace.cluster.node import Node
from headrace.cluster.placing import Placed
from headrace.cluster.submission import Submission
from headrace.cluster.told import Machine


class NodeActor(Node):
    """A node, where Ray has placed it."""

    def __init__(self, submission: Submission, number: int, attempt: int, processes: int | None) -> None:
        super().__init__(submission, number, attempt, processes, ray_module().util.get_node_ip_address())

    def prepare(self) -> Machine:
        """As `Node` does, with the name that Ray has for it."""
        return replace(super().prepare(), id=ray_module().get_runtime_context().get_node_id())


class GoneError(Exception):
    """A node is gone before the attempt has begun on all of them."""


class Member:
    """One node of the gang, as seen from who leads it."""

    def __init__(self, number: int, actor: Any) -> None:
        self.number, self.actor = number, actor
        self.machine: Machine | None = None
        self.ranks: set[int] = set()
        """Those of its processes that have not ended."""
        self.gone = ""
        """Why it does not answer any more."""
        self.goes_at = float("inf")
        """When its machine is switched off, as far as anybody says; of `time.time`."""

    @property
    def rest(self) -> float:
        """Seconds that its machine is there, at least one."""
        return max(1.0, self.goes_at - time.time())

    def __str__(self) -> str:
        return f"node {self.number}" + (f" ({self.machine.host})" if self.machine is not None else "")


@dataclass(frozen=True, slots=True)
class Asked:
    """Nodes that were asked for, and an actor for each."""

    placed: Placed
    members: tuple[Member, ...]
