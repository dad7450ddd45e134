"""Training code that knows only files: ``python -m headrace.cli.demo_job.files FOLDER``, and the plan's flags.

One epoch over a folder of class folders, through a PyTorch DataLoader, as one would write it for a local disk; nothing
of headrace is in it but the demonstration's model. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from headrace.cli.demo_job.train import make_model


class ImageFolder:
    """Images in folders named by their class, as ``torchvision.datasets.ImageFolder`` (which not every build of torch
    has beside it): a map-style data set of (float32 [channels, side, side] in [0, 1], class number).
    """

    def __init__(self, root: str, side: int, channels: int) -> None:
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.samples = [
            (str(path), number)
            for number, name in enumerate(self.classes)
            for path in sorted(Path(root, name).iterdir())
            if path.suffix == ".image"
        ]
        self._side = side
        self._mode = "L" if channels == 1 else "RGB"

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        import numpy as np
        from PIL import Image

        path, number = self.samples[index]
        with Image.open(path) as file:
            picture = file.convert(self._mode).resize((self._side, self._side))
        pixels = np.asarray(picture, dtype=np.float32) / 255
        return (pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))), number


def train(told: argparse.Namespace) -> None:
    """One epoch."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

    torch.manual_seed(7)
    torch.set_num_threads(max((os.cpu_count() or 2) // 2, 1))
    data_set: Any = ImageFolder(told.folder, told.side, told.channels)
    model = make_model(told.classes, told.channels)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    began, seen, loss = time.perf_counter(), 0, 0.0
    for images, labels in DataLoader(data_set, batch_size=told.batch, shuffle=True):
        optimizer.zero_grad()
        error = cross_entropy(model(images), labels)
        error.backward()
        optimizer.step()
        seen, loss = seen + len(labels), error.item()
    seconds = time.perf_counter() - began
    print(json.dumps({"samples": seen, "seconds": seconds, "loss": loss, "classes": len(data_set.classes)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    for name in ("epochs", "classes", "side", "channels", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    train(parser.parse_args())
