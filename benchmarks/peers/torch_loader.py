"""A PyTorch DataLoader over raw bytes, tuned: tensors through shared memory, persistent workers, deep prefetch.

Bytes that cross processes as `bytes` are pickled through a pipe; as tensors they are copied once into shared memory,
which is the way PyTorch's documentation describes and is faster here for anything but tiny samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from job import Job
from meter import Batch, size_of

PREFETCH = 8  # batches a worker; the default is 2
_TINY = 64 << 10  # bytes


def tensors(batch: list[list[Any]]) -> list[list[Any]]:
    """Collate: every part as a flat uint8 tensor (zero-copy in the worker), but for tiny ones: a tensor crosses as a
    file descriptor, half a millisecond each.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # read-only buffers: nobody writes
        return [
            [torch.frombuffer(part, dtype=torch.uint8) if size_of(part) >= _TINY else part for part in parts]
            for parts in batch
        ]


def of_dicts(loader: Any, dataset: Any, job: Job, workers: int, *, stack: bool = False) -> Iterator[Batch]:
    """A data set of samples that are dicts of parts, not shuffled, through a `loader` of DataLoader's kind. `stack`: by
    PyTorch's own collation, one tensor for each name.
    """

    def collate(samples: list[dict[str, Any]]) -> list[list[Any]]:
        parts = [list(sample.values()) for sample in samples]
        return tensors(parts) if workers else parts

    stream = loader(
        dataset,
        batch_size=job.batch,
        num_workers=workers,
        **({} if stack else {"collate_fn": collate}),
        prefetch_factor=PREFETCH if workers else None,
        persistent_workers=workers > 0 and job.mode != "epoch",  # litdata's, kept, do not end with their process
    )
    while True:
        for batch in stream:
            parts = list(batch.values()) if stack else batch
            yield len(parts[0]) if stack else len(batch), [part for several in parts for part in several]
        if job.mode == "epoch":
            return


def through_loader(
    dataset: Any, job: Job, workers: int, *, shuffle: bool = True, as_tensors: bool = True
) -> Iterator[Batch]:
    """A map dataset of samples (lists of buffers) through a DataLoader, for ever or once. `workers` 0: in-process.

    Without `as_tensors` the buffers cross as they are, pickled through a pipe.
    """
    loader = DataLoader(
        dataset,
        batch_size=job.batch,
        shuffle=shuffle,
        num_workers=workers,
        collate_fn=tensors if workers and as_tensors else list,
        persistent_workers=workers > 0,
        prefetch_factor=PREFETCH if workers else None,
        generator=torch.Generator().manual_seed(job.seed),
    )
    while True:
        for batch in loader:
            yield len(batch), [part for parts in batch for part in parts]
        if job.mode == "epoch":
            return
