"""Trains a small network on images in a bucket, as a user's script would: `headrace run -- python train.py`.

What to read it finds in HEADRACE_INPUT_TRAIN and HEADRACE_INPUT_TEST, where to write in HEADRACE_OUTPUTS, and what to
go on from in HEADRACE_RESUME. On SIGTERM it writes a checkpoint first. The same data, code and seed give the same
weights, bit by bit, stopped half-way or not.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import headrace as hr

LEARNING_RATE = 2e-3  # Adam's; the demonstration changes this line
OUT = Path(os.environ.get("HEADRACE_OUTPUTS", "outputs"))


class Decode:
    """Object bytes to arrays: image float32 (channels, side, side) in [0, 1], label int64 ()."""

    def __init__(self, side: int, channels: int) -> None:
        self._side, self._mode = side, "L" if channels == 1 else "RGB"

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        picture = Image.open(io.BytesIO(sample["image"])).convert(self._mode).resize((self._side, self._side))
        pixels = np.asarray(picture, dtype=np.float32) / 255
        image = pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
        return {"__key__": sample["__key__"], "image": image, "label": np.int64(bytes(sample["label"]))}


def make_model(classes: int, channels: int) -> nn.Module:
    """Two convolutions and two linear layers; about 100,000 weights for the digits."""
    grid = 4
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool2d(grid), nn.Flatten(), nn.Linear(64 * grid * grid, 64), nn.ReLU(), nn.Dropout(0.25),
        nn.Linear(64, classes),
    )  # fmt: skip


class Training:
    """Model, optimizer, loader and position: everything that a checkpoint holds."""

    def __init__(self, told: argparse.Namespace) -> None:
        torch.manual_seed(7)
        torch.set_num_threads(1)  # one order of additions; and the other cores decode
        self.told = told
        self.decode = Decode(told.side, told.channels)
        self.model = make_model(told.classes, told.channels)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)
        self.epoch = self.step = 0
        self.stopping = False
        samples = hr.Dataset.open(told.train).shuffle(seed=7)
        self.loader = samples.map(self.decode, threads=2).batch(told.batch).loader(prefetch="64MB")
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> None:
        """Train to the last epoch, then write how good the model is."""
        if resume := os.environ.get("HEADRACE_RESUME"):
            self._restore(Path(resume))
        loss = 0.0
        with open(OUT / "seen.txt", "w", encoding="utf-8") as seen:
            while self.epoch < self.told.epochs:
                for batch in hr.torch.tensors(self.loader):
                    loss = self._learn(batch["image"], batch["label"])
                    self.step += 1
                    hr.log({"loss": loss, "epoch": self.epoch}, step=self.step)
                    seen.writelines(f"{self.epoch} {key}\n" for key in batch["__key__"])
                    time.sleep(float(os.environ.get("PAUSE", "0")))
                    if self.stopping:
                        self._save()
                        sys.exit(143)
                self.epoch += 1
                told = self.loader.stats()
                rate = f"{told.samples_per_s:,.0f} samples/s, waited {told.wait_s:.2f} s for data"
                print(f"epoch {self.epoch} of {self.told.epochs}: loss {loss:.4f}, {rate}", flush=True)
        self._finish()
        self.loader.close()

    def _learn(self, image: Tensor, label: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(image), label)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _save(self) -> None:
        folder = OUT / "checkpoints" / f"{self.step:06d}"
        folder.mkdir(parents=True)
        torch.save({
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(), "random": torch.get_rng_state(), "epoch": self.epoch, "step": self.step,
        }, folder / "state.pt")  # fmt: skip
        (folder / "COMMITTED").touch()
        print(f"stopping after step {self.step}, in epoch {self.epoch + 1}: checkpoint {folder.name}", flush=True)

    def _restore(self, folder: Path) -> None:
        state = torch.load(folder / "state.pt", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        torch.set_rng_state(state["random"])
        self.epoch, self.step = state["epoch"], state["step"]
        print(f"going on after step {self.step}, in epoch {self.epoch + 1}", flush=True)

    def _finish(self) -> None:
        stats = self.loader.stats()
        digest = hashlib.sha256()
        for value in self.model.state_dict().values():
            digest.update(value.numpy().tobytes())
        told = {"accuracy": self._accuracy(), "weights": digest.hexdigest(), "learning_rate": LEARNING_RATE,
                "samples": stats.samples, "samples_per_s": stats.samples_per_s}  # fmt: skip
        torch.save(self.model.state_dict(), OUT / "weights.pt")
        (OUT / "result.json").write_text(json.dumps(told))
        print(f"held-out accuracy {told['accuracy']:.1%}", flush=True)

    def _accuracy(self) -> float:
        self.model.eval()
        right = total = 0
        held_out = hr.Dataset.open(self.told.test).map(self.decode, threads=2).batch(256)
        with torch.no_grad(), held_out.loader(prefetch="64MB") as loader:
            for batch in hr.torch.tensors(loader):
                right += int((self.model(batch["image"]).argmax(1) == batch["label"]).sum())
                total += len(batch["label"])
        return right / total


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser()
    for name in ("epochs", "classes", "side", "channels", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("train", "test"):
        parser.add_argument(f"--{name}", default=os.environ.get(f"HEADRACE_INPUT_{name.upper()}"))
    return parser.parse_args()


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    Training(arguments()).run()
