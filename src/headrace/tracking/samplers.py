"""What the machine and the job's processes do, every few seconds: CPU, memory, disk, network, GPUs.

======================== ============ =================================================================================
name                     unit         what it is
======================== ============ =================================================================================
system/cpu               percent      of all cores together that is not idle
system/cpu/N             percent      of core N
system/cpus              cores        that the job may use: by its affinity, and by the CPU quota of its cgroups
system/load              processes    that run or want to, on average over a minute
system/memory_total      bytes        of the machine, or as many as the job's cgroups allow
system/memory_used       bytes        that are not available, of all those
system/memory_available  bytes        that can still be had, by the machine or the cgroup, whichever has less
system/disk_read         bytes/s      from all disks
system/disk_written      bytes/s      to all disks
system/disk_free         bytes        left for this user on the disk of the run's folder
system/net_received      bytes/s      over all interfaces but loopback
system/net_sent          bytes/s      likewise
system/gpu/N/utilization percent      of the time in which GPU N ran anything (N as NVML counts)
system/gpu/N/memory_used bytes        of its memory
system/gpu/N/temperature degrees C    of its core
system/gpu/N/power       watts        it draws
job/cpu                  percent      of one core, by all processes of the job: 400 is four cores
job/memory               bytes        resident in all of them; what they share counts in each
job/processes            count        of them, without zombies
job/threads              count        in all of them
======================== ============ =================================================================================

Percentages of CPU, and all that is "/s", are averages since the call before: the first call has none, nor has one that
comes within a tenth of a second. What a machine cannot tell is left out. ``system/cpu``, ``disk_read``,
``disk_written`` and ``net_*`` need psutil, GPUs need nvidia-ml-py and a driver: ``pip install "headrace[runs]"``.
"""

from __future__ import annotations

import os
import time
from types import TracebackType

from headrace.tracking.samplers_gpu import Gpus
from headrace.tracking.samplers_job import Tree
from headrace.tracking.samplers_limits import limits_of
from headrace.tracking.samplers_machine import Machine

SHORTEST_S = 0.1
"""Seconds over which a rate is worth telling: the kernel counts CPU in hundredths of a second."""


class Samplers:
    """Figures of this machine, and of a job that runs on it. One thread; `close` it.

    `pid`: the job's first process, None for no ``job/`` figures; its descendants belong to it, also those whose parents
    have ended. `folder`: the run's, for ``system/disk_free``; the working folder if None.
    """

    def __init__(self, pid: int | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        self._pid = pid
        self._folder = os.path.abspath(folder or os.curdir)
        self._limits = limits_of(pid)
        self._machine = Machine(self._limits)
        self._tree = None if pid is None else Tree(pid)
        self._gpus = Gpus()
        self._at: float | None = None

    def sample(self) -> dict[str, float]:
        """All figures by name: see the table in `headrace.tracking.samplers`. Raises nothing for what is gone."""
        now = time.monotonic()
        seconds = None if self._at is None else now - self._at
        if seconds is None or seconds >= SHORTEST_S:
            self._at = now
        else:
            seconds = 0.0
        found = self._machine.sample(seconds)
        found["system/cpus"] = self._limits.cpus(self._pid)
        found.update(_free(self._folder))
        found.update(self._gpus.sample())
        if self._tree is not None:
            found.update(self._tree.sample(seconds))
        return found

    def close(self) -> None:
        """Idempotent."""
        self._gpus.close()

    def __enter__(self) -> Samplers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _free(folder: str) -> dict[str, float]:
    try:
        told = os.statvfs(folder)
    except OSError:
        return {}
    return {"system/disk_free": float(told.f_bavail * told.f_frsize)}
