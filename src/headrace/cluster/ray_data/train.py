"""`hr.ray.shard`: in Ray Train's loop, the loader of this worker."""

from __future__ import annotations

import importlib
from typing import Any

from headrace.base.errors import InputError, UnsupportedError
from headrace.cluster.connection import ray_module
from headrace.loader import Dataset, Loader


def shard(ds: Dataset, **options: Any) -> Loader:
    """The loader of this worker's stripe of `ds`, in Ray Train's ``train_loop_per_worker``.

    Each worker reads its own stripe, ahead, through its node's cache; all of them together see every sample once::

        def train(config):
            loader = hr.ray.shard(ds.shuffle(seed=1).batch(32))
            if checkpoint := ray.train.get_checkpoint():                  # of as many workers, or of others
                with checkpoint.as_directory() as folder:
                    loader.load_state_dict(json.loads(Path(folder, "loader.json").read_text()))
            for epoch in range(loader.epoch, 10):
                for batch in loader:
                    step(batch)
                save(model, loader.state_dict())                          # rank 0: the state as loader.json

    The state of one worker is enough where all have taken equally many batches and nothing is filtered or skipped;
    else each saves its own, and `Loader.load_state_dict` takes the list of them. ``batch(n, drop_last=True)`` gives all
    workers equally many batches. `hr.torch.tensors` takes what is returned.

    Args:
        ds: not sharded.
        options: of `Dataset.loader`: ``prefetch``, ``order``, …

    Raises:
        InputError: this is no worker of Ray Train; or as `Dataset.loader`.
        UnsupportedError: Ray, or what Ray Train needs, is not installed.
    """
    rank, world_size = _place()
    return ds.shard(rank, world_size).loader(**options)


def _place() -> tuple[int, int]:
    ray_module()
    try:
        train: Any = importlib.import_module("ray.train")
    except ImportError as error:
        raise UnsupportedError("Ray Train is not installed", hint='pip install "headrace[ray]" "ray[train]"') from error
    rank = world_size = None
    reason: Exception | None = None
    try:
        context = train.get_context()
        rank, world_size = context.get_world_rank(), context.get_world_size()
    except RuntimeError as error:
        reason = error
    if rank is None or world_size is None:
        hint = "call it in train_loop_per_worker; elsewhere: ds.shard(rank, world_size).loader()"
        raise InputError("this process is no worker of Ray Train", hint=hint) from reason
    return int(rank), int(world_size)
