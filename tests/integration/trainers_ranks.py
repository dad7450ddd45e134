"""Two ranks of one job, seen by the frameworks themselves: what each rank's loop received, or what it was told.

Both are forked from the process that has imported everything, as the imports take longer than all that is done here.
Every function is called in both ranks at the same time, and returns the rows that this rank received.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

import headrace as hr
from headrace.base.errors import InputError
from tests.integration.trainers_kit import Model, Module, hugging, lightning, received, stopped
from tests.integration.trainers_rows import flat, opened, rows

RANKS = 2
EVEN = 96
"""Samples that two ranks, each with batches of 8, share without a rest."""
_TIMEOUT_S = 100


def even() -> hr.Dataset:
    return opened().take(EVEN)


def prepared(loader: Any, **options: Any) -> Any:
    """As `accelerate launch` has it: a process of RANK and WORLD_SIZE prepares its loader."""
    return accelerator(**options).prepare(loader)


def accelerator(**options: Any) -> Accelerator:
    AcceleratorState._reset_state()
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))


def batches(dataset: hr.Dataset, workers: int = 0, **options: Any) -> Any:
    return DataLoader(hr.torch.IterableDataset(dataset.batch(8)), batch_size=None, num_workers=workers, **options)


# -- Accelerate ----


def accelerate_dispatches() -> Any:
    return rows(prepared(batches(even())))


def accelerate_dispatches_with_workers() -> Any:
    return rows(prepared(batches(even(), workers=1)))


def accelerate_dispatches_a_shard() -> Any:
    return rows(prepared(batches(even().shard())))


def accelerate_dispatches_a_shard_of_workers() -> Any:
    return rows(prepared(batches(even().shard(), workers=1)))


def accelerate_splits() -> Any:
    return rows(prepared(DataLoader(hr.torch.IterableDataset(even()), batch_size=8), dispatch_batches=False))


def accelerate_splits_a_shard() -> Any:
    return rows(prepared(DataLoader(hr.torch.IterableDataset(even().shard()), batch_size=8), dispatch_batches=False))


def accelerate_splits_batches() -> Any:
    return rows(prepared(batches(even()), dispatch_batches=False))


def accelerate_samples_a_map() -> Any:
    return rows(prepared(DataLoader(even(), batch_size=8, shuffle=True)))


def accelerate_leaves_tensors_alone() -> Any:
    return rows(prepared(tensors()))


def accelerate_resumes() -> Any:
    """By what Accelerate saves: the state of rank 0, on all ranks."""
    found, first = accelerator(), tensors()
    found.register_for_checkpointing(first)
    epoch = iter(first)
    head = rows(next(epoch) for _ in range(3))
    found.save_state("accelerated")
    found.wait_for_everyone()  # rank 0 has written
    found, second = accelerator(), tensors()
    found.register_for_checkpointing(second)
    found.load_state("accelerated")
    return head + rows(second)


def tensors() -> Any:
    return hr.torch.tensors(opened().shard().batch(7))


# -- without ----


def loader_not_sharded() -> Any:
    return rows(batches(even()))


def loader_sharded() -> Any:
    return rows(batches(opened().shard(), workers=1))


def workers_not_sharded() -> Any:
    """A spawned worker knows of no ranks by itself."""
    context = "spawn" if torch.distributed.get_rank() == 0 else "fork"
    return rows(batches(even(), workers=1, multiprocessing_context=context))


def tensors_not_sharded() -> Any:
    return rows(hr.torch.tensors(even().batch(8)))


def tensors_for_all_on_purpose() -> Any:
    return rows(hr.torch.tensors(even().shard(0, 1).batch(8)))


# -- Trainer ----


def trainer_samples_a_map() -> Any:
    return hugging(Model(), even())


def trainer_dispatches() -> Any:
    return hugging(Model(), hr.torch.IterableDataset(even()))


def trainer_dispatches_a_shard() -> Any:
    return hugging(Model(), hr.torch.IterableDataset(even().shard()))


def trainer_fed() -> Any:
    """Two epochs of six steps, with a checkpoint in the second."""
    options = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 9}
    return hugging(Model(), opened().batch(8, drop_last=True), "fed", **options)


def trainer_fed_unevenly() -> Any:
    return hugging(Model(), opened().batch(8))


# -- Lightning ----


def lightning_with_tensors() -> Any:
    return fitted(hr.torch.tensors(even().shard().batch(8)))


def lightning_resumes() -> Any:
    """In the middle of the epoch, by what rank 0 has saved."""
    module = Module()
    saved = stopped(module, 3, hr.torch.tensors(even().shard().batch(8)), max_epochs=1, devices=RANKS, strategy="ddp")
    return flat(received(module)[0]) + fitted(hr.torch.tensors(even().shard().batch(8)), saved)


def lightning_not_sharded() -> Any:
    return fitted(hr.torch.tensors(even().batch(8)))


def lightning_samples_a_map() -> Any:
    return fitted(DataLoader(even(), batch_size=8, shuffle=True))


def lightning_with_workers() -> Any:
    return fitted(batches(even().shard(), workers=1))


def fitted(loader: Any, checkpoint: str | None = None) -> Any:
    module = Module()
    trainer = lightning(max_epochs=1, devices=RANKS, strategy="ddp")
    trainer.fit(module, loader, ckpt_path=checkpoint, weights_only=None if checkpoint is None else True)
    return flat(received(module)[0])


# -- running them ----

_KINDS = ("accelerate_", "loader_", "workers_", "tensors_", "trainer_", "lightning_")
WORK: list[Callable[[], Any]] = [one for name, one in list(globals().items()) if name.startswith(_KINDS)]


def seen(folder: Path) -> dict[str, list[Any]]:
    """Name → what each rank received: rows, or the InputError as ["refused", message, hint], or a traceback."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_rank, args=(rank, folder)) for rank in range(RANKS)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(_TIMEOUT_S)
    for one in ranks:
        one.kill()
        one.join()
    told = [[json.loads(line) for line in (folder / f"{rank}.json").read_text().splitlines()] for rank in range(RANKS)]
    return {name: [dict(one).get(name) for one in told] for name, _ in told[0]}


def _rank(rank: int, folder: Path) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", TORCHELASTIC_RUN_ID="ranks")
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    PartialState(cpu=True)
    with (folder / f"{rank}.json").open("w") as file:
        for work in WORK:
            try:
                found = work()
            except InputError as error:
                found = ["refused", str(error), error.hint]
            except Exception:
                found = traceback.format_exc()
            file.write(json.dumps([work.__name__, found]) + "\n")
            file.flush()
            torch.distributed.barrier()
    os._exit(0)
