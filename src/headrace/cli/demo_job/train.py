"""The training process of the demonstration: ``python -m headrace.cli.demo_job.train PLAN``.

Reads samples through the loader, writes its checkpoint into the bucket, and reports each batch and epoch as a line of
JSON on standard output, so that whoever started it can show them, and kill it.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.cli.demo_job.plan import Plan

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headrace.namespace import Namespace


class Decode:
    """Object bytes to arrays: image float32 (channels, side, side) in [0, 1], label int64 ()."""

    def __init__(self, side: int, channels: int) -> None:
        self._side = side
        self._mode = "L" if channels == 1 else "RGB"

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        import numpy as np
        from PIL import Image

        picture = Image.open(io.BytesIO(sample["image"])).convert(self._mode).resize((self._side, self._side))
        pixels = np.asarray(picture, dtype=np.float32) / 255
        image = pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
        return {"__key__": sample["__key__"], "image": image, "label": np.int64(bytes(sample["label"]))}


class Job:
    """Model, optimizer and loader of one process. Everything in it is what a checkpoint holds."""

    def __init__(self, plan: Plan, namespace: Namespace) -> None:
        import torch

        import headrace as hr

        torch.manual_seed(plan.seed)
        torch.set_num_threads(max((os.cpu_count() or 2) // 2, 1))  # the other cores decode
        self.plan = plan
        self.namespace = namespace
        self.model = make_model(plan)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.epoch = self.step = 0
        samples = hr.Dataset.open(plan.train, namespace=namespace).shuffle(seed=plan.seed)
        self.size = len(samples)
        self.loader = samples.map(Decode(plan.side, plan.channels), threads=2).batch(plan.batch).loader(prefetch="64MB")

    def run(self) -> None:
        """Train to the last epoch, then say how good the model is."""
        if self.plan.resume:
            self._restore(self.plan.resume)
        while self.epoch < self.plan.epochs:
            self._train_epoch()
            self.epoch, self.step = self.epoch + 1, 0
        emit("done", accuracy=self._accuracy())
        self.loader.close()

    def _train_epoch(self) -> None:
        import headrace as hr

        halfway = self.size // self.plan.batch // 2
        loss = 0.0
        for batch in hr.torch.tensors(self.loader):
            loss = self._train_batch(batch["image"], batch["label"])
            self.step += 1
            emit("batch", epoch=self.epoch, keys=list(batch["__key__"]), of=self.size)
            if self.epoch == self.plan.checkpoint_epoch and self.step == halfway and not self.plan.resume:
                self._save()
        stats = self.loader.stats()
        emit(
            "epoch",
            epoch=self.epoch,
            loss=loss,
            samples=stats.samples,
            samples_per_s=stats.samples_per_s,
            bytes_per_s=stats.bytes_per_s,
            hits=stats.cache_hits,
            misses=stats.cache_misses,
            waited_s=stats.wait_s,
            verdict=stats.verdict,
        )

    def _train_batch(self, image: Tensor, label: Tensor) -> float:
        from torch.nn.functional import cross_entropy

        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(image), label)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _save(self) -> None:
        import torch

        buffer = io.BytesIO()
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
        }
        torch.save(state, buffer)
        folder = f"{self.plan.checkpoints}/{self.epoch:03d}-{self.step:05d}"
        self.namespace.write(f"{folder}/state.pt", buffer.getvalue())
        self.namespace.write(f"{folder}/COMMITTED", b"")
        emit("checkpoint", path=folder, size=buffer.tell(), epoch=self.epoch)

    def _restore(self, folder: str) -> None:
        import torch

        state = torch.load(io.BytesIO(self.namespace.read(f"{folder}/state.pt")), weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        self.epoch, self.step = state["epoch"], state["step"]

    def _accuracy(self) -> float:
        import torch

        import headrace as hr

        self.model.eval()
        right = total = 0
        held_out = hr.Dataset.open(self.plan.test, namespace=self.namespace)
        loader = held_out.map(Decode(self.plan.side, self.plan.channels), threads=2).batch(256).loader(prefetch="64MB")
        with torch.no_grad(), loader:
            for batch in hr.torch.tensors(loader):
                right += int((self.model(batch["image"]).argmax(1) == batch["label"]).sum())
                total += len(batch["label"])
        return right / total


def make_model(plan: Plan) -> nn.Module:
    """Two convolutions and two linear layers; about 100,000 weights for the digits."""
    from torch import nn

    grid = 4
    return nn.Sequential(
        nn.Conv2d(plan.channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(grid),
        nn.Flatten(),
        nn.Linear(64 * grid * grid, 64),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(64, len(plan.classes)),
    )


def emit(event: str, **fields: object) -> None:
    """One line of JSON to whoever watches."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def main(arguments: Iterable[str]) -> None:
    """Entry point; the only argument is the plan."""
    import headrace as hr

    (text,) = arguments
    with hr.Namespace.load() as namespace:
        Job(Plan.parse(text), namespace).run()


if __name__ == "__main__":
    from headrace.cli import run_guarded

    sys.exit(run_guarded(lambda: main(sys.argv[1:])))
