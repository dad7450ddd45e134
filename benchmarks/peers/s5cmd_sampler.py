"""s5cmd as a prefetch sampler: while the loop reads one group of samples from tmpfs, ``s5cmd run`` fetches the next.

Groups (32 MB; 128 MB for large samples) are large enough that its start-up hardly counts, and two are kept ahead;
commands go in by standard input; files are read back once and removed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path

from data import Entry
from data import batches as plan
from job import BUCKET, Job
from meter import Batch

GROUP_BYTES = 32_000_000
AHEAD = 2


def batches(job: Job) -> Iterator[Batch]:
    s5cmd = shutil.which("s5cmd", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert s5cmd, "s5cmd is not installed"
    workers = str(job.options.get("numworkers", 64))
    command = [s5cmd, "--endpoint-url", job.endpoint, "--numworkers", workers, "--log", "error", "run"]

    def download(group: list[list[list[Entry]]]) -> tuple[str, list[list[list[Entry]]]]:
        folder = tempfile.mkdtemp(dir=job.scratch)
        keys = [part.key for batch in group for parts in batch for part in parts]
        # numbered: a group that spans two epochs may hold one object twice
        lines = [f"cp --concurrency 1 s3://{BUCKET}/{key} {folder}/{number}\n" for number, key in enumerate(keys)]
        subprocess.run(command, input="".join(lines).encode(), check=True, stdout=subprocess.DEVNULL)
        return folder, group

    groups = _groups(job)
    pending: deque[Future[tuple[str, list[list[list[Entry]]]]]] = deque()
    with ThreadPoolExecutor(1) as pool:
        pending.extend(pool.submit(download, group) for group in islice(groups, AHEAD))
        while pending:
            folder, group = pending.popleft().result()
            pending.extend(pool.submit(download, following) for following in islice(groups, 1))
            number = count()
            for batch in group:
                yield len(batch), [_take(f"{folder}/{next(number)}") for parts in batch for _ in parts]
            os.rmdir(folder)


def _groups(job: Job) -> Iterator[list[list[list[Entry]]]]:
    stream = plan(job.root, job.dataset, job.batch, job.seed, once=job.mode == "epoch")
    group: list[list[list[Entry]]] = []
    size = 0
    for batch in stream:
        group.append(batch)
        size += sum(part.size for parts in batch for part in parts)
        if size >= int(job.options.get("group_bytes", GROUP_BYTES)):
            yield group
            group, size = [], 0
    if group:
        yield group


def _take(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        data = file.read()
    os.unlink(path)
    return data
