"""What a Dataset is opened from and in which order it comes, as JSON: enough to find any sample of any epoch again.

    {"data": {"target", "by", "format", "columns", "where"},    as `Dataset.open` takes them
     "order": [["shuffle", seed, block], ["take", n], ["slice", first, step, count], ["repeat", n],
               ["windows", n, stride]],
     "fingerprint": of `Dataset.fingerprint`: what is opened anew is the same, or not}

``order`` is null where it cannot be told so: a mix, an index that was opened by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from headrace.base.errors import ChangedError, CorruptError, UnsupportedError
from headrace.base.settings import Settings
from headrace.loader.order.blocked_order import Blocked
from headrace.loader.order.order import Ints, Repeat, Rows, Shuffle, Slice, Stream, Take
from headrace.loader.order.progress_state import Residual
from headrace.loader.order.shard_order import Wholes
from headrace.loader.reopening import Reopened

if TYPE_CHECKING:
    from headrace.loader.dataset import Dataset
    from headrace.namespace import Namespace


def recipe_of(dataset: Dataset) -> dict[str, Any]:
    """Of a dataset as it is, but for what `map` and `filter` make of its samples."""
    index = dataset.leaves[0].index
    data = index.recipe if isinstance(index, Reopened) and len(dataset.leaves) == 1 else None
    order = _steps(dataset) if data is not None else None
    return {"data": data, "order": order, "fingerprint": dataset.fingerprint, "said": dataset.stream.describe()}


def _steps(dataset: Dataset) -> list[list[Any]] | None:
    """From the source on; None: it cannot be told."""
    window = dataset.leaves[0].window
    found: list[list[Any]] = []
    stream: Stream = dataset.stream
    while not isinstance(stream, Rows):
        if isinstance(stream, Wholes):
            found.append(["shuffle", stream.seed, None])
        elif isinstance(stream, Blocked):
            if stream.block is None:
                return None
            found.append(["shuffle", stream.seed, stream.block])
        elif isinstance(stream, Shuffle):
            found.append(["shuffle", stream.seed, None])
        elif isinstance(stream, Take):
            found.append(["take", stream.count])
        elif isinstance(stream, Slice):
            found.append(["slice", stream.first, stream.step, stream.count])
        elif isinstance(stream, Repeat):
            found.append(["repeat", stream.times])
        else:
            return None
        stream = stream.child
    if window is not None:
        found.append(["windows", window.length, window.stride])
    return found[::-1]


def dataset_of(recipe: Mapping[str, Any], namespace: Namespace, settings: Settings | None = None) -> Dataset:
    """The dataset of a recipe, samples as they are stored. `settings`: None: those of `Settings.load()`.

    Raises:
        UnsupportedError: its order cannot be told. ChangedError: the data is another by now. CorruptError: it is no
        recipe. As `Dataset.open`.
    """
    from headrace.formats import OpenOptions, open_source
    from headrace.loader.dataset import Dataset

    data, steps = recipe.get("data"), recipe.get("order")
    if data is None or steps is None:
        said = recipe.get("said")
        raise UnsupportedError(f"the order of its samples cannot be told: {said}", hint="a mix, or an index of its own")
    try:
        options = OpenOptions(str(data["by"]), data["format"], data["columns"], data["where"], "report")
        index = open_source(str(data["target"]), options, namespace=namespace, settings=settings or Settings.load())
        found = Dataset.of(index, str(data["target"]))
        for name, *numbers in cast("list[list[Any]]", steps):
            found = _step(found, name, numbers)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"is no recipe of a dataset: {error!r}") from error
    if found.fingerprint != recipe.get("fingerprint"):
        hint = "train on a snapshot, name@version: its samples are pinned"
        raise ChangedError("holds other samples than the run saw", path=str(data["target"]), hint=hint)
    return found


def places_of(state: Mapping[str, Any], epoch: int, first: int, stop: int) -> Ints:
    """Where in its epoch's order the samples [first, stop) stand that the loop of this state was handed.

    `state`: that of `Loader.state_dict` where the loader began. Raises CorruptError.
    """
    try:
        begun = Residual(epoch, int(state["stripes"]), int(state["grain"]))
        if epoch == state["epoch"]:
            begun = replace(begun, start=int(state["start"]), holes=tuple(map(int, state["holes"])))
        (stripe,) = state["known"]
        return begun.positions(begun.index(int(stripe), np.arange(first, stop, dtype=np.int64)))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"is no state of a loader: {error!r}") from error


def _step(found: Dataset, name: str, numbers: list[Any]) -> Dataset:
    if name == "shuffle":
        return found.shuffle(numbers[0], block=numbers[1])
    if name == "slice":
        first, step, count = numbers
        stop = first + step * count
        return found[first : stop if stop >= 0 else None : step]
    return {"take": found.take, "repeat": found.repeat, "windows": found.windows}[name](*numbers)
