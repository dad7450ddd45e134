"""Hugging Face's Trainer: ``python examples/hf_trainer.py ./images 3``; once more: from its newest checkpoint.

./images, or a bucket (``s3://bucket/images``), has a folder of images for each class: ``cat/1.jpg``, ``dog/1.png``.
"""

from __future__ import annotations

import sys
from typing import Any

import transformers
from transformers.trainer_utils import get_last_checkpoint

import headrace as hr

SAVE = 100  # steps


def features(sample: dict[str, Any]) -> dict[str, Any]:
    """What the model's `forward` takes, by its names."""
    return {"pixel_values": sample["image"].transpose(2, 0, 1).astype("f4") / 255, "labels": sample["class"]}


def main(url: str, epochs: int = 3, batch: int = 32) -> None:
    dataset = hr.Dataset.open(url, by="class").shuffle(seed=7).map(hr.decode.image(size=64, to="image")).map(features)
    small = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    config = transformers.ResNetConfig(num_labels=len(dataset.classes or []), **small)
    told = {"num_train_epochs": epochs, "per_device_train_batch_size": batch, "report_to": "none"}
    arguments = transformers.TrainingArguments("hf-run", save_steps=SAVE, logging_steps=SAVE, **told)
    trainer = transformers.Trainer(transformers.ResNetForImageClassification(config), arguments)
    hr.torch.feed(trainer, dataset.batch(batch, drop_last=True))  # the loader's place is in Trainer's checkpoints
    trainer.train(resume_from_checkpoint=get_last_checkpoint("hf-run"))
    print(trainer.state.log_history[-1])


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
