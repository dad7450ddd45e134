"""Tiny models that note which rows they were given, and trainers that say nothing."""

from __future__ import annotations

import contextlib
import logging
import warnings
from typing import Any

import pytorch_lightning
import torch
import transformers

import headrace as hr
from tests.integration.trainers_rows import flat


class Module(pytorch_lightning.LightningModule):
    """Notes (Lightning's epoch, rows) for each training batch, and after how many of them it was validated."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.noted: list[tuple[int, list[int]]] = []
        self.validated: list[int] = []

    def training_step(self, batch: Any, _index: int) -> Any:
        self.noted.append((self.current_epoch, batch["row"].tolist()))
        return self.layer(batch["x"]).mean() * 0

    def validation_step(self, _batch: Any, index: int) -> None:
        if index == 0:
            self.validated.append(len(self.noted))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def received(*modules: Module) -> dict[int, list[list[int]]]:
    """Lightning's epoch → rows of its batches, of several fits one after the other."""
    found: dict[int, list[list[int]]] = {}
    for module in modules:
        for epoch, some in module.noted:
            found.setdefault(epoch, []).append(some)
    return found


def lightning(**options: Any) -> pytorch_lightning.Trainer:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"accelerator": "cpu", "devices": 1, "enable_checkpointing": False, **quiet, **options}
    return pytorch_lightning.Trainer(**options)


class Preempted(Exception):
    """None of the signals and errors that Lightning knows."""


class Stop(pytorch_lightning.Callback):
    """Saves and stops after a step; None: when an epoch has ended."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            self.stop(trainer)

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        if self.step is None:
            self.stop(trainer)

    def stop(self, trainer: Any) -> None:
        trainer.save_checkpoint("stopped.ckpt")
        raise Preempted


def stopped(module: Module, step: int | None, loader: Any = None, *, datamodule: Any = None, **options: Any) -> str:
    """The checkpoint of a fit that is stopped there."""
    with contextlib.suppress(Preempted):
        lightning(callbacks=[Stop(step)], **options).fit(module, loader, datamodule=datamodule)
    return "stopped.ckpt"


class Model(torch.nn.Module):
    """For Hugging Face's Trainer: notes the rows of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.noted: list[list[int]] = []

    def forward(self, x: Any, row: Any) -> Any:
        self.noted.append(row.tolist())
        return {"loss": self.layer(x).mean() * 0}


def hugging(model: Model, data: Any, folder: str = "trained", resume: str | None = None, **options: Any) -> list[int]:
    """Rows that a model was given by Trainer, in order. Options are those of TrainingArguments.

    `data` in batches: the trainer is fed with them.
    """
    given = {"num_train_epochs": 1, "per_device_train_batch_size": 8, "save_strategy": "no", **options}
    arguments = transformers.TrainingArguments(
        folder, use_cpu=True, report_to="none", disable_tqdm=True, logging_strategy="no", **given
    )
    fed = isinstance(data, hr.Dataset) and data.batch_size is not None
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=None if fed else data)
    if fed:
        hr.torch.feed(trainer, data)
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train(resume_from_checkpoint=resume)
    return flat(model.noted)


def be_quiet() -> None:
    warnings.simplefilter("ignore")
    for name in ("pytorch_lightning", "lightning_fabric", "accelerate", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
