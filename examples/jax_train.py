"""JAX: ``python examples/jax_train.py ./images 3``; once more: from what it has saved.

./images, or a bucket (``s3://bucket/images``), has a folder of images for each class: ``cat/1.jpg``, ``dog/1.png``.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import headrace as hr

SAVE = 100  # steps
FILE = Path("jax-run.pickle")


def loss_of(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    x = images.reshape(len(images), -1).astype(jnp.float32) / 255
    scores = jax.nn.relu(x @ params["in"]) @ params["out"]
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean()


@jax.jit
def step(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
    loss, slopes = jax.value_and_grad(loss_of)(params, images, labels)
    return jax.tree.map(lambda one, slope: one - 0.01 * slope, params, slopes), loss


def main(url: str, epochs: int = 3, batch: int = 32) -> None:
    dataset = hr.Dataset.open(url, by="class").shuffle(seed=7).map(hr.decode.image(size=64, to="image"))
    loader = hr.jax.arrays(hr.jax.shard(dataset).batch(batch, drop_last=True))
    one, other = jax.random.split(jax.random.key(0))
    params = {
        "in": 0.01 * jax.random.normal(one, (64 * 64 * 3, 32)),
        "out": 0.01 * jax.random.normal(other, (32, len(dataset.classes or []))),
    }
    if FILE.exists():
        params, place = pickle.loads(FILE.read_bytes())  # noqa: S301  # our own
        loader.load_state_dict(place)

    def save() -> None:
        FILE.write_bytes(pickle.dumps((jax.device_get(params), loader.state_dict())))

    loss = jnp.zeros(())
    for epoch in range(loader.epoch, epochs):
        for number, images in enumerate(loader, start=1):
            params, loss = step(params, images["image"], images["class"])
            if number % SAVE == 0:
                save()
        save()
        print(f"epoch {epoch + 1}: loss {loss:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
