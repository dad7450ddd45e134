"""Work cut into pieces that any node of a Ray cluster may do, and may do again.

A piece is a plain value that says what is to be done: seconds of work, never one object. A task of Ray's does it, and
what it returns comes back here, once for each piece. A piece whose worker or node dies is done again, so what a piece
writes must be the same however often it is written.

Ray's own retries are not asked for: what is lost comes back here, is told, and is asked for anew.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import headrace
from headrace.base.settings import Settings
from headrace.cluster.connection import connected, translated
from headrace.cluster.flight import Begun, Flight, Machine, Options
from headrace.cluster.submission import Reach
from headrace.cluster.worker import Answer, Asked, Site
from headrace.fetch.rendezvous import names_of

__all__ = ["Done", "Gone", "Machine", "Options", "Site", "Workers", "work_off", "workers"]

_LOOK_S: Final = 2.0
"""How old what is known of the nodes may be."""
_AHEAD: Final = 8
"""Pieces of a node that wait for it here, at most: no node gets further ahead of another."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Done(Generic[Piece, Result]):
    """A piece that is done. `host`: of the node that did it; `node`: the one that it was tied to, by its id; `tries`:
    how often it was begun.
    """

    piece: Piece
    result: Result
    host: str
    tries: int = 1
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    """A node that died: its pieces that had not ended are done by nobody."""

    node: Machine


@contextmanager
def workers(address: str, settings: Settings, *, send: tuple[str, ...] | None = None) -> Generator[Workers]:
    """The cluster at `address`, to work on pieces; let go of at the end, and what still runs then is ended.

    Args:
        address: ``ray://HOST:10001``; ``ray://auto``: the one that this machine is of.
        settings: those of the caller: where the nodes reach the stores.
        send: patterns of variables that the nodes get; None: those of the stores' credentials.

    One at a time in a process. Raises as `connected`.
    """
    from headrace.jobs.spec_parts import ClusterSpec  # only here: workers import this module, and lead no jobs

    reach = Reach.from_here(settings, ClusterSpec().send if send is None else send)
    with connected(address) as ray:
        yield Workers(ray, reach, address)


def work_off(
    address: str,
    settings: Settings,
    work: Callable[[Site, Piece], Result],
    pieces: Iterable[Piece],
    *,
    options: Options | None = None,
) -> Iterator[Done[Piece, Result]]:
    """`Workers.work_off` on a cluster that nothing else is asked of."""
    with workers(address, settings) as crew:
        yield from crew.work_off(work, pieces, options=options)


