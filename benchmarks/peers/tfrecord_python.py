"""The Python package `tfrecord`: parsed Examples from the local disk, its `TFRecordDataset` in a DataLoader.

``workers`` 0: in this process. Its reader takes one file, so files are given to it as its documentation shows, by
`MultiTFRecordDataset` with equal weights; in workers that splits each file by its index, which is made beforehand.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfrecord.tools.tfrecord2idx import create_index
from tfrecord.torch.dataset import MultiTFRecordDataset
from torch.utils.data import DataLoader

from job import Job
from meter import Batch
from peers.torch_loader import PREFETCH


def batches(job: Job) -> Iterator[Batch]:
    warnings.simplefilter("ignore")
    folder = Path(job.root, "bench", job.options["folder"])
    names = sorted(path.stem for path in folder.glob("*.tfrecord"))
    for name in names:
        create_index(str(folder / f"{name}.tfrecord"), f"{job.scratch}/{name}.index")
    workers = int(job.options.get("workers", 0))
    dataset = MultiTFRecordDataset(
        f"{folder}/{{}}.tfrecord",
        f"{job.scratch}/{{}}.index" if workers else None,
        dict.fromkeys(names, 1.0 / len(names)),
        description={"data": "byte", "cls": "int"},
    )
    ahead = PREFETCH if workers else None
    loader: Any = DataLoader(dataset, batch_size=job.batch, num_workers=workers, collate_fn=list, prefetch_factor=ahead)
    while True:
        for batch in loader:
            yield len(batch), [sample["data"] for sample in batch]
