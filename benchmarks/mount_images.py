"""A plain `ImageFolder` in a PyTorch DataLoader: torchvision's class without torchvision.

A class is a folder, a sample an image in it (found by listing each folder once), opened and decoded with Pillow in a
worker, as `torchvision.datasets.ImageFolder` with `pil_loader` does; a tensor of uint8, no augmentation.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

BATCH = 64
WORKERS = 2


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """Samples `(image, class number)` below `root`."""

    def __init__(self, root: str) -> None:
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = [
            (os.path.join(folder, name), number)
            for number, one in enumerate(classes)
            for folder, _, names in sorted(os.walk(os.path.join(root, one), followlinks=True))
            for name in sorted(names)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, number = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return torch.from_numpy(np.array(image)), number


def epoch(root: str) -> tuple[int, int]:
    """Read everything once in random order: samples, bytes of pixels."""
    loader = DataLoader(ImageFolder(root), batch_size=BATCH, shuffle=True, num_workers=WORKERS)
    count = size = 0
    for batch, _ in loader:
        count += len(batch)
        size += batch.nbytes
    return count, size
