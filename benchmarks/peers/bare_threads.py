"""Bare threads reading the same local files: no order, no batches, no loader; the limit of what a cache can give.

Each thread takes the next file, opens, reads it whole into a fresh buffer (`readinto`, without the GIL), closes.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from pathlib import Path

import numpy as np

from data import samples
from job import BUCKET, Job, Result
from meter import cpu_seconds


def run(job: Job) -> Result:
    grouped = samples(job.root, job.dataset)
    bucket = str(Path(job.root) / BUCKET)
    paths = [(f"{bucket}/{part.key}", part.size) for parts in grouped for part in parts]
    random.Random(job.seed).shuffle(paths)
    threads = int(job.options.get("threads", 2))
    took: list[tuple[int, int]] = []
    started = threading.Event()
    until = [0.0]
    turn = itertools.cycle(paths)

    def read() -> None:
        count = size = 0
        started.wait()
        while time.perf_counter() < until[0]:
            path, length = next(turn)
            buffer = np.empty(length, np.uint8)
            descriptor = os.open(path, os.O_RDONLY)
            try:
                size += os.readv(descriptor, [buffer.data])
            finally:
                os.close(descriptor)
            count += 1
        took.append((count, size))

    pool = [threading.Thread(target=read) for _ in range(threads)]
    for thread in pool:
        thread.start()
    cpu, began = cpu_seconds(), time.perf_counter()
    until[0] = began + job.window_s
    started.set()
    for thread in pool:
        thread.join()
    seconds = time.perf_counter() - began
    files = sum(count for count, _ in took)
    size = sum(size for _, size in took)
    return Result(files // len(grouped[0]), seconds, size, cpu_seconds() - cpu, notes=f"{threads} threads")
