"""What others do on the machine while a constructed run of ``benchmarks/why.py`` goes on: a process each.

======= ==================================================================================================
cpu     computes on one core
disk    writes and reads files of 64 MB, and syncs them
run     another run's loop: reads the small objects by a loader of its own and decodes them, 10 ms of CPU each
mount   reads the files of a mount of its own, which is 30 ms away from the store, one after the other
======= ==================================================================================================
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headrace.store.embedded import EmbeddedS3
from why_cases import Way
from why_mount import mounted

_BEGUN_S = 2.0


@contextmanager
def beside(kind: str, server: EmbeddedS3, bucket: str, variables: Mapping[str, str], folder: Path) -> Iterator[None]:
    """One of `why_cases.NEIGHBOURS`, or none for ``""``."""
    with ExitStack() as stack:
        given = [kind]
        if kind == "disk":
            given.append(str(folder))
        elif kind == "run":
            given.append(f"s3://{bucket}/small")
        elif kind == "mount":
            given.append(stack.enter_context(mounted(server, bucket, Way(latency_s=0.03), folder)) + "/small")
        if kind:
            process = subprocess.Popen([sys.executable, __file__, *given], env=dict(variables))
            stack.callback(process.wait)
            stack.callback(process.kill)
            time.sleep(_BEGUN_S)
        yield


def compute() -> None:
    while True:
        sum(range(10_000))


def use_disk(folder: str) -> None:
    path, block = Path(folder) / "neighbour.bin", os.urandom(1 << 20)
    while True:
        with path.open("wb") as file:
            for _ in range(64):
                file.write(block)
            os.fsync(file.fileno())
        path.read_bytes()


def run(data: str) -> None:
    import headrace as hr
    from why_job import Decode

    decode = Decode(0.01, gil=False)
    for _ in hr.Dataset.open(data, by="object").shuffle(seed=3).repeat().map(decode, threads=1).batch(8).loader():
        pass


def read_mount(folder: str) -> None:
    while True:
        for path in sorted(Path(folder).iterdir()):
            path.read_bytes()
            os.posix_fadvise(fd := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


if __name__ == "__main__":
    {"cpu": compute, "disk": use_disk, "run": run, "mount": read_mount}[sys.argv[1]](*sys.argv[2:])
