"""Pieces of work under way on a cluster: tasks of Ray's, and how each of them ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import TryAgainError
from headrace.cluster.connection import translated
from headrace.cluster.worker import Answer, do

_LOOK_S: Final = 2.0
"""How long it is waited for the end of any piece, before nodes are looked for again."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node of the cluster that can do work. `id`: as Ray has it; `name`: for people; `place`: its address, as
    `headrace.fetch.rendezvous.names_of` makes it: by that objects fall to it.
    """

    id: str
    name: str
    cpus: float
    place: str


@dataclass(frozen=True, slots=True)
class Options:
    """How pieces are worked on.

    Args:
        name: what Ray's own pages call them.
        cpus: that a piece has for itself on its node.
        tries: how often a piece is begun, before it counts as the piece's own fault that its workers die.
        tell: called with a sentence when a piece is lost, or nobody can work; in the thread that iterates.
    """

    name: str = "headrace"
    cpus: float = 1.0
    tries: int = 4
    tell: Callable[[str], None] = lambda _text: None


@dataclass(slots=True)
class Begun:
    """A piece, how often it was begun, and the node that it is tied to."""

    piece: Any
    machine: Machine | None = None
    tries: int = 0


class Flight:
    """Pieces under way: tasks of Ray's. `asked`: what they have in common, as Ray holds it."""

    def __init__(self, ray: Any, asked: Any, options: Options, address: str) -> None:
        self._ray, self._asked, self._options, self._address = ray, asked, options, address
        self._task: Any = ray.remote(do)
        self._under_way: dict[Any, Begun] = {}
        self._told_idle = False

    def __len__(self) -> int:
        return len(self._under_way)

    def of(self, node: str) -> int:
        """How many are under way on a node."""
        return sum(one.machine is not None and one.machine.id == node for one in self._under_way.values())

    def room(self, machines: Sequence[Machine]) -> int:
        """How many keep them busy: one more each than can run. At least one, for a cluster that grows when asked."""
        able = [machine for machine in machines if machine.cpus >= self._options.cpus]
        if not able and not self._told_idle:
            self._told_idle = True
            self._options.tell(f"waits: no node of the cluster has {self._options.cpus:g} CPUs")
        return sum(int(machine.cpus // (self._options.cpus or 1.0)) + 1 for machine in able) or 1

    def begin(self, begun: Begun) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore

        begun.tries += 1
        where: Any = "SPREAD"
        if begun.machine is not None:
            where = NodeAffinitySchedulingStrategy(begun.machine.id, soft=False)
        task = self._task.options(
            name=self._options.name, num_cpus=self._options.cpus, max_retries=0, scheduling_strategy=where
        )
        try:
            self._under_way[task.remote(self._asked, begun.piece)] = begun
        except Exception as error:
            raise translated(error, self._address) from error

    def ended(self) -> Iterator[tuple[Begun, Answer | Exception]]:
        """What has ended, or was lost with its worker, after some seconds at most. Raises what the work raised."""
        try:
            ready, _ = self._ray.wait(list(self._under_way), num_returns=1, timeout=_LOOK_S)
        except Exception as error:
            raise translated(error, self._address) from error
        for ref in ready:
            begun = self._under_way.pop(ref)
            yield begun, self._got(ref)

    def _got(self, ref: Any) -> Answer | Exception:
        try:
            return self._ray.get(ref)
        except Exception as error:
            if not self._is_lost(error):
                raise translated(error, self._address) from error
            return error

    def told_lost(self, begun: Begun, error: Exception) -> None:
        """Say so. Raises TryAgainError: it was lost as often as it may be."""
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if begun.tries >= self._options.tries:
            hint = "is a node short of memory, or going? `ray status` tells how the cluster is"
            raise TryAgainError(f"a piece was lost {begun.tries} times; last: {why}", path=self._address, hint=hint)
        self._options.tell(f"a piece was lost with its worker, and is done again: {why}")

    def cancel(self) -> None:
        """None of them is wanted any more."""
        for ref in self._under_way:
            with suppress(Exception):
                self._ray.cancel(ref)
        self._under_way.clear()

    def _is_lost(self, error: Exception) -> bool:
        """Whether the task did not end by itself: its worker, its node, or what it returned is gone."""
        known = self._ray.exceptions
        lost = (
            known.WorkerCrashedError, known.NodeDiedError, known.ObjectLostError, known.OutOfMemoryError,
            known.TaskUnschedulableError, known.LocalRayletDiedError,
        )  # fmt: skip
        return isinstance(error, lost)
