"""What a container leaves of the machine: memory limits and CPU quotas of cgroups, both versions.

Sources of the formats: the kernel's ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/memory.rst``,
``scheduler/sched-bwc.rst``; ``proc_pid_cgroup(5)`` and ``proc_pid_mountinfo(5)``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class _Files(NamedTuple):
    """Names of one version's files. `idle`: what of the usage is cache that can go, in ``memory.stat``."""

    limit: str
    used: str
    idle: str
    quota: tuple[str, ...]


_V1 = _Files(
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", ("cpu.cfs_quota_us", "cpu.cfs_period_us")
)
_V2 = _Files("memory.max", "memory.current", "inactive_file", ("cpu.max",))


class _Mount(NamedTuple):
    """A mounted hierarchy: the cgroup at its root ("" for the first of all), and where that is mounted."""

    controller: str
    files: _Files
    root: str
    point: str


class _Group(NamedTuple):
    """A cgroup's folder, or that of one above it. `controller`: ``memory`` or ``cpu``."""

    controller: str
    files: _Files
    folder: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one process, found once; usage is read anew each time. `quota`: cores; None: as many as there are."""

    quota: float | None = None
    memory: tuple[int, str, str, str] | None = None
    """Bytes, and where usage is found: its file, the file of details, and the name in there of what can go."""

    def cpus(self, pid: int | None) -> float:
        """Cores that the process may use; this one, if it is gone."""
        try:
            allowed = len(os.sched_getaffinity(pid or 0))
        except OSError:
            allowed = len(os.sched_getaffinity(0))
        return float(allowed) if self.quota is None else min(float(allowed), self.quota)

    def memory_used(self) -> tuple[int, int] | None:
        """Bytes allowed and used, without cache that can go; None: no limit, or it cannot be read."""
        if self.memory is None:
            return None
        limit, used, details, idle = self.memory
        told = _read(used)
        gone = re.search(rf"(?m)^{idle} (\d+)$", _read(details) or "")
        return (limit, max(0, int(told) - int(gone[1] if gone else 0))) if told and told.isdigit() else None


def limits_of(pid: int | None, proc: str = "/proc") -> Limits:
    """The tightest limits among a process's cgroups and all above them; of this process, if it is None or gone."""
    mounts = tuple(_mounts(f"{proc}/self/mountinfo"))  # not the job's, which may see others
    groups = [] if pid is None else list(_groups(f"{proc}/{pid}/cgroup", mounts))
    groups = groups or list(_groups(f"{proc}/self/cgroup", mounts))
    quotas = [quota for group in groups if group.controller == "cpu" and (quota := _quota(group)) is not None]
    memory = [found for group in groups if group.controller == "memory" and (found := _memory(group)) is not None]
    return Limits(min(quotas, default=None), min(memory, default=None))


def _memory(group: _Group) -> tuple[int, str, str, str] | None:
    files, folder = group.files, group.folder
    limit = _read(f"{folder}/{files.limit}")
    if limit is None or not limit.isdigit():
        return None
    return int(limit), f"{folder}/{files.used}", f"{folder}/memory.stat", files.idle


def _quota(group: _Group) -> float | None:
    told = " ".join(_read(f"{group.folder}/{name}") or "" for name in group.files.quota)
    match = re.fullmatch(r"(\d+) (\d+)", told)  # "max", or -1: none
    return int(match[1]) / int(match[2]) if match and int(match[2]) else None


def _groups(path: str, mounts: tuple[_Mount, ...]) -> Iterator[_Group]:
    for line in (_read(path) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        files = _V1 if controllers else _V2
        for mount in mounts:
            if mount.files is files and (files is _V2 or mount.controller in controllers.split(",")):
                for folder in _chain(group, mount):
                    yield _Group(mount.controller, files, folder)


def _mounts(path: str) -> Iterator[_Mount]:
    """What is mounted, once for each controller it may have."""
    for line in (_read(path) or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), (*after.split(), "", "", "")[:3]
        if kind in ("cgroup", "cgroup2") and len(fields) > 4:
            for controller in ("memory", "cpu"):
                if kind == "cgroup2" or controller in options.split(","):
                    files = _V2 if kind == "cgroup2" else _V1
                    yield _Mount(controller, files, _plain(fields[3]).rstrip("/"), _plain(fields[4]))


def _chain(group: str, mount: _Mount) -> Iterator[str]:
    """The folders of a cgroup and of those above it. If it is not below the mount: the mount itself."""
    below = group.removeprefix(mount.root) if f"{group}/".startswith(f"{mount.root}/") else ""
    parts = [part for part in below.split("/") if part]
    if ".." in parts:
        parts = []
    for end in range(len(parts), -1, -1):
        yield "/".join([mount.point, *parts[:end]])


def _plain(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().strip()
    except OSError:
        return None
