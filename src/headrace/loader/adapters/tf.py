"""TensorFlow: a dataset as a `tf.data.Dataset`, each iteration of which is the next epoch.

TensorFlow is imported when something here is used, not before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from headrace.base.errors import InputError, UnsupportedError
from headrace.loader.adapters.tf_elements import convert, signature_of
from headrace.loader.dataset import Dataset
from headrace.loader.loader import Loader

__all__ = ["dataset"]


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
    return found.with_options(options)


class _Epochs:
    """What TensorFlow calls for each iteration. In TensorFlow's threads, one at a time."""

    def __init__(self, loader: Loader, change: Callable[[Any], Any]) -> None:
        self._loader, self._change = loader, change

    def __call__(self) -> Iterator[Any]:
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
