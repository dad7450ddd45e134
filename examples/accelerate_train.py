"""Accelerate: ``accelerate launch examples/accelerate_train.py ./images 3``; once more: from what it has saved.

./images, or a bucket (``s3://bucket/images``), has a folder of images for each class: ``cat/1.jpg``, ``dog/1.png``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator

import headrace as hr

SAVE = 100  # steps
FOLDER = "accelerate-run"


def main(url: str, epochs: int = 3, batch: int = 32) -> None:
    accelerator = Accelerator()
    dataset = hr.Dataset.open(url, by="class").shuffle(seed=7).map(hr.decode.image(size=64, to="image"))
    loader = hr.torch.tensors(dataset.shard().batch(batch, drop_last=True), device=accelerator.device)
    first, pool = torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.AdaptiveAvgPool2d(4)
    last = torch.nn.Linear(16 * 16, len(dataset.classes or []))
    model = torch.nn.Sequential(first, pool, torch.nn.Flatten(), last)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3), loader)
    accelerator.register_for_checkpointing(loader)  # its place goes into what save_state writes
    if Path(FOLDER).exists():
        accelerator.load_state(FOLDER)

    loss = torch.zeros(())
    for epoch in range(loader.epoch, epochs):
        for step, images in enumerate(loader, start=1):
            scores = model(images["image"].permute(0, 3, 1, 2).float() / 255)
            loss = torch.nn.functional.cross_entropy(scores, images["class"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if step % SAVE == 0:
                accelerator.save_state(FOLDER)
        accelerator.save_state(FOLDER)
        accelerator.print(f"epoch {epoch + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
