"""Local files (page cache warm) in a PyTorch DataLoader: no object store at all; tensors cross by shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from data import samples
from job import BUCKET, Job
from meter import Batch
from peers.torch_loader import through_loader


class Files:
    """Map dataset: a sample is the bytes of its files."""

    def __init__(self, job: Job) -> None:
        self.bucket = Path(job.root) / BUCKET
        self.keys = [[part.key for part in parts] for parts in samples(job.root, job.dataset)]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> list[bytes]:
        return [(self.bucket / key).read_bytes() for key in self.keys[index]]


def batches(job: Job) -> Iterator[Batch]:
    return through_loader(Files(job), job, int(job.options.get("workers", 2)))
