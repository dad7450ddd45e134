"""`tf.data.TFRecordDataset` on the local disk, tuned as TensorFlow's guide to performance says.

Files are interleaved in parallel, `deterministic=False`, batched, prefetched, all with AUTOTUNE; its read buffer is
8 MB. Records stay scalars of bytes in TensorFlow's memory: what Python is given is the batch as a NumPy array of bytes
objects, which is the least that lets a step in Python see them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from job import Job
from meter import Batch

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def batches(job: Job) -> Iterator[Batch]:
    import tensorflow as tf

    files = sorted(str(path) for path in Path(job.root, "bench", job.options["folder"]).glob("*.tfrecord"))
    auto = tf.data.AUTOTUNE
    stream: Any = tf.data.Dataset.from_tensor_slices(files).repeat().interleave(
        lambda file: tf.data.TFRecordDataset(file, buffer_size=8 << 20),
        cycle_length=int(job.options.get("cycle", 4)), num_parallel_calls=auto, deterministic=False,
    )  # fmt: skip
    stream = stream.batch(job.batch, drop_remainder=True).prefetch(auto)
    for batch in stream.as_numpy_iterator():
        yield len(batch), list(batch)
