"""A job's attempt on many nodes: all of them or none, held by a placement group; begun together, and ended together.

https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html. An attempt has a group and actors of its own:
what one that was lost has left on a node is none of the next one's.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from secrets import token_hex
from signal import SIGKILL, SIGTERM
from typing import Any, Final

from headrace.base.errors import HeadraceError, TryAgainError
from headrace.cluster.checkpoints import Together
from headrace.cluster.connection import translated
from headrace.cluster.members import Asked, GoneError, Member, NodeActor
from headrace.cluster.node import LED_S
from headrace.cluster.notices import going
from headrace.cluster.placing import Placed, ask, is_there, wait_for_room
from headrace.cluster.ranks import Rendezvous
from headrace.cluster.submission import Submission
from headrace.cluster.told import Begin, Ended, Machine, News
from headrace.cluster.whereabouts import write_nodes
from headrace.jobs import Exit, Start
from headrace.tracking.newest import newest_checkpoint

_POLL_S: Final = 2.0  # seconds that a node may wait for news before it answers
_NAMED: Final = 5  # files named of what is not sent
_TOGETHER_S: Final = 10.0
"""Once one process has failed, how long the others have between SIGTERM and SIGKILL."""
_GRACE_SHARE: Final = 0.6
"""Of the time that a machine has left: the rest is for sending what was saved."""
_LATE_S: Final = 20.0
"""How long a node may owe an answer, beyond what it was asked to wait, before it counts as gone."""


class Gang:
    """The backend of a run whose processes are on the nodes of a cluster. `ray`: connected.

    Nodes are asked for when this is made, so that they start while the run is being recorded.
    """

    here = False

    def __init__(self, ray: Any, submission: Submission) -> None:
        self._ray, self._submission = ray, submission
        self._asked = self._ask(1, ask(ray, submission.spec.cluster))

    def start(self, start: Start) -> _GangAttempt | None:
        """As `Backend.start`."""
        if not start.settle():  # code and pinned inputs, which the nodes bring from there
            raise TryAgainError("what the nodes need is not in the bucket yet", path=start.job.id)
        asked, self._asked = self._asked, None
        while True:
            if asked is None:
                asked = self._ask(start.number, wait_for_room(self._ray, start))
            if asked is None:
                return None
            if is_there(self._ray, start, asked.placed):
                break
            asked = None
        try:
            return _GangAttempt(self._ray, start, asked)
        except BaseException:
            asked.placed.let_go()
            raise

    def _ask(self, attempt: int, placed: Placed | None) -> Asked | None:
        """Have an actor on each node, as soon as that is there."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # pyright: ignore

        if placed is None:
            return None
        kind: Any = self._ray.remote(NodeActor)
        members = tuple(
            Member(
                number,
                kind.options(
                    num_cpus=share.cpus, num_gpus=share.gpus, max_concurrency=8, max_restarts=0,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(placed.group, number, True),
                ).remote(self._submission, number, attempt, share.processes),
            )
            for number, share in enumerate(placed.shares)
        )  # fmt: skip
        return Asked(placed, members)


