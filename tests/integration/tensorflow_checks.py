"""What `headrace.tf` promises, seen by TensorFlow itself. Runs in a child: see tests/frameworks_kit.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.base.errors import BadSampleError, InputError
from tests.frameworks_kit import digits, no_loader_runs, raised, report, run_blocks
from tests.integration.examples_kit import BATCH as PICTURES
from tests.integration.examples_kit import (
    EPOCH,
    Notes,
    crashed_and_resumed,
    example,
    picture_orders,
    pictures,
    working_in,
)

COUNT, BATCH = 500, 16
Place = tuple[Any, str, Path]
"""TensorFlow, the bucket's URL, and the folder where it is mounted."""


def decode(sample: Any) -> Any:
    image = np.frombuffer(sample["image"], np.uint8).astype(np.float32) / 16
    return {"__key__": sample["__key__"], "x": image, "y": int(bytes(sample["label"]))}


def pair(sample: Any) -> Any:
    found = decode(sample)
    return found["x"], found["y"]


def opened(place: Place) -> hr.Dataset:
    return hr.Dataset.open(f"{place[1]}/digits").shuffle(0)


def small(name: str, values: list[Any]) -> hr.Dataset:
    """A dataset of one npy object a value."""
    folder = Path(name).resolve()
    folder.mkdir()
    for number, value in enumerate(values):
        np.save(folder / f"{number:03d}.npy", value)
    return hr.Dataset.open(folder.as_uri()).map(hr.decode.npy())


def strings(tensor: Any) -> list[str]:
    return [one.decode() for one in tensor.numpy().tolist()]


def check_element_spec(place: Place) -> None:
    tf = place[0]
    ds = opened(place).map(decode)
    specs = {
        "__key__": tf.TensorSpec([None], tf.string),
        "x": tf.TensorSpec([None, 64], tf.float32),
        "y": tf.TensorSpec([None], tf.int64),
    }
    assert hr.tf.dataset(ds.batch(BATCH)).element_spec == specs
    full = hr.tf.dataset(ds.batch(BATCH, drop_last=True))
    assert full.element_spec["x"] == tf.TensorSpec([BATCH, 64], tf.float32)
    assert sum(1 for _ in full) == COUNT // BATCH
    single = hr.tf.dataset(ds)
    assert single.element_spec["x"] == tf.TensorSpec([64], tf.float32)
    assert single.element_spec["__key__"] == tf.TensorSpec([], tf.string)
    given = hr.tf.dataset(ds.batch(BATCH), signature={"x": tf.TensorSpec([None, 64], tf.float64)})
    assert next(iter(given))["x"].dtype == tf.float64
    assert isinstance(given, tf.data.Dataset)


