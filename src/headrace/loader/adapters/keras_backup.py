"""A Keras callback that keeps a model together with its loader's place. It imports nothing of Keras."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from headrace.base.errors import InputError
from headrace.loader.loader import Loader

_PLACE = "place.json"


class Backup:
    """See `headrace.loader.adapters.tf.backup`, which makes it a ``keras.callbacks.Callback``. Keras' own threads.

    In the folder: ``place.json`` names the file of weights that belongs to it, and replaces the one before.
    """

    model: Any
    """Set by Keras, as is `params`: what `fit` was told."""
    params: dict[str, Any]

    def __init__(self, folder: str, loader: Loader, every: int | None) -> None:
        super().__init__()
        self._folder, self._loader, self._every = Path(folder), loader, every
        self._epoch = self._since = self._seen = 0

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
        """Go on from what is in the folder."""
        if not self.model.built:
            raise InputError("the model is not built", hint="give it an Input layer, or call it with one batch")
        if self._every is not None and self.params.get("steps") is None:
            raise InputError(
                f"every={self._every}, and Keras does not know how many batches an epoch has",
                hint='every="epoch"; or give fit what hr.tf.dataset returned, of data that is not filtered',
            )
        if not (self._folder / _PLACE).exists():
            return
        place = json.loads((self._folder / _PLACE).read_text())
        if self.model.optimizer is not None and not self.model.optimizer.built:
            self.model.optimizer.build(self.model.trainable_variables)
        self.model.load_weights(str(self._folder / place["weights"]))
        self._loader.load_state_dict(place["loader"])
        through = self._loader.left == 0  # saved at the epoch's last batch: the data set begins with the next one
        self.model._initial_epoch = place["next"] if through else place["epoch"]  # as BackupAndRestore does

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._epoch, self._seen = epoch, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        """`batch` is that of the last one, where Keras takes several at a time (``steps_per_execution``)."""
        self._since += batch + 1 - self._seen
        self._seen = batch + 1
        if self._every is not None and self._since >= self._every:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        self._save(epoch + 1)

    def _save(self, epoch: int) -> None:
        self._since = 0
        self._folder.mkdir(parents=True, exist_ok=True)
        weights = f"{secrets.token_hex(4)}.weights.h5"
        self.model.save_weights(str(self._folder / weights))
        place = {"weights": weights, "epoch": epoch, "next": self._epoch + 1}
        coming = self._folder / f"{_PLACE}.new"
        coming.write_text(json.dumps({**place, "loader": self._loader.state_dict()}))
        os.replace(coming, self._folder / _PLACE)
        for old in self._folder.glob("*.weights.h5"):
            if old.name != weights:
                old.unlink()