class _GangAttempt:
    """As `Attempt`. A thread a node asks for news, one more says that there is a leader; the runner's thread waits for
    what they find.
    """

    def __init__(self, ray: Any, start: Start, asked: Asked) -> None:
        members = asked.members
        self.failure, self.lost, self.left = "", False, tuple[str, ...]()
        self._ray, self._placed, self._members, self._start = ray, asked.placed, members, start
        self._result: Exit | None = None
        self._running: set[int] = set()
        self._found = threading.Lock()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._kill_at = float("inf")
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._together = Together(start.run, len(members), start.tell)
        try:
            self._begin()
        except GoneError as error:
            self._result, self.failure, self.lost = Exit(None, int(SIGKILL)), f"{error} is gone", True
        except BaseException:
            self._over.set()
            raise

    # as an Attempt

    def wait(self, timeout: float, wake: int) -> Exit | None:
        """Until all have ended."""
        until = time.monotonic() + timeout
        while True:
            with self._found:
                if self._result is not None and not self._running:
                    return self._result
            if time.monotonic() >= self._kill_at:
                self._kill_at = float("inf")
                self.signal(SIGKILL)
            rest = min(until, self._kill_at) - time.monotonic()
            ready, _, _ = select.select([self._wake_fd, wake], [], [], max(0.0, rest))
            if self._wake_fd in ready:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake_fd)
            if wake in ready or time.monotonic() >= until:
                return None

    def signal(self, number: int) -> None:
        """To all processes of all nodes that answer."""
        for member in self._members:
            if not member.gone:
                member.actor.signal.remote(int(number))

    def close(self, *, kill: bool) -> None:
        """What they have left is sent, for as long as the job says, or named."""
        if kill:
            self.signal(SIGKILL)
        complete = self._result is not None and self._result.succeeded
        drain = self._start.job.spec.outputs.drain
        asked = {
            member: member.actor.finish.remote(min(drain, member.rest), complete=complete)
            for member in self._members if not member.gone
        }  # fmt: skip
        left: list[str] = []
        kept: dict[Member, bool] = {}
        for member, ref in asked.items():
            try:
                sent = self._ray.get(ref, timeout=drain + _LATE_S)
            except Exception as error:
                self._start.tell(f"{member} does not say what it has sent: {translated(error).reason}")
                continue
            left += (f"{sent.folder}/record/{name}" for name, _ in sent.left)
            for name, error in sent.left[:_NAMED]:
                self._start.tell(f"{member}: {name} is not sent: {error or 'time is over'}")
            kept[member] = bool(sent.left)
        self._over.set()  # what they have told by now is still asked for
        for thread in self._threads:
            thread.join()
        self._together.close(complete=complete)
        for member, keep in kept.items():
            with suppress(Exception):
                self._ray.get(member.actor.close.remote(remove=not keep), timeout=_LATE_S)
        self.left = tuple(left)
        if left:
            self._start.tell(f"{len(left)} files are not in the bucket; on their node: headrace sync --recover")
        for member in self._members:
            with suppress(Exception):
                self._ray.kill(member.actor)
        self._placed.let_go()
        os.close(self._wake_fd)

    # beginning

    def _begin(self) -> None:
        start = self._start
        self._all(lambda member: member.actor.prepare.remote(), self._met)
        machines = [member.machine for member in self._members if member.machine is not None]
        sizes = tuple(machine.processes for machine in machines)
        meeting = Rendezvous(start.job.id, sizes, machines[0].address, machines[0].port, start.number - 1)
        write_nodes(start.folder, start.number, machines, meeting)
        peers = tuple(machine.peer for machine in machines)
        begin = Begin(start.number, meeting, _checkpoint(start), peers, token_hex(32))
        names = ", ".join(f"{machine.host} × {machine.processes}" for machine in machines)
        start.tell(f"{meeting.world} processes on {len(machines)} nodes: {names}")
        start.begins()
        self._thread(self._lead, "headrace-lead")
        self._all(lambda member: member.actor.start.remote(begin), lambda _member, _none: None)
        self._running = set(range(meeting.world))
        for member in self._members:
            member.ranks = set(range(meeting.first(member.number), meeting.first(member.number + 1)))
        for member in self._members:
            self._thread(partial(self._ask, member), f"headrace-{member.number}")

    def _thread(self, work: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _met(self, member: Member, machine: Machine) -> None:
        member.machine = machine

    def _all(self, ask: Callable[[Member], Any], heard: Callable[[Member, Any], None]) -> None:
        """Ask all nodes at once. Raises any HeadraceError: the first that one of them raised."""
        for member, ref in [(member, ask(member)) for member in self._members]:
            try:
                heard(member, self._ray.get(ref))
            except self._ray.exceptions.RayActorError as error:
                member.gone = str(error)
                raise GoneError(str(member)) from error
            except Exception as error:
                found = translated(error)
                where = f"{member}" if found.path is None else f"{member}: {found.path}"
                raise type(found)(found.reason, path=where, hint=found.hint) from error

    # under way

    def _ask(self, member: Member) -> None:
        """Until nothing more can come of the node."""
        acknowledged = 0
        while True:
            last = self._over.is_set()
            try:
                ref = member.actor.news.remote(acknowledged, 0.0 if last else _POLL_S)
                news: News = self._ray.get(ref, timeout=_POLL_S + _LATE_S)
            except Exception as error:
                self._gone(member, translated(error).reason)
                return
            acknowledged = news.number
            self._heard(member, news)
            if last and not (news.texts or news.files or news.ended or news.parts):
                return

    def _heard(self, member: Member, news: News) -> None:
        for text in news.notes:
            self._start.tell(f"{member}: {text}")
        for text in news.texts:
            self._start.sinks.lines(text.rank, text.stream, text.lines)
        for name, data in news.files.items():
            path = self._start.folder.at("spool", name)
            with open(f"{path}.tmp", "wb") as file:
                file.write(data)
            os.rename(f"{path}.tmp", path)
        self._together.heard(member.number, news)
        for ended in news.ended:
            self._ended(member, ended)

    def _ended(self, member: Member, ended: Ended) -> None:
        with self._found:
            self._running.discard(ended.rank)
            member.ranks.discard(ended.rank)
            found = Exit(ended.code, ended.signal)
            if not found.succeeded and self._result is None:
                self._fail(found, f"rank {ended.rank} on {member}: {found}", lost=False)
            elif self._result is None and not self._running:
                self._result = found
        os.eventfd_write(self._wake_fd, 1)

    def _gone(self, member: Member, why: str) -> None:
        with self._found:
            member.gone = why
            self._together.gone(member.number)
            if not self._over.is_set() and member.ranks:
                # What the others met first, a connection that was cut, follows from it.
                self._running -= member.ranks
                self._fail(Exit(None, int(SIGKILL)), f"{member} is gone", lost=True)
        os.eventfd_write(self._wake_fd, 1)

    def _lead(self) -> None:
        """Say to the nodes that there is who leads them, and look whether one was told to go."""
        while not self._over.wait(LED_S):
            for member in self._members:
                if not member.gone:
                    member.actor.led.remote()
            due = going(self._ray)
            for member in self._members:
                if member.machine is not None and member.machine.id in due:
                    self._goes(member, due[member.machine.id])

    def _goes(self, member: Member, at: float) -> None:
        """All have the job's grace, or what the machine leaves them: what they save then is sent, and gone on from."""
        with self._found:
            member.goes_at = at
            if self._result is not None or not self._running:
                return
            grace = min(self._start.job.spec.grace, member.rest * _GRACE_SHARE)
            self._fail(Exit(None, int(SIGTERM)), f"{member} is to go", lost=True, grace=grace)
        os.eventfd_write(self._wake_fd, 1)

    def _fail(self, result: Exit, why: str, *, lost: bool, grace: float = _TOGETHER_S) -> None:
        """The first that fails ends all. The others' ends follow from it."""
        self._result, self.failure, self.lost = result, why, lost
        if self._running and not self._start.stopped():
            self._start.tell(f"{why}: {'the others' if result.signal != SIGTERM else 'all'} are ended")
            self.signal(SIGTERM)
            self._kill_at = time.monotonic() + grace


def _checkpoint(start: Start) -> tuple[str, str] | None:
    for run in start.runs:
        try:
            newest = newest_checkpoint(run)
        except HeadraceError as error:
            start.tell(f"no checkpoint can be had of {run.id}: {error}")
            continue
        if newest is not None:
            start.tell(f"goes on from checkpoint {newest.name} of {run.id}{newest.doubt}")
            return run.id, newest.name
        start.tell(f"{run.id} has no complete checkpoint")
    return None
