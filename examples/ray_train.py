"""Training in Ray Train's workers: ``python examples/ray_train.py imagenet@v1 4``, once more with 2 goes on from there.

The target is a snapshot, a path or a URL of class folders; the number is that of the workers. Each reads its own stripe
of the one shuffled stream. What rank 0 saves holds the loader's state, from which any number of workers goes on.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import headrace as hr

STEPS, EPOCHS = 100, 2


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """Whatever the model takes; here how often each byte occurs."""
    (data,) = (value for name, value in sample.items() if name not in ("__key__", "class"))
    return {"x": np.bincount(np.frombuffer(data, np.uint8), minlength=256).astype("f4"), "y": np.int64(sample["class"])}


def train(config: dict[str, Any]) -> None:
    import torch

    ds = hr.Dataset.open(config["target"], by="class")
    model = torch.nn.Linear(256, len(ds.classes or []))
    loader = hr.ray.shard(ds.shuffle(seed=7).map(decode).batch(32, drop_last=True))
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            model.load_state_dict(torch.load(Path(folder, "model.pt")))
            loader.load_state_dict(json.loads(Path(folder, "loader.json").read_text()))
    model = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    loss = torch.zeros(())
    for epoch in range(loader.epoch, EPOCHS):
        for step, batch in enumerate(hr.torch.tensors(loader), start=1):
            loss = torch.nn.functional.cross_entropy(model(batch["x"]), batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not step % STEPS:
                save(model, loader, epoch, float(loss))
        save(model, loader, epoch, float(loss))


def save(model: Any, loader: Any, epoch: int, loss: float) -> None:
    """By all ranks at the same step; rank 0 has the files."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            torch.save(getattr(model, "module", model).state_dict(), Path(folder, "model.pt"))
            Path(folder, "loader.json").write_text(json.dumps(loader.state_dict()))
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({"epoch": epoch, "loss": loss}, checkpoint=checkpoint)


if __name__ == "__main__":
    target, workers = sys.argv[1], int(sys.argv[2])
    sent = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "HEADRACE_"))}
    TorchTrainer(
        train,
        train_loop_config={"target": target},
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name="headrace-example",  # the same name and storage: from its newest checkpoint
            storage_path=os.path.expanduser("~/ray-results"),
            worker_runtime_env={"env_vars": sent},
        ),
    ).fit()
