"""What of the machine a run has: which CPUs, which GPUs, how much memory.

A run that asks for a number of CPUs or GPUs claims that many among the runs of a user on the node (see `claims`), and
waits for them if it is to. Runs that ask for nothing claim nothing, and see everything.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.base.errors import InputError, TryAgainError
from headrace.base.units import format_bytes
from headrace.jobs.claims import PATIENCE_S, Blocked, Claims, Want
from headrace.jobs.spec_parts import ResourceSpec
from headrace.tracking.samplers_job import Tree

_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_LOOK_S: Final = 0.5  # seconds between looks whether what is wanted is free


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


class Allotment:
    """A run's share of the machine, its own: `close` it. One thread.

    Without `wanted.wait` it has it once it is made. With it the run has a place in the queue then, and has its share
    when `wait` says so.

    `cpus`: which, None: all; `gpus`: names, None: all; `notes`: what a user should know, one sentence each.

    Args:
        wanted: what the job asks for.
        machine: what there is.
        claims: folder of the claims, made if it is not there.
        run: its id, for others to read.

    Raises:
        InputError: there is not that much. TryAgainError: other runs have the GPUs. OSError: the disk.
    """

    def __init__(self, wanted: ResourceSpec, machine: Machine, claims: str, run: str = "") -> None:
        self._wants = _wants(wanted, machine)
        self._claims = Claims(claims, run)
        self.memory = wanted.memory
        self.notes: tuple[str, ...] = ()
        self.cpus: tuple[int, ...] | None = None
        self.gpus: tuple[str, ...] | None = () if wanted.gpus == 0 else None
        self._why = ""
        try:
            if not self._wants:
                return
            if wanted.wait:
                self._look()
            else:
                taken = self._claims.some(list(self._wants.values()))
                self._share(dict(zip(self._wants, taken, strict=True)), wanted, machine)
        except BaseException:
            self.close()
            raise

    def wait(self, waits: Callable[[str], None], stopped: Callable[[], bool]) -> bool:
        """Until the share is the run's own. False: it was to stop before, and waits no more.

        `waits`: gets why it has to, each time that changes.
        """
        told = ""
        while self._why:
            if stopped():
                self.close()
                return False
            if told != self._why:
                told = self._why
                waits(told)
            time.sleep(_LOOK_S)
            try:
                self._look(_LOOK_S)
            except TryAgainError:  # no moment to look: another time
                pass
            except OSError as error:
                self._why = f"cannot look for what is free: {error}"
        return True

    def close(self) -> None:
        """Others may have it. Idempotent."""
        self._claims.close()

    def variables(self) -> dict[str, str]:
        """What makes CUDA see these GPUs alone."""
        return {} if self.gpus is None else {_VISIBLE: ",".join(self.gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def processes(self, wanted: int | str, machine: Machine) -> int:
        """How many to start: `wanted`, or for ``auto`` one a GPU that the run has, at least one."""
        found = machine.gpus if self.gpus is None else self.gpus
        return wanted if isinstance(wanted, int) else max(1, len(found))

    def _look(self, patience: float = PATIENCE_S) -> None:
        wants = list(self._wants.values())
        taken = self._claims.all(wants, patience)
        if isinstance(taken, Blocked):
            self._why = _why(self._wants, taken)
            return
        self._why = ""
        self._has(dict(zip(self._wants, taken, strict=True)))

    def _has(self, taken: Mapping[str, tuple[str, ...]]) -> None:
        if "CPU" in taken:
            self.cpus = tuple(sorted(int(_name(thing)) for thing in taken["CPU"]))
        if "GPU" in taken:
            self.gpus = tuple(map(_name, taken["GPU"]))

    def _share(self, taken: Mapping[str, tuple[str, ...]], wanted: ResourceSpec, machine: Machine) -> None:
        """Of what is short, have others' too, where that may be."""
        shared = {kind: want.count - len(taken[kind]) for kind, want in self._wants.items()}
        if isinstance(wanted.gpus, int) and shared.get("GPU"):
            there = len(machine.gpus)
            hint = "wait for them: --wait; or name the GPUs to share: resources.gpus = [0]"
            said = f"asks for {wanted.gpus} of {there} GPUs, and other runs have {there - len(taken['GPU'])}"
            said += " or wait for them" if self._claims.kept.intersection(self._wants["GPU"].things) else ""
            raise TryAgainError(said, path="resources.gpus", hint=hint)
        more = {
            kind: tuple(thing for thing in want.things if thing not in taken[kind])[: shared[kind]]
            for kind, want in self._wants.items()
        }
        self._has({kind: taken[kind] + more[kind] for kind in taken})
        if isinstance(wanted.gpus, tuple):
            self.gpus = tuple(map(str, wanted.gpus))
        self.notes = tuple(
            f"{shared[kind]} of its {want.count} {kind}s are other runs' too"
            for kind, want in self._wants.items()
            if shared[kind]
        )


def _wants(wanted: ResourceSpec, machine: Machine) -> dict[str, Want]:
    """By ``CPU`` and ``GPU``: what is to be claimed. Raises InputError: there is not that much."""
    found: dict[str, Want] = {}
    if wanted.cpus:
        if wanted.cpus > len(machine.cpus):
            hint = f"ask for at most {len(machine.cpus)}, or 0 for all"
            said = f"asks for {wanted.cpus} CPUs; here are {len(machine.cpus)}"
            raise InputError(said, path="resources.cpus", hint=hint)
        found["CPU"] = Want(wanted.cpus, tuple(f"cpu-{number}" for number in machine.cpus))
    if isinstance(wanted.gpus, int):
        if wanted.gpus > len(machine.gpus):
            hint = "ask for fewer, or leave `resources.gpus` out"
            said = f"asks for {wanted.gpus} GPUs; here are {len(machine.gpus)}"
            raise InputError(said, path="resources.gpus", hint=hint)
        if wanted.gpus:
            found["GPU"] = Want(wanted.gpus, tuple(f"gpu-{name}" for name in machine.gpus))
    elif wanted.gpus != "all":
        named = tuple(dict.fromkeys(map(str, wanted.gpus)))
        if unknown := [name for name in named if name not in machine.gpus]:
            hint = f"here are {', '.join(machine.gpus)}" if machine.gpus else "there is none on this machine"
            raise InputError(f"names GPU {unknown[0]}, which is not there", path="resources.gpus", hint=hint)
        found["GPU"] = Want(len(named), tuple(f"gpu-{name}" for name in named))
    return found


def _why(wants: Mapping[str, Want], blocked: Blocked) -> str:
    asked = " and ".join(
        f"{want.count} of {len(want.things)} {kind}s ({free} free for it)"
        for (kind, want), free in zip(wants.items(), blocked.free, strict=True)
    )
    return "; ".join((f"asks for {asked}", *map(str, blocked.others)))


def _name(thing: str) -> str:
    return thing.partition("-")[2]


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
