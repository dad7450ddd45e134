"""torchdata's StatefulDataLoader: ``python examples/stateful_dataloader.py ./images 3 32 4``, with 4 worker processes;
once more, with as many or as others: from what it has saved.

./images, or a bucket (``s3://bucket/images``), has a folder of images for each class: ``cat/1.jpg``, ``dog/1.png``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import headrace as hr

SAVE = 100  # steps
FILE = Path("stateful-run.pt")


def main(url: str, epochs: int = 3, batch: int = 32, workers: int = 0) -> None:
    dataset = hr.Dataset.open(url, by="class").shuffle(seed=7).map(hr.decode.image(size=64, to="image"))
    first, pool = torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.AdaptiveAvgPool2d(4)
    last = torch.nn.Linear(16 * 16, len(dataset.classes or []))
    model = torch.nn.Sequential(first, pool, torch.nn.Flatten(), last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, begin = hr.torch.IterableDataset(dataset.batch(batch)), 0
    if FILE.exists():
        saved: dict[str, Any] = torch.load(FILE)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        images.load_state_dict(saved["loader"])  # the dataset, not the loader: then it may have other workers
        begin = saved["epoch"]
    loader = StatefulDataLoader(images, batch_size=None, num_workers=workers)

    def save(epoch: int) -> None:
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save({**states, "epoch": epoch}, FILE)

    loss = torch.zeros(())
    for epoch in range(begin, epochs):
        for step, some in enumerate(loader, start=1):
            scores = model(some["image"].permute(0, 3, 1, 2).float() / 255)
            loss = torch.nn.functional.cross_entropy(scores, some["class"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % SAVE == 0:
                save(epoch)
        save(epoch + 1)
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
