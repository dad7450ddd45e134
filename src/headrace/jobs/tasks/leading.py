"""The whole of a job that has tasks: a run whose command is to run them, each in a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headrace.base.errors import HeadraceError
from headrace.base.settings import whole_environment
from headrace.base.units import format_seconds
from headrace.jobs.backend import Attempt, Start
from headrace.jobs.process import Exit
from headrace.jobs.resources import Machine
from headrace.jobs.spec import JobSpec
from headrace.jobs.spec_parts import ResourceSpec
from headrace.jobs.task_graph import Planned, plan
from headrace.jobs.tasks import reuse
from headrace.jobs.tasks.child import Child, TaskOrder
from headrace.jobs.tasks.room import Room
from headrace.jobs.tasks.specs import Left, left_by, spec_of
from headrace.namespace.home import Home
from headrace.tracking.record import as_name, new_id
from headrace.tracking.runs import Run

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_ON_CLUSTER: Final = 32
"""Tasks that are followed at once on a cluster, whose own resources decide how many work."""


@dataclass(frozen=True, slots=True)
class Leading:
    """How tasks are run. A Backend. `home`, `where`: the home, and how settings name it; `program`: what leads one
    task's run, given the descriptor of `child.serve` as last argument; `base`, `recorded`: as a TaskOrder has them;
    `at_once`: most tasks side by side, None: as far as the machine allows; `fresh`: none is taken from earlier runs.
    """

    home: Home
    where: str
    program: Sequence[str]
    base: str
    recorded: str | None = None
    at_once: int | None = None
    fresh: bool = False
    here = False

    def start(self, start: Start) -> Attempt:
        """As `Backend.start`."""
        start.begins()
        return _Tasks(self, start)


@dataclass(slots=True)
class _State:
    """Of one planned task. `state`: `waiting`, `running`, `not started`, or that of its run; `taken`: that is an
    earlier one; `spec`, `digest`: once it could start.
    """

    planned: Planned
    state: str = "waiting"
    run: str = ""
    taken: bool = False
    began: float = 0.0
    seconds: float = 0.0
    spec: JobSpec | None = None
    digest: str | None = None
    left: Left | None = None

    @property
    def resources(self) -> ResourceSpec:
        return self.planned.task.resources or ResourceSpec()

    @property
    def in_vain(self) -> bool:
        """Whether it is over, and what comes after it cannot start."""
        return self.state not in ("waiting", "running", "finished")

    def as_json(self) -> dict[str, Any]:
        return {
            "task": self.planned.task.name, "parameters": dict(self.planned.parameters), "state": self.state,
            "run": self.run or None, "taken": self.taken, "seconds": round(self.seconds, 3),
        }  # fmt: skip


class _Tasks:
    """All of them, as one attempt. One thread, but for `signal`."""

    lost = False
    left = ()

    def __init__(self, leading: Leading, start: Start) -> None:
        self._leading, self._start, self._tell = leading, start, start.tell
        self._spec = start.job.spec
        self._whole = start.job.record()
        self._tasks = [_State(one) for one in plan(self._spec.task)]
        self._children: dict[int, Child] = {}
        self._ending: int | None = None
        self.failure = ""
        on_cluster = self._spec.cluster.on is not None
        most = leading.at_once or (_ON_CLUSTER if on_cluster else None)
        self._room = Room(None if on_cluster else Machine.here(whole_environment()), most)
        self._marked = most not in (None, 1) or any(one.resources != ResourceSpec() for one in self._tasks)
        if not leading.fresh and (why := reuse.unknown(self._spec, self._whole)) is not None:
            self._tell(f"nobody can tell which tasks are up to date, so all are run: {why}")

    def wait(self, timeout: float, wake: int) -> Exit | None:
        """As `Attempt.wait`."""
        until = time.monotonic() + timeout
        while True:
            self._begin()
            if not self._children:
                return self._end()
            fds = {child.pidfd: number for number, child in self._children.items()}
            ready, _, _ = select.select([*fds, wake], [], [], max(0.0, until - time.monotonic()))
            for fd in ready:
                if fd != wake:
                    self._over(fds[fd])
            if wake in ready or time.monotonic() >= until:
                return None

    def signal(self, number: int) -> None:
        """To the runs under way, which pass it on. SIGKILL is theirs to send: each has the job's grace, too."""
        if number == signal.SIGKILL:
            return
        if number in _ENDING:
            self._ending = number
        for child in list(self._children.values()):
            child.signal(number)

    def close(self, *, kill: bool) -> None:  # noqa: ARG002
        """As `Attempt.close`: runs that are still under way, because something went wrong here, are stopped."""
        self.signal(signal.SIGTERM)
        for number in list(self._children):
            self._over(number)

    def _begin(self) -> None:
        """Start all that can start now."""
        for number, one in enumerate(self._tasks):
            if self._ending is not None or self._start.stopped():
                return
            if one.state != "waiting":
                continue
            before = [self._tasks[at] for at in one.planned.after]
            vain = next((other for other in before if other.in_vain), None)
            if vain is not None:
                one.state = "not started"
                self._tell(f"{one.planned.label}: not started, because {vain.planned.label} is {vain.state}")
            elif all(other.state == "finished" for other in before):
                try:
                    self._begin_one(number, one, before)
                except (HeadraceError, OSError) as error:
                    one.state = "failed"
                    self._tell(f"{one.planned.label}: failed: {error}")
                    self.failure = self.failure or f"{one.planned.label} failed: {error}"

    def _begin_one(self, number: int, one: _State, before: Sequence[_State]) -> None:
        if one.spec is None:
            one.spec = spec_of(self._spec, one.planned, [self._left(other) for other in before])
            runs = [other.run for other in before]
            one.digest = reuse.digest(one.spec, one.planned.parameters, runs, self._whole)
            earlier = None
            if not self._leading.fresh and one.digest is not None:
                earlier = reuse.find(self._leading.home, one.digest)
            if earlier is not None:
                one.state, one.run, one.taken = "finished", earlier.id, True
                self._tell(f"{one.planned.label}: up to date, as run {earlier.id} left it")
                self._write()
                return
        running = [self._tasks[at].resources for at in self._children]
        if not self._room.fits(one.resources, running):
            return
        leading, name = self._leading, as_name(one.spec.title)
        one.run, one.began = new_id(name), time.monotonic()
        parent = {"run": self._start.job.id, "as": "task"}
        order = TaskOrder(one.spec, one.run, leading.base, leading.recorded, parent)
        self._tell(f"{one.planned.label}: run {one.run}")
        child = Child(leading.program, order, one.planned.label if self._marked else None)
        one.state = "running"
        self._children[number] = child
        if self._ending is not None:  # it came while this one was being started
            child.signal(self._ending)
        self._write()

    def _left(self, one: _State) -> Left:
        if one.left is None:
            leading = self._leading
            one.left = left_by(one.planned.task.name, Run(leading.home, one.run), leading.home, leading.where)
        return one.left

    def _over(self, number: int) -> None:
        """A run has ended, or is waited for until it has."""
        one, report = self._tasks[number], self._children[number].close()
        del self._children[number]
        one.seconds = time.monotonic() - one.began
        if report.state == "lost" and self._ending is not None:  # before its runner was there to heed it
            report = replace(report, state="stopped", recorded=False)
        if report.left and report.state == "finished":  # those after it would see less than all
            report = replace(report, state="failed", reason=f"{report.left} of its files are not in the bucket")
        one.state, one.run = report.state, one.run if report.recorded else ""
        self._tell(f"{one.planned.label}: {one.state}{f': {report.reason}' if report.reason else ''}")
        if one.state == "finished" and one.digest is not None:
            try:
                reuse.keep(self._leading.home, one.digest, one.run)
            except HeadraceError as error:
                self._tell(f"{one.planned.label}: is run again next time: {error}")
        elif one.state != "finished" and not self.failure:
            self.failure = f"{one.planned.label} {one.state}{f': {report.reason}' if report.reason else ''}"
        self._write()

    def _end(self) -> Exit:
        for one in self._tasks:
            if one.state == "waiting":
                one.state = "not started"
        self._write()
        for line in _table([one.as_json() | {"label": one.planned.label} for one in self._tasks]):
            self._tell(line)
        if self._ending is not None:
            return Exit(None, self._ending)
        return Exit(0 if all(one.state == "finished" for one in self._tasks) else 1)

    def _write(self) -> None:
        """How they stand, for programs: an output of the whole."""
        path = self._start.folder.recorded("outputs", "tasks.json")
        with open(f"{path}.tmp", "w", encoding="utf-8") as file:
            json.dump([one.as_json() for one in self._tasks], file, indent=1)
        os.rename(f"{path}.tmp", path)


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Task, state, how long it took and its run, in columns."""
    cells = [("TASK", "STATE", "TOOK", "RUN")]
    cells += [
        (
            str(row["label"]), "up to date" if row["taken"] else str(row["state"]),
            format_seconds(row["seconds"]) if row["seconds"] else "-", row["run"] or "-",
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    return ["  ".join((*(line[at].ljust(widths[at]) for at in range(3)), line[3])) for line in cells]
