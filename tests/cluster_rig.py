"""Ray clusters whose nodes are processes of this machine: one that a run's tests share, and commands that use one."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.base.errors import UnsupportedError
from headrace.cluster.local import LocalCluster
from tests.runs_rig import Ended, RunsRig

TOOLS = Path(__file__).parents[1] / ".tools/ray"
PYTHON = str(TOOLS / "bin/python")
"""The interpreter that has Ray."""
FORGOTTEN_SOON = {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5"}
"""A client's setting: seconds for which the cluster keeps what it asked for, once it is killed. Ray's 30 are for
networks that break. Not for a shell, which is to end by itself before that.
"""
FREE = """
import sys, time
from headrace.cluster.connection import connected

with connected(sys.argv[1]) as ray:
    while ray.available_resources().get("CPU") != float(sys.argv[2]):
        time.sleep(0.1)
"""
TOGETHER = """
import os, time
from pathlib import Path

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = Path({folder!r}, os.environ["HEADRACE_RUN_ID"], os.environ["HEADRACE_ATTEMPT"])
folder.mkdir(parents=True, exist_ok=True)
met = 0

def any_of(asked):
    \"\"\"Whether one of the ranks asks; each of them waits for all.\"\"\"
    global met
    met += 1
    (folder / f"{{met}}-{{rank}}-{{int(asked)}}").touch()
    while len(told := list(folder.glob(f"{{met}}-*"))) < world:
        time.sleep(0.01)
    return any(path.name.endswith("-1") for path in told)

def barrier():
    any_of(False)
"""
"""What a training program needs of ``torch.distributed``, between processes of one machine: seconds of a processor
less a rank. Files below `folder` are what they hear of each other by.
"""
_STATE = ("HEADRACE_RUN_STATE", "HEADRACE_RUN_CACHE", "HEADRACE_CACHE_DIR", "HEADRACE_SYNC_STATE")


def state_below(folder: Path) -> dict[str, str]:
    """Settings of a node that keeps what it has to itself."""
    return {name: str(folder / name) for name in _STATE}


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """A cluster of two nodes with two CPUs each, that other tests use at the same time: nothing on it may be killed but
    what the test has started. `variables`: what a command needs to be let in.
    """

    address: str
    inside: str
    variables: Mapping[str, str]


@contextmanager
def shared_cluster() -> Generator[SharedCluster]:
    """Raises UnsupportedError: Ray is not installed."""
    if not (TOOLS / ".headrace").exists():
        raise UnsupportedError("Ray is not installed: scripts/framework-tools ray")
    with tempfile.TemporaryDirectory(prefix="hr-shared-", ignore_cleanup_errors=True) as name:
        scratch = Path(name)
        with LocalCluster(python=PYTHON, variables=state_below(scratch / "head")) as cluster:
            for number in range(2):
                cluster.add(2, state_below(scratch / f"node{number}"))
            yield SharedCluster(cluster.address, cluster.inside, cluster.variables())


@dataclass
class ClusterRig(RunsRig):
    """Commands that have a cluster of their own, whose nodes may be killed."""

    cluster: LocalCluster | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.script(TOGETHER.format(folder=str(self.scratch / "together")), "together.py")

    def on(self, *arguments: str, nodes: int = 2, code: int = 0) -> Ended:
        """A run on the cluster, to its end."""
        return self.headrace(*self.words(*arguments, nodes=nodes), code=code, timeout=200)

    def words(self, *arguments: str, nodes: int = 2) -> list[str]:
        assert self.cluster is not None
        return ["run", "--on", self.cluster.address, "--nodes", str(nodes), *arguments]

    def all_free(self, cpus: int) -> None:
        """Wait until nothing of an earlier run is held: a gang of ``1..2`` takes what is free when it starts."""
        assert self.cluster is not None
        asks = [PYTHON, "-c", FREE, self.cluster.address, str(cpus)]
        subprocess.run(asks, env=self.environment, check=True, timeout=120)

    def add(self, count: int = 1) -> None:
        """Nodes with a CPU each, which know nothing of the caller's settings."""
        assert self.cluster is not None
        for _ in range(count):
            self.cluster.add(1, state_below(self.scratch / f"machine{len(self.cluster.nodes)}"))
