"""headrace over any format as a user writes it: open the folder, shuffle or not, batch, loader.

``folder``: below the bucket. ``local``: from the disk (``file://``) rather than the store. ``order``: ``sequential``,
``blocked`` or ``global``. ``format``: where names do not tell. ``example``: records are parsed by `hr.decode.example`.
"""

from __future__ import annotations

from collections.abc import Iterator

import headrace as hr
from headrace import Dataset  # with all that it needs: nobody's imports are counted
from job import BUCKET, Job
from meter import Batch


def batches(job: Job) -> Iterator[Batch]:
    where = f"file://{job.root}/bench" if job.options.get("local") else f"s3://{BUCKET}"
    dataset = Dataset.open(f"{where}/{job.options['folder']}/", format=job.options.get("format"))
    order = job.options.get("order", "sequential")
    if order != "sequential":
        dataset = dataset.shuffle(job.seed, block="4MB" if order == "blocked" else None)
    if job.options.get("example"):
        dataset = dataset.map(hr.decode.example())
    if job.mode == "steady":
        dataset = dataset.repeat()
    return _batches(dataset, job)


def _batches(dataset: Dataset, job: Job) -> Iterator[Batch]:
    """Made apart: as with the peers, the data set is open before the clock of an epoch starts."""
    wanted = job.options.get("parts")
    for batch in dataset.batch(job.batch).loader():
        names = wanted or [name for name in batch if not name.startswith("__")]
        parts = [part for name in names for part in batch[name]]
        yield len(batch["__key__"]), [part[0] for part in parts] if job.options.get("example") else parts
