"""Train on the digits, stop in mid-epoch, go on from a checkpoint: ``python examples/digits.py [URL]``.

URL is where the digits are, or will be put if nothing is there: ``file:///tmp/digits`` (default), ``s3://bucket/digits``.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

import headrace as hr


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """PNG bytes to float32 (1, 8, 8); the label's text to int64."""
    pixels = np.asarray(Image.open(io.BytesIO(sample["image"])), dtype=np.float32) / 255
    return {"__key__": sample["__key__"], "image": pixels[None], "label": np.int64(bytes(sample["label"]))}


def put_digits(namespace: hr.Namespace, url: str) -> None:
    """Each digit as two objects, ``0017.image`` and ``0017.label``."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        png = io.BytesIO()
        Image.fromarray((image * 15).astype("uint8")).save(png, "PNG")
        namespace.write(f"{url}/{number:04d}.image", png.getvalue())
        namespace.write(f"{url}/{number:04d}.label", str(label).encode())


def main(url: str) -> None:
    namespace = hr.Namespace.load()
    if not namespace.exists(f"{url}/0000.image"):
        put_digits(namespace, url)
    samples = hr.Dataset.open(url, namespace=namespace).shuffle(seed=7).map(decode, threads=2).batch(32)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train(batch: dict[str, Any]) -> float:
        loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    seen: list[str] = []
    with samples.loader() as loader:
        for step, batch in enumerate(hr.torch.tensors(loader)):
            train(batch)
            seen += batch["__key__"]
            if step == 20:
                checkpoint = {"model": model.state_dict(), "loader": loader.state_dict()}
                break

    with samples.loader() as loader:
        model.load_state_dict(checkpoint["model"])
        loader.load_state_dict(checkpoint["loader"])
        for batch in hr.torch.tensors(loader):
            loss = train(batch)
            seen += batch["__key__"]
        print(f"epoch 1: {len(seen)} samples, {len(set(seen))} of them different, loss {loss:.3f}")
        for epoch in range(2, 6):
            for batch in hr.torch.tensors(loader):
                loss = train(batch)
            print(f"epoch {epoch}: loss {loss:.3f}; {loader.stats()}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["file:///tmp/digits"]))
