"""The same network on the same images, by several processes on several machines: a user's script with DDP.

`headrace run --on ray://… --workers 1..2 -- python train_together.py` starts it; how many there are it asks
torch.distributed. Each process writes its part of a checkpoint. The batch of all together is the same however many they
are, so that after a machine is lost fewer go on with the same training.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import headrace as hr
from headrace.cli.demo_job.train import LEARNING_RATE, OUT, Decode, arguments, make_model

_EVERY = 30
"""Steps between two checkpoints."""


class Together:
    """One of the processes."""

    def __init__(self) -> None:
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.told = arguments()
        torch.manual_seed(7)
        torch.set_num_threads(1)
        self.decode = Decode(self.told.side, self.told.channels)
        model = make_model(self.told.classes, self.told.channels)
        for layer in model.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0  # what is left out by chance depends on how many they are
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LEARNING_RATE)
        samples = hr.Dataset.open(self.told.train).shuffle(seed=7).shard()
        self.loader = samples.map(self.decode, threads=1).batch(self.told.batch // self.world).loader(prefetch="16MB")
        self.epoch = self.step = 0
        self.seen: list[str] = []

    def run(self) -> None:
        """Train to the last epoch, then write what was seen, and how good the model is."""
        if resume := os.environ.get("HEADRACE_RESUME"):
            self._restore(Path(resume))
        while self.epoch < self.told.epochs:
            with self.model.join():  # the last batch of an epoch may be there for some only
                for batch in hr.torch.tensors(self.loader):
                    loss = self._learn(batch)
                    hr.log({"loss": loss, "epoch": self.epoch}, step=self.step)
                    time.sleep(float(os.environ.get("PAUSE", "0")))
                    if self.step % _EVERY == 0:
                        self._save()
            self.epoch += 1
            if self.rank == 0:
                print(f"epoch {self.epoch} of {self.told.epochs} by {self.world}", flush=True)
        (OUT / f"seen-{self.rank}.txt").write_text("\n".join(self.seen))
        if self.rank == 0:
            told = {"accuracy": self._accuracy(), "processes": self.world}
            (OUT / "result.json").write_text(json.dumps(told))
            print(f"held-out accuracy {told['accuracy']:.1%}", flush=True)
        self.loader.close()
        dist.destroy_process_group()

    def _learn(self, batch: Any) -> float:
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(batch["image"]), batch["label"])
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.seen += (f"{self.epoch} {key}" for key in batch["__key__"])
        return loss.item()

    def _save(self) -> None:
        folder = OUT / "checkpoints" / f"{self.step:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seen-{self.rank}.txt").write_text("\n".join(self.seen))
        if self.rank == 0:
            torch.save({
                "model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                "loader": self.loader.state_dict(), "epoch": self.epoch, "step": self.step,
            }, folder / "state.pt")  # fmt: skip
        (folder / "COMMITTED").touch()  # on each machine: its part is whole

    def _restore(self, folder: Path) -> None:
        state = torch.load(folder / "state.pt", weights_only=True)
        self.model.module.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        self.epoch, self.step = state["epoch"], state["step"]
        parts = sorted(folder.glob("seen-*.txt"))[self.rank :: self.world]  # there may have been more
        self.seen = [line for part in parts for line in part.read_text().splitlines()]
        if self.rank == 0:
            print(f"going on after step {self.step}, in epoch {self.epoch + 1}, as {self.world}", flush=True)

    def _accuracy(self) -> float:
        model = cast("nn.Module", self.model.module).eval()
        right = total = 0
        with torch.no_grad(), self._held_out() as loader:
            for batch in hr.torch.tensors(loader):
                right += int((model(batch["image"]).argmax(1) == batch["label"]).sum())
                total += len(batch["label"])
        return right / total

    def _held_out(self) -> hr.Loader:
        whole = hr.Dataset.open(self.told.test).shard(0, 1)  # one process looks at all of it
        return whole.map(self.decode, threads=1).batch(256).loader(prefetch="16MB")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    Together().run()
