"""An ImageNet-style job: ``torchrun --nproc-per-node 8 examples/imagenet.py imagenet@v1``.

The target is a snapshot, a path or a URL of class folders (``n01440764/….JPEG``). Rank and world size come from
torchrun; each rank reads its own stripe of the one shuffled stream, and all of it exactly once an epoch.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image

import headrace as hr

SIDE = 224


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """JPEG bytes to float32 (3, 224, 224). Pillow releases the GIL while it decodes; `draft` decodes small at once."""
    (data,) = (value for name, value in sample.items() if name not in ("__key__", "class"))
    picture = Image.open(io.BytesIO(data))
    picture.draft("RGB", (SIDE, SIDE))
    pixels = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32) / 255
    return {"image": np.ascontiguousarray(pixels.transpose(2, 0, 1)), "label": np.int64(sample["class"])}


def main(target: str) -> None:
    rank = int(os.environ.get("RANK", "0"))
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group()

    samples = hr.Dataset.open(target, by="class")
    loader = (
        samples.shuffle(seed=7)
        .shard()  # RANK and WORLD_SIZE
        .map(decode, threads=8, on_error=hr.Skip(max_rate=0.001))
        .batch(64, drop_last=True)
        .loader(prefetch="1GB")
    )
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 7, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(7),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 49, len(samples.classes or [])),
    ).to(device)
    if dist.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(2):
        for batch in hr.torch.tensors(loader, device=device):
            loss = torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1}: {loader.stats()}")
    loader.close()


if __name__ == "__main__":
    main(sys.argv[1])
