"""The AWS CRT connector (s3torchconnector), `S3MapDataset` with path-style addressing.

``workers`` 0: one client and dataset in threads of this process (the client releases the GIL), read ahead in order.
Otherwise in a PyTorch DataLoader with that many workers, the way its README shows; samples become tensors in the
worker, so that they cross by shared memory and not by pickling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from s3torchconnector import S3ClientConfig, S3MapDataset, S3Reader, S3ReaderConstructor

from data import samples
from job import BUCKET, REGION, Job
from meter import Batch
from peers.pool import read_ahead
from peers.torch_loader import through_loader


def _bytes(reader: S3Reader) -> bytes:
    return reader.read()


class Grouped:
    """Map dataset of whole samples over the connector's dataset of objects."""

    def __init__(self, objects: S3MapDataset, parts: int) -> None:
        self.objects = objects
        self.parts = parts

    def __len__(self) -> int:
        return len(self.objects) // self.parts

    def __getitem__(self, index: int) -> list[Any]:
        return [self.objects[index * self.parts + part] for part in range(self.parts)]


def batches(job: Job) -> Iterator[Batch]:
    grouped = samples(job.root, job.dataset)
    keys = [part.key for parts in grouped for part in parts]
    dataset = S3MapDataset.from_objects(
        [f"s3://{BUCKET}/{key}" for key in keys],
        region=REGION,
        endpoint=job.endpoint,
        transform=_bytes,
        s3client_config=S3ClientConfig(force_path_style=True, throughput_target_gbps=100.0),
        reader_constructor=S3ReaderConstructor.sequential(),
    )
    workers = int(job.options.get("workers", 0))
    if workers:
        return through_loader(Grouped(dataset, len(grouped[0])), job, workers)
    number = {key: index for index, key in enumerate(keys)}
    return read_ahead(job, lambda key: dataset[number[key]], int(job.options.get("threads", 16)))
