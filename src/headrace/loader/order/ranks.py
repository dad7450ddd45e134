"""Which of several processes this one is, and whether what it is about to iterate suits that.

PyTorch, Accelerate and JAX are looked at where the program has imported them, never imported. Variables are those that
the launchers document: torchrun, Horovod (`horovodrun`), Open MPI (`mpirun`, OMPI_COMM_WORLD_*), MPICH and Intel MPI
(PMI_*), SLURM (`srun`: SLURM_STEP_NUM_TASKS, as SLURM_NTASKS is also there where one process runs alone), and
TensorFlow's TF_CONFIG.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from headrace.base.errors import InputError
from headrace.base.settings import environment

_DEALERS = ("DataLoaderDispatcher", "IterableDatasetShard")
"""Accelerate's classes that deal out to the ranks what one data set gives."""


_VARIABLES: Final = (
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Horovod", "HOROVOD_RANK", "HOROVOD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    ("SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Who starts processes, and the variables by which it says which one this is; the first that says so holds."""
_BESIDE: Final = ("LOCAL_WORLD_SIZE", "HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""The variables by which they say how many of these processes there are on this machine."""
_EVEN: Final = (None, "repeat", "short")


@dataclass(frozen=True, slots=True)
class Shard:
    """Stripe `rank` of `world_size`: positions p with p mod world_size == rank.

    `by`: who said so, ``"shard()"`` for the program; empty: there was nothing to shard by. `even`: what makes all
    stripes equally long: ``"repeat"``, short ones get some samples once more; ``"short"``, long ones leave some out;
    None: nothing does.
    """

    rank: int = 0
    world_size: int = 1
    by: str = field(default="", compare=False)
    even: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise InputError(f"shard(rank={self.rank}, world_size={self.world_size})", hint="0 ≤ rank < world_size")
        if self.even not in _EVEN:
            raise InputError(f"shard(even={self.even!r})", hint='"repeat" or "short"')

    @property
    def told(self) -> bool:
        """Whether anybody said which rank this is."""
        return bool(self.by)

    def describe(self) -> str:
        """For people."""
        return f"rank {self.rank} of {self.world_size}, as {self.by} says" if self.by else ""


WHOLE = Shard()
"""Not sharded."""


class Said(NamedTuple):
    """Which process this is, and of how many, as `by` says. None: that is not said."""

    rank: int | None
    ranks: int | None
    by: str


def said() -> Said:
    """By torch.distributed where the program has begun it, else by who started the process, as the variables of
    torchrun, Horovod, Open MPI, MPICH, SLURM and TF_CONFIG say in this order, else by JAX where that was begun.

    Raises:
        InputError: a variable is malformed.
    """
    group = _group()
    if group is not None:
        return Said(*group, "torch.distributed")
    for by, rank, ranks in _VARIABLES:
        numbers = _variable(rank, by), _variable(ranks, by)
        if None not in numbers or (by == "torchrun" and numbers != (None, None)):  # half of its word is refused
            return Said(*numbers, by)
    return _tensorflow() or _jax() or Said(None, None, "")


def ranks_here() -> int:
    """How many of the processes that `said` counts are on this machine, as far as that is known; at least 1."""
    told = (environment(name) for name in _BESIDE)
    return next((int(one) for one in told if one is not None and one.isdigit() and int(one)), 1)


def stripe_of(rank: int | None, world_size: int | None, even: str | None = None) -> Shard:
    """What is given; what is not, as `said`.

    Raises:
        InputError: no such rank, or one of several that is not known.
    """
    if rank is not None and world_size is not None:
        return Shard(rank, world_size, "shard()", even)
    found = said()
    ranks = world_size if world_size is not None else found.ranks
    place = rank if rank is not None else found.rank
    if place is None and (ranks or 1) > 1:
        raise InputError(
            f"{ranks} ranks, and nothing says which of them this process is",
            hint="shard(rank, world_size), as the framework tells them: Lightning's own launcher does not set RANK",
        )
    by = "shard()" if rank is not None or world_size is not None else found.by if found.ranks is not None else ""
    return Shard(place or 0, ranks or 1, by, even)


@dataclass(frozen=True, slots=True)
class Around:
    """In what something is iterated: by how many ranks, and which of Accelerate's classes deals out what it gives."""

    ranks: int = 1
    dealer: str | None = None

    def check_dealt(self, stripe: Shard, batched: bool) -> None:
        """Refuse what Accelerate would deal out a second time, or cannot.

        Raises:
            InputError
        """
        if self.dealer is None or self.ranks == 1:
            return
        if stripe.world_size > 1:
            raise InputError(
                f"Accelerate's {self.dealer} deals out to {self.ranks} ranks what is stripe {stripe.rank} of "
                f"{stripe.world_size} already: the other samples would never be seen",
                hint="leave out shard(); or use hr.torch.tensors(ds.shard().batch(n)), which Accelerate leaves alone",
            )
        if batched and self.dealer == "IterableDatasetShard":
            raise InputError(
                "with dispatch_batches=False, Accelerate deals out samples, and this data set gives batches",
                hint="leave out batch() and give the DataLoader a batch_size, or hr.torch.tensors(ds.shard().batch(n))",
            )

    def check(self, stripe: Shard, batched: bool) -> None:
        """As `check_dealt`; and refuse several ranks that would each see everything, unless that was said.

        Raises:
            InputError
        """
        self.check_dealt(stripe, batched)
        if self.ranks > 1 and self.dealer is None and not stripe.told:
            raise InputError(
                f"{self.ranks} ranks, and each would see every sample",
                hint="ds.shard() gives each rank its stripe; ds.shard(0, 1) says that each is to see all of it",
            )


def around() -> Around:
    """Of the calling frames. A worker process that was forked has those of its parent."""
    group = _group()
    if group is None or group[1] == 1:
        return Around()
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_qualname.partition(".")[0]
        if name in _DEALERS and frame.f_globals.get("__name__", "").startswith(("accelerate.", "transformers.")):
            return Around(group[1], name)
        frame = frame.f_back
    return Around(group[1])


def _group() -> tuple[int, int] | None:
    """(rank, world size) of torch.distributed's default group, if the program has begun it."""
    group = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return None
    return group.get_rank(), group.get_world_size()


def _variable(name: str, by: str) -> int | None:
    text = environment(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise InputError(f"{name}={text!r} is not a number", hint=f"{by} sets it; or say it: shard(rank, world_size)")
    return int(text)


def _tensorflow() -> Said | None:
    """TF_CONFIG: JSON with the addresses of each kind of task, and which of them this process is. The chief and the
    workers are the ranks; a parameter server or an evaluator is none of them.
    """
    text = environment("TF_CONFIG")
    if text is None:
        return None
    try:
        told: Any = json.loads(text)
        cluster = cast("Mapping[str, list[str]]", told.get("cluster", {}))
        chiefs, workers = len(cluster.get("chief", cluster.get("master", []))), len(cluster.get("worker", []))
        kind, index = told.get("task", {}).get("type"), int(told.get("task", {}).get("index", 0))
    except (ValueError, TypeError, AttributeError) as error:
        hint = "or say it: shard(rank, world_size)"
        raise InputError("TF_CONFIG is not what TensorFlow describes", hint=hint) from error
    if kind not in ("chief", "master", "worker") or chiefs + workers == 0:
        return None
    return Said(index + (chiefs if kind == "worker" else 0), chiefs + workers, "TF_CONFIG")


def _jax() -> Said | None:
    """Only of processes that were begun together: else to ask would begin JAX's devices."""
    jax: Any = sys.modules.get("jax")
    begun: Callable[[], bool] | None = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    if begun is None or not begun():
        return None
    return Said(jax.process_index(), jax.process_count(), "jax.distributed")
