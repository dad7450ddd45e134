"""Keras: ``python examples/keras_fit.py ./images 3``; once more: from what it has saved.

./images, or a bucket (``s3://bucket/images``), has a folder of images for each class: ``cat/1.jpg``, ``dog/1.png``.
"""

from __future__ import annotations

import sys
from typing import Any

import keras

import headrace as hr

SAVE = 100  # steps


def pair(batch: dict[str, Any]) -> tuple[Any, Any]:
    """(x, y), as `fit` wants them."""
    return batch["image"], batch["class"]


def main(url: str, epochs: int = 3, batch: int = 32) -> None:
    dataset = hr.Dataset.open(url, by="class").shuffle(seed=7).map(hr.decode.image(size=64, to="image"))
    loader = dataset.batch(batch).map(pair).loader()
    model = keras.Sequential([
        keras.layers.Input((64, 64, 3)),
        keras.layers.Rescaling(1 / 255),
        keras.layers.Conv2D(16, 5, strides=4, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(len(dataset.classes or [])),
    ])  # fmt: skip
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    kept = hr.tf.backup("keras-run", loader, every=SAVE)  # model, epoch and the loader's place
    history = model.fit(hr.tf.dataset(loader), epochs=epochs, callbacks=[kept], verbose=2)
    print(history.history)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
