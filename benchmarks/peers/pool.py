"""Threads with ordered read-ahead, for clients that have no loader of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any

from data import Entry, batches
from job import Job
from meter import Batch

AHEAD_BYTES = 512_000_000
"""What headrace is given too (``prefetch="512MB"``)."""


def read_ahead(job: Job, fetch: Callable[[str], Any], threads: int) -> Iterator[Batch]:
    """Batches in order, one task a sample, as many samples ahead as fit `AHEAD_BYTES`."""

    def sample(parts: list[Entry]) -> list[Any]:
        return [fetch(part.key) for part in parts]

    plan = batches(job.root, job.dataset, job.batch, job.seed, once=job.mode == "epoch")
    pending: deque[tuple[int, list[Future[list[Any]]]]] = deque()
    pool = ThreadPoolExecutor(threads)
    ahead = 0
    try:
        while True:
            # two in for each one out, until the room is full: the first batch need not wait for the whole queue
            for batch in islice(plan, 2 if pending else 2 * threads):
                size = sum(part.size for parts in batch for part in parts)
                pending.append((size, [pool.submit(sample, parts) for parts in batch]))
                ahead += size
                if ahead >= AHEAD_BYTES:
                    break
            if not pending:
                return
            size, futures = pending.popleft()
            yield len(futures), [part for future in futures for part in future.result()]
            ahead -= size
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