class Workers:
    """A cluster's. One thread. See `workers`."""

    def __init__(self, ray: Any, reach: Reach, address: str) -> None:
        self._ray, self._reach, self.address = ray, reach, address
        self._known: list[Machine] = []
        self._known_at = float("-inf")

    def work_off(
        self, work: Callable[[Site, Piece], Result], pieces: Iterable[Piece], *, options: Options | None = None
    ) -> Iterator[Done[Piece, Result]]:
        """Have each piece done by any node; gives what each came to, in the order in which they end, each once.

        So many are under way as keep all CPUs of the cluster busy, also those that join meanwhile; `pieces` is asked
        for no more than that. Closed, or left by an exception, what runs is cancelled.

        Args:
            work: a function of a module that the nodes have, too; what it returns should be small.
            pieces: values that can be pickled.
            options: see there.

        Raises:
            UnsupportedError: the nodes have no headrace, or another. TryAgainError: the cluster does not answer any
            more; or a piece was lost as often as it may be. Any HeadraceError of the work's: the first ends all.
        """
        flight = Flight(self._ray, self._asked(work), options or Options(), self.address)
        todo = deque[Begun]()
        coming = map(Begun, pieces)
        try:
            while True:
                room = flight.room(self._recent())
                while len(flight) < room and (one := todo.popleft() if todo else next(coming, None)) is not None:
                    flight.begin(one)
                if not len(flight):
                    return
                for begun, ended in flight.ended():
                    if isinstance(ended, Exception):
                        flight.told_lost(begun, ended)
                        todo.append(begun)
                    else:
                        yield Done(begun.piece, ended.result, ended.host, begun.tries)
        finally:
            flight.cancel()

    def on_nodes(
        self,
        work: Callable[[Site, Piece], Result],
        pieces: Iterable[tuple[Machine, Piece]],
        *,
        options: Options | None = None,
    ) -> Iterator[Done[Piece, Result] | Gone]:
        """Have each piece done by the node that it comes with; as `work_off` otherwise.

        A node that dies is told once, as `Gone`; its other pieces are passed over, and the other nodes go on. No node
        gets further ahead of another than some pieces, so that `pieces` may be a long stream.
        """
        flight = Flight(self._ray, self._asked(work), options or Options(), self.address)
        queues = _Queues(pieces)
        try:
            while True:
                queues.fill()
                for begun in queues.next(flight):
                    flight.begin(begun)
                if not len(flight):
                    return
                for begun, ended in flight.ended():
                    node = begun.machine
                    if node is None or node.id in queues.gone:
                        continue
                    if isinstance(ended, Answer):
                        yield Done(begun.piece, ended.result, ended.host, begun.tries, node.id)
                    elif self._is_gone(node, ended):
                        queues.drop(node)
                        yield Gone(node)
                    else:
                        flight.told_lost(begun, ended)
                        queues.again(begun)
        finally:
            flight.cancel()

    def machines(self, least: float = 1.0) -> list[Machine]:
        """The nodes that live and have so many CPUs, free or not, in the order of their names."""
        try:
            found = [one for one in self._ray.nodes() if one["Alive"] and one["Resources"].get("CPU", 0) >= least]
        except Exception as error:
            raise translated(error, self.address) from error
        hosts = [one["NodeManagerHostname"] for one in found]
        named = {
            one["NodeID"]: one["NodeManagerHostname"] if hosts.count(one["NodeManagerHostname"]) == 1
            else f"{one['NodeManagerHostname']} ({one['NodeManagerAddress']})" for one in found
        }  # fmt: skip
        places = names_of([one["NodeManagerAddress"] for one in found])
        machines = [
            Machine(one["NodeID"], named[one["NodeID"]], one["Resources"]["CPU"], place)
            for one, place in zip(found, places, strict=True)
        ]
        return sorted(machines, key=lambda machine: machine.name)

    def _recent(self) -> list[Machine]:
        if time.monotonic() - self._known_at > _LOOK_S:
            self._known, self._known_at = self.machines(), time.monotonic()
        return self._known

    def _asked(self, work: Callable[[Site, Any], Any]) -> Any:
        try:
            return self._ray.put(Asked(work, self._reach, headrace.__version__))
        except Exception as error:
            raise translated(error, self.address) from error

    def _is_gone(self, node: Machine, error: Exception) -> bool:
        known = self._ray.exceptions
        if isinstance(error, (known.NodeDiedError, known.TaskUnschedulableError)):
            return True
        return all(machine.id != node.id for machine in self.machines(0.0))


class _Queues:
    """Pieces that wait for their nodes."""

    def __init__(self, pieces: Iterable[tuple[Machine, Any]]) -> None:
        self._coming = iter(pieces)
        self._over = False
        self._waiting: dict[str, deque[Begun]] = {}
        self.gone: set[str] = set()

    def fill(self) -> None:
        """Ask for pieces, until a node has enough."""
        while not self._over and all(len(queue) < _AHEAD for queue in self._waiting.values()):
            one = next(self._coming, None)
            if one is None:
                self._over = True
            elif one[0].id not in self.gone:
                self._waiting.setdefault(one[0].id, deque()).append(Begun(one[1], one[0]))

    def next(self, flight: Flight) -> Iterator[Begun]:
        """Those that their nodes have room for."""
        for name, queue in self._waiting.items():
            while queue and queue[0].machine is not None and flight.of(name) < flight.room([queue[0].machine]):
                yield queue.popleft()

    def again(self, begun: Begun) -> None:
        if begun.machine is not None:
            self._waiting[begun.machine.id].appendleft(begun)

    def drop(self, node: Machine) -> None:
        self.gone.add(node.id)
        self._waiting.pop(node.id, None)
