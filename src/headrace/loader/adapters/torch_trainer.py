"""Hugging Face's Trainer trains on a loader, whose place is in Trainer's own checkpoints.

transformers is imported when something here is used, not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from headrace.base.errors import InputError, UnsupportedError
from headrace.loader.adapters.known_length import known_length
from headrace.loader.adapters.torch import Tensors, tensors
from headrace.loader.dataset import Dataset
from headrace.loader.loader import Loader
from headrace.loader.order.ranks import around

__all__ = ["feed"]

_NAME = "HeadracePlace"
"""Of the callback, in ``trainer_state.json``."""


def feed(trainer: Any, source: Dataset | Loader | Tensors) -> Any:
    """Let Trainer, or a class that follows it, train on the batches of `source`. Returns the trainer.

        trainer = hr.torch.feed(transformers.Trainer(model, arguments), ds.batch(32, drop_last=True))
        trainer.train(resume_from_checkpoint=True)

    Each rank reads its own share, ahead and with the loader's own threads. Each checkpoint holds the place of rank 0,
    in ``trainer_state.json``; training that is resumed from it goes on with the samples that are left, on any number of
    ranks. Trainer's own skipping is switched off (``ignore_data_skip``), and its ``per_device_train_batch_size`` is not
    asked.

    Args:
        trainer: one without ``train_dataset``.
        source: batches of what the model takes; a dataset that is not sharded is, by `Dataset.shard`.

    Raises:
        InputError: single samples; several ranks that could have unequal numbers of batches, and no ``max_steps``, as
            one of them would wait for the others for ever; while training begins: a checkpoint saved without `feed`.
        UnsupportedError: transformers is not installed.
    """
    callbacks = _callbacks()
    if isinstance(source, Tensors):
        source = source.loader
    if isinstance(source, Dataset):
        source = (source if source.striping.told else source.shard()).loader()
    dataset = source.dataset
    if dataset.batch_size is None:
        raise InputError("Trainer is fed with batches, and these are single samples", hint="ds.batch(n)")
    even = known_length(source) is not None and (dataset.drop_last or dataset.striping.even is not None)
    if around().ranks > 1 and not even and trainer.args.max_steps <= 0:
        raise InputError(
            f"{around().ranks} ranks, which could have unequal numbers of batches",
            hint='batch(n, drop_last=True), or shard(even="repeat") for every sample; of filtered data: max_steps',
        )
    fed = tensors(source)
    place: Any = type(_NAME, (_Place, callbacks.TrainerCallback, callbacks.ExportableState), {"source": fed})
    trainer.args.ignore_data_skip = True
    trainer.get_train_dataloader = lambda: _Fed(fed)
    trainer.add_callback(place())
    return trainer


class _Fed:
    """What Trainer iterates, once an epoch. It has no `set_epoch`: the loader goes to the next epoch by itself, and
    Trainer reckons its epochs from steps, which are others on another number of ranks.
    """

    def __init__(self, source: Tensors) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        """Trainer ends where an epoch is empty, as the first is that is resumed from its very last batch."""
        for _ in range(2):
            given = False
            for batch in self._source:
                given = True
                yield batch
            if given:
                return

    def __len__(self) -> int:
        """Raises TypeError where nobody knows: Trainer then asks for ``max_steps``."""
        length = known_length(self._source.loader)
        if length is None:
            raise TypeError("data that is filtered, or may be skipped, has no length")
        return length


class _Place:
    """Keeps the loader's state beside those of Trainer's other callbacks, and finds it there."""

    source: Tensors

    def state(self) -> dict[str, Any]:
        """Asked for as training begins, and as a checkpoint is saved."""
        return {"args": {}, "attributes": {"loader": self.source.state_dict()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """`state` is that of the checkpoint, if there is one; else it was made of what stands here."""
        found = state.stateful_callbacks.get(_NAME)
        if found is None:
            raise InputError(
                f"the checkpoint of step {state.global_step} was saved without hr.torch.feed",
                hint="go on as it was trained: train_dataset=hr.torch.IterableDataset(ds) leaves out by counting steps",
            )
        self.source.load_state_dict(found["attributes"]["loader"])


def _callbacks() -> Any:
    try:
        return importlib.import_module("transformers.trainer_callback")
    except ImportError as error:
        raise UnsupportedError("transformers is not installed", hint="pip install transformers") from error