def check_every_sample_once_an_epoch_in_another_order(place: Place) -> None:
    found = hr.tf.dataset(opened(place).map(decode).batch(BATCH)).prefetch(place[0].data.AUTOTUNE)
    epochs = [[key for batch in found for key in strings(batch["__key__"])] for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == [f"{row:04d}" for row in range(COUNT)]
    assert epochs[0] != epochs[1]
    repeated = hr.tf.dataset(opened(place).map(decode).batch(BATCH)).repeat(2)
    assert [key for batch in repeated for key in strings(batch["__key__"])] == epochs[0] + epochs[1]


def check_values_are_the_bytes_of_the_objects(place: Place) -> None:
    images, labels = digits(COUNT)
    for batch in hr.tf.dataset(opened(place).batch(BATCH)):
        for key, image, label in zip(strings(batch["__key__"]), batch["image"], strings(batch["label"]), strict=True):
            assert image.numpy() == images[int(key)].tobytes()
            assert int(label) == labels[int(key)]


def check_the_example_goes_on_where_it_stopped(place: Place) -> None:
    """In the middle of an epoch, and from its very last batch. The epoch that is resumed is a short one; those behind
    it are whole.
    """
    folder = pictures(Path("pictures").resolve())
    for save, crash in ((5, 7), (EPOCH, EPOCH)):

        def run(notes: Notes, save: int = save) -> None:
            with noted_by_keras(place[0].keras, notes):
                example("keras_fit", SAVE=save).main(folder, 3, PICTURES)

        with working_in(f"example-{save}"):
            found = crashed_and_resumed(run, crash, save)
        assert found == [row for order in picture_orders(folder, 3) for row in order], save


@contextmanager
def noted_by_keras(keras: Any, notes: Notes) -> Iterator[None]:
    """What goes into each training step, which Keras then makes by Python."""
    fit = keras.Sequential.fit

    def noted(model: Any, *given: Any, **options: Any) -> Any:
        step, model.run_eagerly = model.train_step, True

        def train_step(data: Any) -> Any:
            notes.note(data[0].numpy()[:, 0, 0, 0])
            return step(data)

        model.train_step = train_step
        return fit(model, *given, **options)

    keras.Sequential.fit = noted
    try:
        yield
    finally:
        keras.Sequential.fit = fit


def check_a_backup_says_what_it_cannot_do(place: Place) -> None:
    tf = place[0]
    model = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(10)])
    model.compile("sgd", "mse")
    filtered = opened(place).map(pair).filter(bool).batch(BATCH).loader()
    for loader in (filtered, opened(place).map(pair).batch(BATCH).loader()):
        data = hr.tf.dataset(loader) if loader is filtered else hr.tf.dataset(loader).prefetch(2)
        kept = hr.tf.backup("kept", loader, every=4)
        fit = partial(model.fit, data, callbacks=[kept], verbose=0)
        assert "how many batches" in str(raised(InputError, fit))
    unbuilt = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    unbuilt.compile("sgd", "mse")
    kept = hr.tf.backup("kept", filtered)
    kept.set_model(unbuilt)
    assert "not built" in str(raised(InputError, kept.on_train_begin))
    raised(InputError, lambda: hr.tf.backup("kept", filtered, every=0))


def check_the_guide(_: Place) -> None:
    pictures(Path("images"))
    run_blocks("frameworks.md", "tensorflow")


