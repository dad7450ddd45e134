"""A service's replicas: placed, heard, replaced when they are lost, drained before they go."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from headrace.cluster.connection import NAMESPACE, translated
from headrace.cluster.serving.member import Member
from headrace.cluster.serving.replica import Replica
from headrace.cluster.serving.spec import ServiceSpec
from headrace.cluster.serving.told import ReplicaTold
from headrace.cluster.submission import Reach

_ANSWERS_S: Final = 0.5  # seconds that answers are waited for, of all replicas together
_ROOM_S: Final = 5.0
"""How long a replica may wait to be placed before that is said."""
_PLACE_S: Final = 15.0
"""How long one that is to take another's place may wait before that makes room for it."""
_UNLISTED_S: Final = 30.0
"""How long a store that is away may keep a replica from leaving."""
_LONGEST_S: Final = 30.0
"""Between two tries to start what ends before it has ever been ready."""
_OVERTIME_S: Final = 15.0  # seconds beyond what a server may take to end


def actor_name(service: str) -> str:
    """Of its keeper; its replicas' have a number behind that. No run's id has a colon."""
    return f"serve:{service}"


class Fleet:
    """See above. The keeper's thread alone, but for `renew`.

    Args:
        ray: connected.
        spec, reach: what each replica gets.
        say: told what happens, a line each.
    """

    def __init__(self, ray: Any, spec: ServiceSpec, reach: Reach, say: Callable[[str], None]) -> None:
        self._ray, self._spec, self._reach = ray, spec, reach
        self._say = say
        self._members: list[Member] = []
        self._generation = self._number = self._failures = 0
        self._start_at = 0.0
        self._no_node = False

    @property
    def is_empty(self) -> bool:
        """Whether there is none, on its way out or not."""
        return not self._members

    def told(self) -> tuple[ReplicaTold, ...]:
        """For people."""
        return tuple(member.told() for member in self._members)

    def renew(self) -> None:
        """Those that are there now are to be replaced. Any thread."""
        self._generation += 1

    def adopt(self) -> None:
        """Take over the replicas of a keeper before this one, which has died."""
        prefix = actor_name(self._spec.name) + ":"
        for name in self._ray.util.list_named_actors():
            if name.startswith(prefix) and (number := name.removeprefix(prefix)).isdigit():
                actor = self._ray.get_actor(name, namespace=NAMESPACE)
                self._members.append(Member(f"{self._spec.name}.{number}", int(number), 0, actor))
                self._number = max(self._number, int(number))
        if self._members:
            self._tell(f"{len(self._members)} replicas go on under a new keeper")
            self._listen()
            self._generation = max(member.generation for member in self._members)

    def close(self) -> None:
        """End what is left, now."""
        for member in self._members:
            self._let_go(member)
        self._members.clear()

    # how they are

    def look(self) -> float:
        """Hear how they are, and drop those that are lost; how many requests they have under way."""
        self._listen()
        for member in [one for one in self._members if one.lost]:
            self._lose(member)
        # Those that leave still count: what they are asked comes to the others in a moment.
        return sum(member.load for member in self._members)

    def _listen(self) -> None:
        """Ask all, and hear those that answer."""
        asked = {member.ask(): member for member in self._members if not member.gone}
        if not asked:
            return
        answered, _ = self._ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWERS_S)
        for question in answered:
            member = asked[question]
            was_ready = member.ready
            try:
                seen = self._ray.get(question)
            except Exception as error:
                member.question, member.gone = None, f"its node is gone: {translated(error).reason[:200]}"
                continue
            member.heard(seen)
            for line in seen.lines:
                self._say(f"[{member.name}] {line}")
            if member.ready and not was_ready:
                self._failures = 0
                self._tell(f"{member.name} answers at {seen.url} on node {seen.node}")

    def _lose(self, member: Member) -> None:
        if member.leaving is not None:
            self._tell(f"{member.name} has ended")
        else:
            self._tell(f"{member.name} is lost: {member.lost}")
            if not member.was_ready:
                self._failures += 1
                self._start_at = time.monotonic() + min(_LONGEST_S, 2.0**self._failures)
        self._remove(member)

    def _remove(self, member: Member) -> None:
        self._members.remove(member)
        self._let_go(member)

    def _let_go(self, member: Member) -> None:
        if member.seen is not None and not member.lost.startswith("its node"):
            with suppress(Exception):
                self._ray.get(member.actor.close.remote(), timeout=_OVERTIME_S)
        with suppress(Exception):
            self._ray.kill(member.actor)

    # how many there are

    def adjust(self, wanted: int) -> None:
        """Start more, or have some leave, and replace those that are to be renewed one by one."""
        live = [member for member in self._members if member.leaving is None]
        old = [member for member in live if member.seen is not None and member.generation < self._generation]
        room = wanted + (1 if old and wanted else 0)
        while len(live) < room and (started := self._start()) is not None:
            live.append(started)
        self._tell_who_waits()
        for member in sorted(live, key=self._order_of_leaving)[: max(0, len(live) - room)]:
            self._drain(member, "fewer are wanted" if wanted else "the service ends")
            live.remove(member)
        if old and wanted and all(member.leaving is None for member in self._members):
            self._roll(wanted, live, [member for member in old if member.leaving is None])

    def _roll(self, wanted: int, live: list[Member], old: list[Member]) -> None:
        """One more of the old ones goes: since a new one answers, or to have room for one where others answer."""
        fresh = [member for member in live if member not in old]
        waits = not fresh or any(member.waited > _PLACE_S for member in fresh)
        if len(live) > wanted and fresh and all(member.ready for member in fresh):
            self._drain(old[0], "another one has taken its place")
        elif waits and sum(member.ready for member in live) > 1:
            self._drain(old[0], "a new one needs its place")

    def _order_of_leaving(self, member: Member) -> tuple[bool, bool, bool, int, int]:
        """First who is not placed, or does not answer; then the old, who has company on its node, and the youngest."""
        where = member.seen.node_id if member.seen is not None else ""
        beside = sum(one.seen is not None and one.seen.node_id == where for one in self._members)
        return member.seen is not None, member.ready, member.generation >= self._generation, -beside, -member.number

    def _start(self) -> Member | None:
        """One more; None: not now, or no node may have it."""
        if time.monotonic() < self._start_at:
            return None
        options: dict[str, Any] = {"scheduling_strategy": "SPREAD"}
        node = self._node_without() if self._spec.pinned else None
        if self._spec.pinned and node is None:
            if not self._no_node:
                self._tell("another replica waits for a node that has none: they have one port")
            self._no_node = True
            return None
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # pyright: ignore

            options = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
        self._no_node = False
        self._number += 1
        name = f"{self._spec.name}.{self._number}"
        kind: Any = self._ray.remote(Replica)
        actor = kind.options(
            name=f"{actor_name(self._spec.name)}:{self._number}", lifetime="detached", namespace=NAMESPACE,
            num_cpus=self._spec.cpus, num_gpus=self._spec.gpus, max_concurrency=8, max_restarts=0, **options,
        ).remote(self._spec, self._reach, name, self._generation)  # fmt: skip
        member = Member(name, self._number, self._generation, actor, node)
        self._members.append(member)
        return member

    def _node_without(self) -> str | None:
        """A node that has no replica, whose port is free."""
        taken = {member.node for member in self._members}
        taken |= {member.seen.node_id for member in self._members if member.seen is not None}
        for node in self._ray.nodes():
            has = node["Resources"]
            able = has.get("CPU", 0) >= self._spec.cpus and has.get("GPU", 0) >= self._spec.gpus
            if node["Alive"] and able and node["NodeID"] not in taken:
                return node["NodeID"]
        return None

    def _tell_who_waits(self) -> None:
        waiting = [member for member in self._members if member.waited > _ROOM_S]
        why = self._what_is_free() if waiting else ""
        for member in waiting:
            if why != member.why_waiting:
                member.why_waiting = why
                self._tell(f"{member.name} waits to be placed: {why}")

    def _what_is_free(self) -> str:
        free: dict[str, float] = self._ray.available_resources()
        nodes = sum(bool(node["Alive"]) for node in self._ray.nodes())
        asked = _amount(self._spec.cpus, self._spec.gpus)
        there = _amount(math.floor(free.get("CPU", 0.0)), math.floor(free.get("GPU", 0.0)))
        return f"asks for {asked} on one node, and of all {nodes} nodes together {there} are free"

    # out

    def _drain(self, member: Member, why: str) -> None:
        """It is not listed any more; once the home says so, its server is told to end."""
        self._tell(f"{member.name} is drained: {why}")
        member.leaving = time.monotonic()

    def see_out(self, unlisted: Callable[[str], bool], *, linger: bool) -> None:
        """Have the servers of those that leave end. `unlisted`: whether clients are no longer told of one; `linger`:
        else there is nobody else to ask, and their servers do not wait for clients to notice.
        """
        now = time.monotonic()
        for member in [one for one in self._members if one.leaving is not None]:
            since = member.leaving or now
            told = member.told_to
            if member.seen is None or member.gone:
                self._remove(member)
            elif told is not None and now - told > self._spec.linger + self._spec.grace + _OVERTIME_S:
                self._tell(f"{member.name} does not end, and is killed")
                self._remove(member)
            elif not linger or (told is None and (unlisted(member.name) or now - since > _UNLISTED_S)):
                member.told_to = told or now
                member.actor.leave.remote()  # the second time it does not linger

    def _tell(self, text: str) -> None:
        self._say(f"headrace: {text}")


def _amount(cpus: float, gpus: float) -> str:
    parts = [f"{cpus:g} {'CPU' if cpus == 1 else 'CPUs'}", f"{gpus:g} {'GPU' if gpus == 1 else 'GPUs'}" if gpus else ""]
    return " and ".join(part for part in parts if part)
