"""TensorFlow: a dataset as a `tf.data.Dataset`, each iteration of which is the next epoch.

TensorFlow is imported when something here is used, not before.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from headrace.base.errors import InputError, UnsupportedError
from headrace.loader.adapters.keras_backup import Backup
from headrace.loader.adapters.known_length import known_length
from headrace.loader.adapters.tf_elements import convert, signature_of
from headrace.loader.dataset import Dataset
from headrace.loader.loader import Loader

__all__ = ["backup", "dataset"]


def dataset(source: Loader | Dataset, signature: Any = None) -> Any:
    """A `tf.data.Dataset` of the batches of `source`, for `model.fit`, `tf.function`, `.map`, `.prefetch`.

    Arrays become tensors; strings and bytes ``tf.string``; lists of arrays that differ in their first dimension only,
    ragged tensors. Each iteration is the next epoch, and there is one at a time. TensorFlow takes a batch when its
    consumer asks for it and not earlier, so a loader given here tells in its `state_dict` what the training loop has
    received, as long as nothing behind reads ahead (`.prefetch`, `.map` with parallel calls, `.shuffle`); where
    something does, its state is exact between epochs. Data is not divided over workers of a `tf.distribute` strategy:
    that is what `Dataset.shard` does.

    Args:
        source: a loader, or a dataset (then with the default loader).
        signature: structure of `tf.TypeSpec` of an element. Default: from the first batch, which is read for it now;
            the batch dimension is None, or the batch size where `batch` had ``drop_last=True``.

    Raises:
        InputError: the first batch cannot be tensors (the field is named), or there is none.
        UnsupportedError: TensorFlow is not installed.
        HeadraceError: the first batch could not be read.
        tf.errors.OpError: while iterating. TensorFlow carries no Python exception: class, message and traceback of
            ours are in its message.
    """
    tf = _tensorflow()
    loader = source if isinstance(source, Loader) else source.loader()
    spec = signature if signature is not None else _peek(tf, loader.dataset)
    found = tf.data.Dataset.from_generator(
        _Epochs(loader, lambda batch: convert(tf, batch, spec)), output_signature=spec
    )
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # the loader has read ahead, and its state stays exact
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    found = found.with_options(options)
    length = known_length(loader)
    if length is not None:
        # Keras ends every epoch where the first one ended, which after a resume is a short one, unless it is told how
        # many batches there are. `assert_cardinality` would have TensorFlow refuse the short one.
        found.cardinality = lambda: tf.constant(length, tf.int64)
    return found


def backup(folder: str | os.PathLike[str], loader: Loader, *, every: int | str = "epoch") -> Any:
    """A Keras callback that keeps the model and the loader's place in `folder`, and goes on from there.

        loader = ds.loader()
        model.fit(hr.tf.dataset(loader), epochs=10, callbacks=[hr.tf.backup("run-1", loader, every=100)])

    As ``keras.callbacks.BackupAndRestore``, but the samples that the model has seen in an epoch do not come again: with
    ``every=100`` also in the middle of one. Weights, optimizer, epoch and place are replaced at once, and what is there
    when `fit` begins is loaded. It stays: `fit` with the same `epochs` then has nothing left to do.

    Args:
        folder: on this machine; made if it is not there.
        loader: that of the dataset which `fit` gets.
        every: batches, beside the end of each epoch; ``"epoch"``: only that.

    Raises:
        InputError: `every`. While `fit` begins: a model that is not built; batches counted (`every`), where Keras does
            not know how many an epoch has: data that is filtered or may be skipped, or that something like ``prefetch``
            stands behind. Then Keras would end each epoch after a resume where the resumed one ended. What
            `Loader.load_state_dict` raises.
        UnsupportedError: TensorFlow is not installed.
    """
    if every != "epoch" and (not isinstance(every, int) or every < 1):
        raise InputError(f"every={every!r}", hint='"epoch", or a number of batches')
    kind: Any = type("Backup", (Backup, _tensorflow().keras.callbacks.Callback), {})
    return kind(os.fspath(folder), loader, None if isinstance(every, str) else every)


class _Epochs:
    """What TensorFlow calls for each iteration. In TensorFlow's threads, one at a time.

    An epoch of which nothing is left, as in a state of its last batch, is passed over: Keras knows how many batches
    there are, does not ask for the end behind them, and cannot have an epoch without any.
    """

    def __init__(self, loader: Loader, change: Callable[[Any], Any]) -> None:
        self._loader, self._change = loader, change

    def __call__(self) -> Iterator[Any]:
        if self._loader.left == 0:
            self._loader.set_epoch(self._loader.epoch + 1)
        batches = iter(self._loader)
        try:
            for batch in batches:
                yield self._change(batch)
        finally:
            batches.close()  # type: ignore[attr-defined]


def _peek(tf: Any, source: Dataset) -> Any:
    """The signature of the first batch; nothing beyond it is read."""
    with source.loader(prefetch=1) as loader:
        for batch in loader:
            size = source.batch_size if source.drop_last and source.has_even_batches else None
            return signature_of(tf, batch, batched=source.gives_batches, size=size)
    raise InputError("there is no batch to take the signature from", hint="pass signature=, or look at drop_last")


def _tensorflow() -> Any:
    try:
        return importlib.import_module("tensorflow")
    except ImportError as error:
        raise UnsupportedError("TensorFlow is not installed", hint="pip install 'headrace[tf]'") from error
