"""What of the machine a run has: which CPUs, which GPUs, how much memory.

There is no scheduler. A run that asks for a number of CPUs or GPUs claims that many: one locked file each in a folder
that all runs of a user on the node share, so that a runner that dies holds nothing. Runs that ask for nothing claim
nothing, and see everything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.base.errors import InputError, TryAgainError
from headrace.base.locks import holders, try_lock
from headrace.base.places import make_folder
from headrace.base.units import format_bytes
from headrace.jobs.spec_parts import ResourceSpec
from headrace.tracking.samplers_job import Tree

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to give. `cpus`: those this process may run on; `gpus`: names as in ``CUDA_VISIBLE_DEVICES``."""

    cpus: tuple[int, ...]
    gpus: tuple[str, ...]

    @staticmethod
    def here(environ: Mapping[str, str]) -> Machine:
        """This one, for a caller with these variables."""
        shown = environ.get(_VISIBLE)
        names = [name.strip() for name in shown.split(",")] if shown is not None else _devices()
        return Machine(tuple(sorted(os.sched_getaffinity(0))), tuple(filter(None, names)))


@dataclass(frozen=True, slots=True)
class Claimed:
    """One thing that a run has for itself. `name`: like ``gpu-0``; `pid`: of its runner, 0 where that is not seen."""

    name: str
    pid: int


def claimed(claims: str) -> list[Claimed]:
    """What runs of this node have claimed, in the folder of the claims. Takes nothing from anybody."""
    try:
        paths = sorted(os.path.join(claims, name) for name in os.listdir(claims))
    except OSError:
        return []
    return [Claimed(os.path.basename(path), pid) for path, pid in holders(paths).items()]


class Allotment:
    """A run's share, claimed: `close` it.

    `cpus`: which, None: all; `gpus`: names, None: all; `notes`: what a user should know, one sentence each.

    Args:
        wanted: what the job asks for.
        machine: what there is.
        claims: folder of the claims, made if it is not there.

    Raises:
        InputError: there is not that much. TryAgainError: other runs have the GPUs. OSError: the disk.
    """

    def __init__(self, wanted: ResourceSpec, machine: Machine, claims: str) -> None:
        self._claims, self._held = claims, list[int]()
        self.memory = wanted.memory
        self.notes: tuple[str, ...] = ()
        self.cpus: tuple[int, ...] | None = None
        self.gpus: tuple[str, ...] | None = None
        try:
            self.cpus = self._some_cpus(wanted.cpus, machine) if wanted.cpus else None
            self.gpus = self._some_gpus(wanted.gpus, machine.gpus) if wanted.gpus != "all" else None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Others may have it. Idempotent."""
        for fd in self._held:
            os.close(fd)
        self._held.clear()

    def variables(self) -> dict[str, str]:
        """What makes CUDA see these GPUs alone."""
        return {} if self.gpus is None else {_VISIBLE: ",".join(self.gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def processes(self, wanted: int | str, machine: Machine) -> int:
        """How many to start: `wanted`, or for ``auto`` one a GPU that the run has, at least one."""
        found = machine.gpus if self.gpus is None else self.gpus
        return wanted if isinstance(wanted, int) else max(1, len(found))

    def _some_cpus(self, count: int, machine: Machine) -> tuple[int, ...]:
        if count > len(machine.cpus):
            hint = f"ask for at most {len(machine.cpus)}, or 0 for all"
            raise InputError(f"asks for {count} CPUs; here are {len(machine.cpus)}", path="resources.cpus", hint=hint)
        mine = self._claimed((f"cpu-{number}" for number in machine.cpus), count)
        chosen = [number for number in machine.cpus if f"cpu-{number}" in mine]
        if shared := count - len(chosen):
            chosen += [number for number in machine.cpus if number not in chosen][:shared]
            self.notes += (f"{shared} of its {count} CPUs are other runs' too",)
        return tuple(sorted(chosen))

    def _some_gpus(self, wanted: int | Sequence[int] | str, there: tuple[str, ...]) -> tuple[str, ...]:
        if isinstance(wanted, int):
            if wanted > len(there):
                hint = "ask for fewer, or leave `resources.gpus` out"
                raise InputError(f"asks for {wanted} GPUs; here are {len(there)}", path="resources.gpus", hint=hint)
            mine = self._claimed((f"gpu-{name}" for name in there), wanted)
            if len(mine) < wanted:
                hint = "wait for one of them, or name the GPUs to share: resources.gpus = [0]"
                said = f"asks for {wanted} of {len(there)} GPUs, and other runs have {len(there) - len(mine)}"
                raise TryAgainError(said, path="resources.gpus", hint=hint)
            return tuple(name for name in there if f"gpu-{name}" in mine)
        named = tuple(str(number) for number in wanted)
        if unknown := [name for name in named if name not in there]:
            hint = f"here are {', '.join(there)}" if there else "there is none on this machine"
            raise InputError(f"names GPU {unknown[0]}, which is not there", path="resources.gpus", hint=hint)
        if shared := len(named) - len(self._claimed((f"gpu-{name}" for name in named), len(named))):
            self.notes += (f"{shared} of its {len(named)} GPUs are other runs' too",)
        return named

    def _claimed(self, names: Iterable[str], count: int) -> set[str]:
        """Up to `count` of these that nobody else has."""
        make_folder(self._claims, "HEADRACE_RUN_STATE")
        mine: set[str] = set()
        for name in names:
            if len(mine) == count:
                break
            held = try_lock(os.path.join(self._claims, name.replace("/", "_")))
            if held is not None:
                self._held.append(held)
                mine.add(name)
        return mine


class MemoryWatch:
    """Whether a process and all it started hold more than `limit` bytes together. One thread.

    Pages that several of them share count once, where the kernel tells (``proc_pid_smaps(5)``, proportional set size);
    that is asked only when it could matter, because it takes the kernel a while.
    """

    def __init__(self, pid: int, limit: int) -> None:
        self._tree, self._limit = Tree(pid), limit

    def over(self) -> str | None:
        """In words, if it is so."""
        told = self._tree.sample(None)
        if told.get("job/memory", 0.0) <= self._limit:
            return None
        # The sum is taken process by process: one that ends meanwhile leaves its share to those yet to be read.
        held = min(sum(_held(pid) for pid in self._tree.members) for _ in range(2))
        return f"out of memory: {format_bytes(held)} of {format_bytes(self._limit)}" if held > self._limit else None


def _held(pid: int) -> int:
    with suppress(OSError, ValueError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _devices() -> list[str]:
    """NVIDIA's, by their numbers: one file each that its driver makes."""
    with suppress(OSError):
        found = (re.fullmatch(r"nvidia(\d+)", name) for name in os.listdir("/dev"))
        return sorted((one[1] for one in found if one), key=int)
    return []
