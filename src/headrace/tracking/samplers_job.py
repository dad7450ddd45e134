"""The job's processes, from ``/proc`` alone.

Asking psutil for all descendants reads every process of the machine each time (2.7 ms for 90 of them); here what is not
the job's is read once, when it is first seen, and of the job's processes one file each. Format: ``proc_pid_stat(5)``.
"""

from __future__ import annotations

import os
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Told(NamedTuple):
    """What the kernel tells of a process. CPU in seconds; `reaped`: of its children that ended and were waited for."""

    state: str
    parent: int
    session: int
    own: float
    reaped: float
    threads: int
    begun: int
    resident: int


class Tree:
    """A process and all that descend from it. One thread.

    A process whose parent has ended stays of the job, and one of the session that `pid` leads is. CPU of a process that
    came and went between two calls is counted when its parent waited for it.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        first = read_stat(pid)
        self._begun = None if first is None else first.begun  # None: it is gone
        self._kin: dict[int, tuple[int, int]] = {}
        self._members: dict[int, Told] = {}

    def sample(self, seconds: float | None) -> dict[str, float]:
        """Figures by name; nothing once all are gone. `seconds`: since the call before, see `Machine.sample`."""
        before, now = self._members, self._looked()
        alive = [one for one in now.values() if one.state not in "ZX"]
        if seconds != 0:
            self._members = now
        if not alive:
            return {}
        found = {
            "job/memory": float(sum(one.resident for one in alive)),
            "job/processes": float(len(alive)),
            "job/threads": float(sum(one.threads for one in alive)),
        }
        return {"job/cpu": 100 * _spent(before, now) / seconds, **found} if seconds else found

    @property
    def members(self) -> frozenset[int]:
        """The numbers of those that the last `sample` has seen."""
        return frozenset(self._members)

    def _looked(self) -> dict[int, Told]:
        """The job's processes that are there now. Numbers are used again: who began at another time is another."""
        first = None if self._begun is None else read_stat(self._pid)
        if first is None or first.begun != self._begun:
            self._begun = None
            if not self._members:
                return {}
        self._meet()
        looked = {pid: read_stat(pid) for pid in self._candidates()}
        return {
            pid: told
            for pid, told in looked.items()
            if told is not None and (pid not in self._members or told.begun == self._members[pid].begun)
        }

    def _meet(self) -> None:
        """Learn the parent and the session of processes that are new; forget those that are gone."""
        try:
            there = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        except OSError:
            there = set[int]()
        self._kin = {pid: kin for pid, kin in self._kin.items() if pid in there}
        for pid in there - self._kin.keys():
            if (told := read_stat(pid)) is not None:
                self._kin[pid] = (told.parent, told.session)

    def _candidates(self) -> set[int]:
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in self._kin.items():
            children.setdefault(parent, []).append(pid)
        led = {pid for pid, (_, session) in self._kin.items() if session == self._pid}
        found = (led | self._members.keys()) & self._kin.keys()
        if self._begun is None:
            found.discard(self._pid)
        else:
            found.add(self._pid)
        waiting = list(found)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        return found


def read_stat(pid: int) -> Told | None:
    """What the kernel tells of a process; None: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            rest = file.read(4096).rpartition(b")")[2].split()  # a process's name may hold anything
    except OSError:
        return None
    if len(rest) < 22:
        return None
    own, reaped = int(rest[11]) + int(rest[12]), int(rest[13]) + int(rest[14])
    return Told(
        rest[0].decode(), int(rest[1]), int(rest[3]), own / _TICKS, reaped / _TICKS,
        int(rest[17]), int(rest[19]), int(rest[21]) * _PAGE,
    )  # fmt: skip


def _spent(before: dict[int, Told], now: dict[int, Told]) -> float:
    """Seconds of CPU between two looks. What ended was counted in part: its parent has all of it among the reaped."""
    own = reaped = 0.0
    for pid, told in now.items():
        last = before.get(pid)
        own += told.own - (last.own if last else 0.0)
        reaped += told.reaped - (last.reaped if last else 0.0)
    gone = sum(one.own + one.reaped for pid, one in before.items() if pid not in now)
    return max(0.0, own) + max(0.0, reaped - gone)
