"""PyTorch: ``torchrun --nproc-per-node 8 examples/imagenet.py imagenet@v1 90``; once more: from what it has saved.

The target is a snapshot, a path or a URL of class folders (``n01440764/….JPEG``). Rank and world size come from
torchrun; each rank reads its own stripe of the one shuffled stream, and all of it exactly once an epoch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import headrace as hr

SIDE, SAVE = 224, 1000  # pixels, steps
FILE = Path("imagenet-run.pt")


def main(target: str, epochs: int = 2, batch: int = 64) -> None:
    rank = int(os.environ.get("RANK", "0"))
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group()

    samples = hr.Dataset.open(target, by="class").shuffle(seed=7).shard().map(hr.decode.image(size=SIDE, to="image"))
    loader = hr.torch.tensors(samples.batch(batch, drop_last=True).loader(prefetch="1GB"), device=device)
    first, pool = torch.nn.Conv2d(3, 32, 7, stride=4), torch.nn.AdaptiveAvgPool2d(7)
    last = torch.nn.Linear(32 * 49, len(samples.classes or []))
    model: Any = torch.nn.Sequential(first, torch.nn.ReLU(), pool, torch.nn.Flatten(), last).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if FILE.exists():
        saved = torch.load(FILE, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # of as many ranks, or of others
    net = torch.nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model

    loss = torch.zeros(())
    for epoch in range(loader.epoch, epochs):
        for step, images in enumerate(loader, start=1):
            scores = net(images["image"].permute(0, 3, 1, 2).float() / 255)  # bytes go to the GPU, not floats
            loss = torch.nn.functional.cross_entropy(scores, images["class"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % SAVE == 0:  # where nothing is filtered, its state tells where all ranks are
                states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**states, "loader": loader.state_dict()}, FILE)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}; {loader.stats()}")
    loader.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
