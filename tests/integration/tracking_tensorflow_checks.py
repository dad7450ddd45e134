"""Event files by TensorFlow's own writers. Runs in a child: see tests/frameworks_kit.py."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

from headrace.tracking.events import EventFiles
from tests.frameworks_kit import report


def check_the_writer_of_version_2(tf: Any) -> None:
    """What `tf.summary.scalar` does, which itself is a part of TensorBoard."""
    folder = "version2"
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    writer = tf.summary.create_file_writer(f"{folder}/train")
    files = EventFiles(folder)
    before = time.time()
    kinds = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64, tf.uint8)
    wanted: list[tuple[str, int, float]] = []
    with writer.as_default():
        for step in range(20):
            for kind in kinds:
                tf.summary.write(kind.name, tf.constant(step, kind), step=step, metadata=metadata)
                wanted.append((f"train/{kind.name}", step, float(step)))
            tf.summary.write("histogram", tf.random.normal([100, 3]), step=step)
    writer.flush()
    found = files.new()
    assert [point[1:4] for point in found] == [(name, value, step) for name, step, value in wanted]
    assert all(before - 1 <= point.time_us / 1e6 <= time.time() + 1 for point in found)
    with writer.as_default():
        tf.summary.write("late", tf.constant(math.inf), step=1 << 40, metadata=metadata)
    writer.close()
    assert [point[1:4] for point in files.new()] == [("train/late", math.inf, 1 << 40)]


def check_the_writer_of_version_1(tf: Any) -> None:
    """With a graph, a histogram and an image beside the scalars of one summary."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        v1.summary.scalar("loss", v1.placeholder_with_default(0.25, []))
        v1.summary.histogram("weights", tf.random.normal([1000]))
        v1.summary.image("image", tf.random.uniform([1, 64, 64, 3]))
        v1.summary.scalar("rate", tf.constant(0.5))
        merged = v1.summary.merge_all()
        writer = v1.summary.FileWriter("version1", session.graph)
        for step in range(5):
            writer.add_summary(session.run(merged), step)
        writer.close()
    names = [(name, value, step) for step in range(5) for name, value in (("loss", 0.25), ("rate", 0.5))]
    assert [point[1:4] for point in EventFiles("version1").new()] == names


def check_a_file_that_is_cut_off(tf: Any) -> None:
    """In the middle of its last record; its name has a space."""
    writer = tf.summary.create_file_writer("cut")
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = "scalars"
    with writer.as_default(), tf.summary.experimental.summary_scope("epoch loss"):
        for step in range(3):
            tf.summary.write("epoch loss", tf.constant(1.0), step=step, metadata=metadata)
    writer.close()
    (path,) = Path("cut").iterdir()
    os.truncate(path, path.stat().st_size - 3)
    assert [point[1:4] for point in EventFiles("cut").new()] == [("epoch loss", 1.0, 0), ("epoch loss", 1.0, 1)]


if __name__ == "__main__":
    import tensorflow

    from tests.integration import tracking_tensorflow_checks

    report(tracking_tensorflow_checks, tensorflow)
