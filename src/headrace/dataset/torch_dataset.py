"""A dataset inside `torch.utils.data.DataLoader`: workers split the stream, every sample once.

The loader's own threads are usually faster (no copy between processes); this is for code that already has a DataLoader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.utils.data

from headrace.base.errors import InputError
from headrace.dataset.dataset import Dataset, Shard
from headrace.dataset.loader import Loader
from headrace.dataset.state import State
from headrace.dataset.torch import convert

_WORKERS = 256


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """Batches or samples of `dataset` as tensors, for a DataLoader of any number of workers.

    Batch in the dataset and give the DataLoader ``batch_size=None``. Worker w of n on rank r takes stripe
    r + w · world_size of n · world_size. Epochs advance by themselves in every kind of worker, or by `set_epoch`.
    `state_dict` and `load_state_dict` are what torchdata's StatefulDataLoader calls, in each worker.

    Args:
        dataset: what to iterate.
        options: passed to `Dataset.loader`.
    """

    def __init__(self, dataset: Dataset, **options: Any) -> None:
        super().__init__()
        self._dataset = dataset
        self._options = options
        self._loader: Loader | None = None
        self._pending: State | Sequence[State] | None = None
        # The next epoch of the main process (0) and of each worker: shared, so that workers started anew for each
        # epoch know which one it is.
        self._next = torch.zeros(_WORKERS + 1, dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        slot = 0 if info is None else info.id + 1
        if slot > _WORKERS:
            raise InputError(f"{slot} workers", hint=f"at most {_WORKERS}; the loader's own threads need none")
        loader = self._striped()
        epoch = int(self._next[slot])
        if self._pending is not None and epoch == _epoch_of(self._pending):
            loader.load_state_dict(self._pending)
            self._pending = None
        elif loader.epoch != epoch:
            loader.set_epoch(epoch)
        self._next[slot] = epoch + 1
        return map(_sendable, loader)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration is, in all workers."""
        self._next[:] = epoch

    def state_dict(self) -> State:
        """This worker's state."""
        return self._striped().state_dict()

    def load_state_dict(self, state: State | Sequence[State]) -> None:
        """Continue from a worker's state, or from the list of all workers' (of all ranks), with any number of them."""
        self._pending = state
        self.set_epoch(_epoch_of(state))

    def _striped(self) -> Loader:
        """This worker's loader; made where it runs, as it cannot be sent."""
        if self._loader is None:
            info = torch.utils.data.get_worker_info()
            workers, worker = (1, 0) if info is None else (info.num_workers, info.id)
            shard = self._dataset.striping
            stripe = Shard(shard.rank + worker * shard.world_size, shard.world_size * workers)
            striped = dataclasses.replace(self._dataset, striping=stripe)
            self._loader = striped.loader(**self._options)
        return self._loader

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loader": None}


def _epoch_of(state: State | Sequence[State]) -> int:
    states = [state] if isinstance(state, dict) else list(state)
    return min(int(one["epoch"]) for one in states)


def _sendable(batch: Any) -> Any:
    """Tensors, and bytes where a view cannot cross to the main process."""
    return _bytes(convert(batch))


def _bytes(value: Any) -> Any:
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, dict):
        return {name: _bytes(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_bytes(one) for one in value)
    return value
