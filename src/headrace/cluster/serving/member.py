"""A replica as seen by who keeps the service: asked how it is, one open question at a time."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.cluster.serving.figures import requests_a_second, under_way
from headrace.cluster.serving.told import Figures, ReplicaTold, Seen

LATE_S: Final = 5.0
"""A node that has owed an answer for so long is not to be asked for predictions."""
FIGURES_S: Final = 5.0
"""Over how long requests are counted."""
GONE_S: Final = 20.0
"""A node that has owed an answer for so long counts as gone."""
SILENT_S: Final = 15.0
"""A server that has not answered for so long is replaced; one that was never ready has more time."""
START_S: Final = 120.0
"""Seconds that a new server has until its first answer."""
UNREADY_S: Final = 300.0
"""A server that answers, but has not been ready again for so long, is replaced."""


@dataclass(slots=True)
class Member:
    """One replica. The keeper's thread alone."""

    name: str
    number: int
    generation: int
    actor: Any
    node: str | None = None
    """Where it must be placed; None: anywhere."""
    since: float = field(default_factory=time.monotonic)
    question: Any = None
    asked: float = 0.0
    seen: Seen | None = None
    was_ready: bool = False
    unready_since: float = field(default_factory=time.monotonic)
    counted: deque[Figures] = field(default_factory=deque[Figures])
    """Of the last seconds."""
    load: float = 0.0
    rate: float = 0.0
    leaving: float | None = None
    """Since when it is not listed any more, on its way out."""
    told_to: float | None = None
    """Since when its server knows."""
    gone: str = ""
    """Why its actor does not answer any more."""
    why_waiting: str = ""

    def ask(self) -> Any:
        """The question that is open."""
        if self.question is None:
            self.asked = time.monotonic()
            self.question = self.actor.look.remote(0 if self.seen is None else self.seen.next)
        return self.question

    def heard(self, seen: Seen) -> None:
        """Its answer."""
        self._count(seen.figures)
        self.question, self.seen = None, seen
        self.generation = seen.generation
        if seen.phase == "ready":
            self.was_ready = True
        if seen.phase != "unready":
            self.unready_since = time.monotonic()
        if seen.phase == "leaving" and self.leaving is None:  # it was told by a keeper before this one
            self.leaving = self.told_to = time.monotonic()

    def _count(self, now: Figures | None) -> None:
        if now is None or (self.counted and now.at <= self.counted[-1].at):
            return
        while self.counted and self.counted[0].at < now.at - FIGURES_S:
            self.counted.popleft()
        before = self.counted[0] if self.counted else None
        # What who leaves is no longer asked, others are by now.
        self.load = now.pending if self.leaving is not None else under_way(before, now)
        self.rate = requests_a_second(before, now)
        self.counted.append(now)

    @property
    def waited(self) -> float:
        """Seconds for which it has not been placed; 0: it is."""
        return time.monotonic() - self.since if self.seen is None else 0.0

    @property
    def owes(self) -> float:
        """Seconds for which it has owed an answer."""
        return time.monotonic() - self.asked if self.question is not None else 0.0

    @property
    def state(self) -> str:
        """As `ReplicaTold.state`."""
        if self.leaving is not None:
            return "leaving"
        if self.seen is None:
            return "waiting"
        late = self.owes > LATE_S and self.seen.phase == "ready"
        return "unready" if late or self.seen.phase == "ended" else self.seen.phase

    @property
    def ready(self) -> bool:
        """Whether it is to be asked."""
        return self.state == "ready"

    @property
    def lost(self) -> str:
        """Why it is of no use any more; empty: it is."""
        seen = self.seen
        if self.gone:
            return self.gone
        if seen is None:
            return ""
        if self.owes > GONE_S:
            return f"its node {seen.node} does not answer"
        if seen.phase == "ended":
            return f"its server ended: {seen.why}"
        if self.leaving is None and seen.silent > (SILENT_S if self.was_ready else START_S):
            return f"its server has not answered for {seen.silent:.0f} s"
        if self.leaving is None and time.monotonic() - self.unready_since > UNREADY_S:
            return f"its server has not been ready for {UNREADY_S:.0f} s"
        return ""

    def told(self) -> ReplicaTold:
        """For people."""
        seen = self.seen
        if seen is None:
            return ReplicaTold(self.name, self.state, None, None, None, None, 0.0, 0.0, self.why_waiting)
        why = "its node is late with an answer" if self.owes > LATE_S else seen.why
        placed = bool(seen.pid)
        return ReplicaTold(
            self.name, self.state, seen.url if placed else None, seen.grpc if placed else None, seen.node,
            seen.pid or None, round(self.rate, 2), round(self.load, 2), why,
        )  # fmt: skip