def check_model_fit(place: Place) -> None:
    tf = place[0]
    tf.keras.utils.set_random_seed(0)
    layers = [tf.keras.layers.Dense(64, "relu"), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)  # not built: Keras must not use up a batch to find the shapes
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    loader = opened(place).map(pair).batch(BATCH).loader()
    states: list[Any] = []

    class Watch(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            states.append(loader.state_dict())

    history = model.fit(hr.tf.dataset(loader), epochs=2, verbose=0, callbacks=[Watch()])
    assert history.history["accuracy"][-1] > history.history["accuracy"][0], history.history
    steps = -(-COUNT // BATCH)
    received = [(one["epoch"], one["frontiers"][0]) for one in states]
    assert received == [(epoch, min(BATCH * step, COUNT)) for epoch in range(2) for step in range(1, steps + 1)]
    again = opened(place).map(pair).batch(BATCH).loader()
    again.load_state_dict(loader.state_dict())  # Keras did not ask for the end of the epoch
    assert (sum(1 for _ in hr.tf.dataset(again)), again.epoch) == (steps, 3)


def check_tf_function_and_map(place: Place) -> None:
    tf = place[0]
    found = hr.tf.dataset(opened(place).map(pair).batch(BATCH))
    mapped = found.map(lambda x, y: y * 2, num_parallel_calls=4).prefetch(2)

    @tf.function
    def total(dataset: Any) -> Any:
        result = tf.constant(0, tf.int64)
        for labels in dataset:
            result += tf.reduce_sum(labels)
        return result

    assert int(total(mapped)) == 2 * int(digits(COUNT)[1].sum())


def check_state_is_what_the_loop_received(place: Place) -> None:
    ds = opened(place).map(decode)
    loader = ds.batch(BATCH).loader()
    epoch = iter(hr.tf.dataset(loader))
    seen = [key for _ in range(3) for key in strings(next(epoch)["__key__"])]
    state = loader.state_dict()
    assert state["frontiers"] == [3 * BATCH]
    del epoch
    again = ds.batch(7).loader()
    again.load_state_dict(state)
    found = hr.tf.dataset(again)
    seen += [key for batch in found for key in strings(batch["__key__"])]
    assert sorted(seen) == [f"{row:04d}" for row in range(COUNT)]
    assert again.epoch == 1


def check_an_iteration_left_early_leaves_no_thread(place: Place) -> None:
    found = hr.tf.dataset(opened(place).map(decode).batch(BATCH))
    assert no_loader_runs()  # nor does finding the signature
    epoch = iter(found.prefetch(2))
    next(epoch)
    del epoch
    assert no_loader_runs()
    for _ in found.take(2):
        pass
    assert no_loader_runs()


def check_two_iterations_at_once_are_refused(place: Place) -> None:
    tf = place[0]
    found = hr.tf.dataset(opened(place).map(decode).batch(BATCH))
    first = iter(found)
    next(first)
    second = iter(found)
    next(second)
    error = raised(tf.errors.OpError, lambda: list(first))
    assert "another iteration" in str(error)
    assert sum(1 for _ in second) == -(-COUNT // BATCH) - 1


def check_errors_carry_the_message(place: Place) -> None:
    tf = place[0]

    def fails(sample: Any) -> Any:
        if sample["__key__"] == "0100":
            raise ZeroDivisionError("not this one")
        return decode(sample)

    ds = hr.Dataset.open(f"{place[1]}/digits").map(fails).batch(BATCH)
    seen = 0

    def loop() -> None:
        nonlocal seen
        for _ in hr.tf.dataset(ds):
            seen += 1

    text = str(raised(tf.errors.OpError, loop))
    assert "BadSampleError" in text
    assert "0100" in text
    assert "not this one" in text
    assert seen == 100 // BATCH
    assert no_loader_runs()
    raised(BadSampleError, lambda: hr.tf.dataset(opened(place).map(lambda _: 1 // 0).batch(BATCH)))  # its first batch


def check_ragged(place: Place) -> None:
    tf = place[0]
    rows = [np.arange(n % 5, dtype=np.int32) for n in range(20)]
    found = hr.tf.dataset(small("ragged", rows).batch(10))
    assert found.element_spec["npy"] == tf.RaggedTensorSpec([None, None], tf.int32, ragged_rank=1)
    lists = [row for batch in found for row in batch["npy"].to_list()]
    assert lists == [row.tolist() for row in rows]
    # a batch whose rows happen to be of one length is ragged still
    found = hr.tf.dataset(small("late", [np.zeros(n, np.int32) for n in (1, 2, 3, 3)]).batch(2))
    assert [batch["npy"].to_list() for batch in found] == [[[0], [0, 0]], [[0, 0, 0], [0, 0, 0]]]


def check_what_cannot_be_tensors_is_named(place: Place) -> None:
    tf = place[0]
    uneven = small("uneven", [np.zeros((2, n)) for n in (1, 1, 2, 2, 3, 4)])
    error = raised(InputError, lambda: hr.tf.dataset(uneven.map(lambda s: {"a": s["npy"]}).batch(3)))
    assert str(error).startswith("'a' is of different shapes, (2, 1) and (2, 2)"), error
    later = hr.tf.dataset(uneven.batch(2))
    text = str(raised(tf.errors.OpError, lambda: list(later)))
    assert "'npy' is of shape (2, 2, 2)" in text
    assert "map the samples to one shape" in text
    for value, says in ((None, "NoneType"), (np.datetime64("2026-01-01"), "datetime64"), ([], "an empty list")):
        ds = uneven.map(lambda _, value=value: {"a": value}).batch(2)
        assert says in str(raised(InputError, lambda ds=ds: hr.tf.dataset(ds))), value
    none = uneven.filter(lambda _: False).batch(2)
    assert "no batch" in str(raised(InputError, lambda: hr.tf.dataset(none)))


def check_windows(place: Place) -> None:
    tf = place[0]
    folder = Path("frames").resolve()
    folder.mkdir()
    for number in range(10):
        (folder / f"{number:02d}.bin").write_bytes(bytes([number]))
    found = hr.tf.dataset(hr.Dataset.open(folder.as_uri()).windows(4).batch(2))
    assert found.element_spec["bin"] == tf.TensorSpec([None, 4], tf.string)
    assert next(iter(found))["bin"].numpy().tolist() == [[bytes([n]) for n in range(m, m + 4)] for m in (0, 1)]


def check_tfrecords_by_the_plain_route_and_by_headrace(place: Place) -> None:
    """Written by TensorFlow through the mount, read by TensorFlow there, and by headrace from the bucket."""
    tf, url, mount = place
    images, labels = digits(COUNT)
    folder = mount / "records"
    folder.mkdir()
    for shard in range(5):
        with tf.io.TFRecordWriter(str(folder / f"digits-{shard}.tfrecord")) as writer:
            for row in range(shard, COUNT, 5):
                features = {
                    "row": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[images[row].tobytes()])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())

    def parse(record: Any) -> Any:
        features = {"row": tf.io.FixedLenFeature([], tf.int64), "image": tf.io.FixedLenFeature([], tf.string)}
        return tf.io.parse_single_example(record, features)

    files = tf.data.Dataset.list_files(f"{folder}/*.tfrecord", shuffle=True)
    plain = files.interleave(
        lambda name: tf.data.TFRecordDataset(name, buffer_size=8 << 20),
        cycle_length=4,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=False,
    ).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    by_plain = {int(one["row"]): one["image"].numpy() for one in plain}
    ds = hr.Dataset.open(f"{url}/records", format="tfrecord").shuffle(1)
    found = hr.tf.dataset(ds.map(hr.decode.example(single=("row", "image"))).batch(BATCH))
    by_headrace: dict[int, bytes] = {}
    for batch in found:
        by_headrace |= dict(zip(batch["row"].numpy().tolist(), batch["image"].numpy().tolist(), strict=True))
    assert by_plain == by_headrace == {row: images[row].tobytes() for row in range(COUNT)}
    assert len(labels) == COUNT
    reads = tf.data.TFRecordDataset(sorted(map(str, folder.iterdir())), num_parallel_reads=4)
    assert sum(1 for _ in reads) == COUNT
    raw = hr.tf.dataset(ds.batch(BATCH)).unbatch().map(lambda one: parse(one["data"]))
    assert sorted(int(one["row"]) for one in raw) == list(range(COUNT))


def check_the_signature_of_a_saved_model(place: Place) -> None:
    """As `headrace models publish` reads it, without TensorFlow."""
    from headrace.models.card import Signature, Tensor
    from headrace.models.signatures import signatures

    tf, *_ = place

    class Plus(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([2], tf.int64, "n")])
        def call(self, x: Any, n: Any) -> Any:
            return {"y": x + 1, "text": tf.strings.as_string(n)}

    module = Plus()
    tf.saved_model.save(module, "saved", signatures={"serving_default": module.call})
    inputs = (Tensor("n", "int64", (2,)), Tensor("x", "float32", (None, 4)))
    outputs = (Tensor("text", "string", (2,)), Tensor("y", "float32", (None, 4)))
    found = signatures("saved_model", Path("saved/saved_model.pb").read_bytes())
    assert found == {"serving_default": Signature(inputs, outputs)}


def check_a_saved_model_is_published_and_loaded(place: Place) -> None:
    tf, url, _ = place

    class Double(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def __call__(self, x: Any) -> Any:
            return {"y": x * self.factor}

    tf.saved_model.save(Double(), "double")
    os.environ["HEADRACE_HOME"] = f"{url}/home"
    version = hr.models.publish("./double", "double")
    assert version.card.format == "saved_model"
    assert hr.models.load("double")(tf.constant([1.0, 2.0]))["y"].numpy().tolist() == [2.0, 4.0]


if __name__ == "__main__":
    import tensorflow

    from tests.integration import tensorflow_checks

    report(tensorflow_checks, (tensorflow, os.environ["BUCKET_URL"], Path(os.environ["MOUNTED"])))
