"""A dataset inside `torch.utils.data.DataLoader`: workers split the stream, every sample once.

The loader's own threads are usually faster (no copy between processes); this is for code that already has a DataLoader.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypedDict, cast

import torch
import torch.utils.data

from headrace.base.errors import InputError
from headrace.loader.adapters.stateful_states import workers_states
from headrace.loader.adapters.torch_values import convert
from headrace.loader.dataset import Dataset, Shard
from headrace.loader.loader import Epoch, Loader
from headrace.loader.order.progress_state import State
from headrace.loader.order.ranks import Around, around

_WORKERS = 256
"""Workers of one DataLoader, at most: each has a shared number, made before it is known how many there are."""


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """Batches or samples of `dataset` as tensors, for a DataLoader of any number of workers.

    Batch in the dataset and give the DataLoader ``batch_size=None``. Worker w of n on rank r takes stripe
    r + w · world_size of n · world_size. Epochs advance by themselves in every kind of worker, or by `set_epoch`.
    `state_dict` and `load_state_dict` are what torchdata's StatefulDataLoader calls, in each worker; there they, and
    `set_epoch`, concern that worker alone.

    Args:
        dataset: what to iterate.
        workers: the DataLoader's ``num_workers``, for `len` where no DataLoader asks for it.
        options: passed to `Dataset.loader`.
    """

    def __init__(self, dataset: Dataset, workers: int = 0, **options: Any) -> None:
        super().__init__()
        self._dataset = dataset
        self._workers = max(workers, 1)
        self._options = options
        self._loader: Loader | None = None
        self._made_in = 0
        self._pending: State | Sequence[State] | None = None
        self._around = Around()  # where it was sent to a worker from
        # The next epoch of the main process (0) and of each worker: shared, so that workers started anew for each
        # epoch know which one it is. A worker writes its own and no other: they go ahead at their own pace.
        self._next = torch.zeros(_WORKERS + 1, dtype=torch.int64).share_memory_()

    def __iter__(self) -> Iterator[Any]:
        slot = _slot()
        if slot > _WORKERS:
            raise InputError(f"{slot} workers", hint=f"at most {_WORKERS}; the loader's own threads need none")
        found = around()
        if slot and found.ranks == 1:  # a worker that was not forked knows of no ranks
            found = self._around
        found.check(self._dataset.striping, self._is_batched)
        loader = self._striped()
        epoch = int(self._next[slot])
        if self._pending is not None and epoch == _epoch_of(self._pending):
            loader.load_state_dict(self._pending)
            self._pending = None
        elif loader.epoch != epoch:
            loader.set_epoch(epoch)
        return _Batches(self, loader, slot, epoch)

    def __len__(self) -> int:
        """Batches (or single samples) of one epoch on this rank, all of its workers together.

        A DataLoader that asks is told what makes its own length right, as each of its workers ends with a batch of its
        own: where that length says that an epoch ends, trainers stop.

        Raises:
            TypeError: nobody knows: the dataset is filtered, may skip samples, or has no end.
        """
        dataset = self._dataset
        stages = [*dataset.stages, *dataset.after, *(stage for leaf in dataset.leaves for stage in leaf.stages)]
        if not all(stage.keeps_count for stage in stages):
            raise TypeError("a filtered dataset, or one with flat_map, has no length")
        if dataset.skip is not None:
            raise TypeError("a dataset that may skip samples has no length")
        workers, size, drop_last = self._asked()
        lengths = [len(self._loader_of(worker, workers)) for worker in range(workers)]
        return sum((length // size if drop_last else -(-length // size)) * size for length in lengths)

    def _asked(self) -> tuple[int, int, bool]:
        """(workers, samples a batch, whether it drops the last) of the DataLoader that asks for the length.

        It hands itself to nobody: it is found as the caller's caller.
        """
        frame = inspect.currentframe()
        for _ in range(2):
            frame = frame and frame.f_back
        asking = frame and frame.f_locals.get("self")
        if not isinstance(asking, torch.utils.data.DataLoader):
            return self._workers, 1, False
        return max(asking.num_workers, 1), asking.batch_size or 1, asking.drop_last

    def coming(self, slot: int) -> int:
        """The epoch that the next iteration is."""
        return int(self._next[slot])

    def began(self, slot: int, epoch: int) -> None:
        """Something of that epoch was taken: the next iteration is the next one, unless somebody has set another."""
        if int(self._next[slot]) == epoch:
            self._next[slot] = epoch + 1

    def set_epoch(self, epoch: int) -> None:
        """The epoch that the next iteration is, in all workers; called in a worker, in that one.

        An iterator of this process from which nothing was taken goes along; workers are ahead of what is taken.
        """
        around().check_dealt(self._dataset.striping, self._is_batched)
        slot = _slot()
        self._next[slot : slot + 1 if slot else None] = epoch

    def state_dict(self) -> State:
        """This worker's state."""
        return self._striped().state_dict()

    def load_state_dict(self, state: State | Sequence[State]) -> None:
        """Continue from a worker's state, or from the list of all workers' (of all ranks), with any number of them.

        What a StatefulDataLoader's `state_dict` gave, or the list of what those of all ranks gave, is such a list: give
        it to the dataset before it is iterated, and not to the new StatefulDataLoader, which wants as many workers.

        Raises:
            InputError: a StatefulDataLoader's state that is older than the batch it last gave.
        """
        self._pending = workers_states(state)
        self.set_epoch(_epoch_of(self._pending))

    def _striped(self) -> Loader:
        """This worker's loader; made where it runs: it cannot be sent, and one inherited by a fork is striped for
        another process.
        """
        if self._loader is None or self._made_in != os.getpid():
            info = torch.utils.data.get_worker_info()
            workers, worker = (1, 0) if info is None else (info.num_workers, info.id)
            self._loader, self._made_in = self._loader_of(worker, workers), os.getpid()
        return self._loader

    def _loader_of(self, worker: int, workers: int) -> Loader:
        shard = self._dataset.striping
        stripe = Shard(shard.rank + worker * shard.world_size, shard.world_size * workers, shard.by, shard.even)
        return dataclasses.replace(self._dataset, striping=stripe).loader(**self._options)

    @property
    def _is_batched(self) -> bool:
        return self._dataset.gives_batches

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loader": None, "_around": around()}


