"""The variables by which the processes of a gang find each other: those that torchrun sets.

https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables; ``env://`` of
`torch.distributed.init_process_group` needs the first four and ``MASTER_*``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where the processes of an attempt meet. `sizes`: processes of each node, in the order of nodes; `address`,
    `port`: of rank 0's node; `run`: the run's id; `restart`: how many attempts there were before.
    """

    run: str
    sizes: tuple[int, ...]
    address: str
    port: int
    restart: int

    @property
    def world(self) -> int:
        """Processes in all."""
        return sum(self.sizes)

    def first(self, node: int) -> int:
        """The lowest rank of a node."""
        return sum(self.sizes[:node])

    def variables(self, node: int, local: int, given: Sequence[str]) -> dict[str, str]:
        """For process number `local` of a node. `given`: names of variables that the command has already."""
        rank, here = self.first(node) + local, self.sizes[node]
        threads = {"OMP_NUM_THREADS": "1"} if here > 1 and "OMP_NUM_THREADS" not in given else {}
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.world),
            "LOCAL_WORLD_SIZE": str(here),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(len(self.sizes)),
            "ROLE_NAME": "default",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(self.world),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "TORCHELASTIC_RUN_ID": self.run,
            "TORCHELASTIC_RESTART_COUNT": str(self.restart),
            "TORCHELASTIC_MAX_RESTARTS": "0",
            **threads,
        }
