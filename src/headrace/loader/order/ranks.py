"""Which of several processes this one is, and whether what it is about to iterate suits that.

PyTorch and Accelerate are looked at where the program has imported them, never imported.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field

from headrace.base.errors import InputError
from headrace.base.settings import environment

_DEALERS = ("DataLoaderDispatcher", "IterableDatasetShard")
"""Accelerate's classes that deal out to the ranks what one data set gives."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Stripe `rank` of `world_size`: positions p with p mod world_size == rank.

    `told`: by the program, torch.distributed or torchrun's variables; else there was nothing to shard by.
    """

    rank: int = 0
    world_size: int = 1
    told: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise InputError(f"shard(rank={self.rank}, world_size={self.world_size})", hint="0 ≤ rank < world_size")


WHOLE = Shard()
"""Not sharded."""


def stripe_of(rank: int | None, world_size: int | None) -> Shard:
    """What is given; what is not: torch.distributed's where the program has begun it, else torchrun's variables.

    Raises:
        InputError: no such rank, or one of several that is not known.
    """
    if rank is not None and world_size is not None:
        return Shard(rank, world_size, told=True)
    group = _group()
    if group is None:
        variables = _variable("RANK"), _variable("WORLD_SIZE")
        told = rank is not None or world_size is not None or None not in variables
    else:
        variables, told = group, True
    ranks = world_size if world_size is not None else variables[1]
    place = rank if rank is not None else variables[0]
    if place is None and (ranks or 1) > 1:
        raise InputError(
            f"{ranks} ranks, and nothing says which of them this process is",
            hint="shard(rank, world_size), as the framework tells them: Lightning's own launcher does not set RANK",
        )
    return Shard(place or 0, ranks or 1, told)


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


def _variable(name: str) -> int | None:
    text = environment(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise InputError(f"{name}={text!r} is not a number", hint="torchrun sets RANK and WORLD_SIZE")
    return int(text)
