"""Ray Train: ``python examples/ray_train.py ./images 3 4``, with 4 workers; once more, with any number: it goes on.

./images, on all nodes, or a bucket (``s3://bucket/images``), has a folder of images for each class: ``cat/1.jpg`` ….
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray.train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import headrace as hr


def train(config: dict[str, Any]) -> None:
    import torch

    ds = hr.Dataset.open(config["url"], by="class").shuffle(seed=7).map(hr.decode.image(size=64, to="image"))
    first, pool = torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.AdaptiveAvgPool2d(4)
    model = torch.nn.Sequential(first, pool, torch.nn.Flatten(), torch.nn.Linear(16 * 16, len(ds.classes or [])))
    loader = hr.torch.tensors(hr.ray.shard(ds.batch(config["batch"], drop_last=True)))
    if checkpoint := ray.train.get_checkpoint():  # of as many workers, or of others
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder, "saved.pt"))
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
    net = ray.train.torch.prepare_model(model)
    optimizer, loss = torch.optim.Adam(net.parameters(), lr=1e-3), torch.zeros(())
    for epoch in range(loader.epoch, config["epochs"]):
        for step, images in enumerate(loader, start=1):
            loss = torch.nn.functional.cross_entropy(net(images["image"].permute(0, 3, 1, 2) / 255), images["class"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % config["save"] and step < len(loader):
                continue
            with tempfile.TemporaryDirectory() as folder:  # at the same step on all of them
                torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, Path(folder, "saved.pt"))
                is_first = ray.train.get_context().get_world_rank() == 0
                checkpoint = Checkpoint.from_directory(folder) if is_first else None
                ray.train.report({"epoch": epoch, "loss": loss.item()}, checkpoint)


def main(url: str, epochs: int = 3, workers: int = 2, batch: int = 32, save: int = 100) -> Any:
    sent = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "HEADRACE_"))}
    storage = os.path.abspath("ray-run")  # of all nodes, or s3://…; the same one: from its newest checkpoint
    run = RunConfig("images", storage_path=storage, worker_runtime_env={"env_vars": sent})
    config = {"url": url, "epochs": epochs, "batch": batch, "save": save}
    scale = ScalingConfig(num_workers=workers)
    return TorchTrainer(train, train_loop_config=config, scaling_config=scale, run_config=run).fit()


if __name__ == "__main__":
    print(main(sys.argv[1], *map(int, sys.argv[2:])).metrics)
