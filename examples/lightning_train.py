"""PyTorch Lightning: ``python examples/lightning_train.py ./images 3``; once more: from its newest checkpoint.

./images, or a bucket (``s3://bucket/images``), has a folder of images for each class: ``cat/1.jpg``, ``dog/1.png``.
"""

from __future__ import annotations

import sys
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import headrace as hr

SAVE = 100  # steps


class Images(pl.LightningDataModule):
    def __init__(self, url: str, batch: int) -> None:
        super().__init__()
        opened = hr.Dataset.open(url, by="class").shuffle(seed=7)
        self.dataset, self.batch = opened.map(hr.decode.image(size=64, to="image")), batch

    def train_dataloader(self) -> Any:  # here, and not before: shard() asks Lightning's ranks
        return hr.torch.tensors(self.dataset.shard().batch(self.batch, drop_last=True))


class Classifier(pl.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        first, pool = torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.AdaptiveAvgPool2d(4)
        self.layers = torch.nn.Sequential(first, pool, torch.nn.Flatten(), torch.nn.Linear(16 * 16, classes))

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        scores = self.layers(batch["image"].permute(0, 3, 1, 2).float() / 255)
        loss = torch.nn.functional.cross_entropy(scores, batch["class"])
        self.log("loss", loss, prog_bar=True, batch_size=len(scores))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main(url: str, epochs: int = 3, batch: int = 32) -> None:
    images = Images(url, batch)
    kept = ModelCheckpoint("lightning-run", save_last=True, every_n_train_steps=SAVE)  # the loader's place is in it
    trainer = pl.Trainer(max_epochs=epochs, callbacks=[kept], logger=False)
    trainer.fit(Classifier(len(images.dataset.classes or [])), images, ckpt_path="last")
    print(f"after epoch {trainer.current_epoch}: {trainer.callback_metrics}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