class _End(TypedDict):
    ended: bool


class _Batches:
    """One epoch of one worker, as tensors.

    After its end the dataset's state is the start of the next epoch, while other workers may still be in this one.
    StatefulDataLoader asks every worker for one more batch when it resumes, so the iterator tells, beside the dataset,
    that it has ended: then there is none, and the next epoch begins with the next iterator.
    """

    def __init__(self, dataset: IterableDataset, loader: Loader, slot: int, number: int) -> None:
        self._dataset, self._loader = dataset, loader
        self._epoch = cast("Epoch", iter(loader))
        self._slot, self._number = slot, number
        self._begun = self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if not self._begun:
            self._begun = True
            if self._epoch.is_live and self._dataset.coming(self._slot) != self._number:
                self._number = self._dataset.coming(self._slot)
                self._loader.set_epoch(self._number)
        try:
            batch = next(self._epoch)
        except StopIteration:
            self._ended = True
            raise
        finally:
            self._dataset.began(self._slot, self._number)
        return _sendable(batch)

    def state_dict(self) -> _End:
        """What StatefulDataLoader keeps beside the dataset's state."""
        return {"ended": self._ended}

    def load_state_dict(self, state: _End) -> None:
        """After the dataset's: one that had ended ends here, and its dataset is again at the start of the next."""
        if state["ended"] and not self._ended:
            self._ended = True
            self._epoch.close()
            self._dataset.load_state_dict(self._dataset.state_dict())


def _slot() -> int:
    """0 in the main process, and from 1 on in workers."""
    info = torch.utils.data.get_worker_info()
    return 0 if info is None else info.id + 1


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
