"""One read on its way through this room."""

from __future__ import annotations

from collections.abc import Callable

from headrace.base.errors import HeadraceError
from headrace.fetch.read import Read, Ticket
from headrace.store.http1 import Connection
from headrace.store.protocol import Blob


class Operation:
    """One read on its way, with the connections that try it (up to three while hedged).

    `into`: where the bytes must go, for a part of a larger read. `followers`: equal reads that wait for this one.
    `pieces`: whoever asks takes them in several buffers.
    """

    __slots__ = (
        "attempts",
        "connections",
        "cost",
        "deadline",
        "demand",
        "done",
        "followers",
        "hedges",
        "into",
        "pieces",
        "read",
        "renewals",
        "same",
        "ticket",
    )

    def __init__(
        self,
        read: Read,
        done: Callable[[Blob | HeadraceError], None],
        ticket: Ticket,
        demand: bool = True,
        into: memoryview | None = None,
        *,
        pieces: bool = False,
    ) -> None:
        self.read = read
        self.done = done
        self.ticket = ticket
        self.demand = demand
        self.into = into
        self.pieces = pieces
        self.deadline = 0.0
        self.attempts = self.cost = self.hedges = self.renewals = 0
        self.connections: tuple[Connection, ...] = ()
        self.followers: tuple[Operation, ...] = ()
        self.same: tuple[str, str | None, int, int | None] | None = None

    @property
    def cancelled(self) -> bool:
        """Nobody wants it any more."""
        return self.ticket.cancelled and all(f.ticket.cancelled for f in self.followers)

    def without(self, connection: Connection) -> None:
        """One connection no longer tries it."""
        if len(self.connections) == 1:
            self.connections = ()
        else:
            self.connections = tuple(c for c in self.connections if c is not connection)
