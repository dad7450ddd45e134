"""How many tokens each sample of a source holds: all are read once for it, and the index cache keeps the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from headrace.base.arrow import pa, pc
from headrace.base.errors import BadSampleError, InputError
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.catalog import Shelf, Stage
from headrace.fetch import Fetcher
from headrace.formats import as_table
from headrace.loader.epoch_pipeline import Pipeline
from headrace.loader.order.order import Rows
from headrace.loader.order.progress_state import Progress as Done
from headrace.loader.order.progress_state import Residual
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Course, Leaf
from headrace.loader.tokens.token_values import column_of, place_of, tokens_in

_FILE = "lengths.npy"
_COUNT = "tokens"
_TOGETHER = 4096  # samples whose lengths come together
_PREFETCH = 128 << 20  # bytes of samples on their way
_THREADS = 2  # that count, or cut: most of it is NumPy's, which releases the GIL for large arrays alone
_EVERY = "blocks() counts the tokens of every document; pack_documents(on_error=…) leaves some out"


def lengths_of(
    leaf: Leaf, column: str, dtype: np.dtype[Any] | None, fetcher: Fetcher, progress: Progress
) -> npt.NDArray[np.int64]:
    """Tokens of each sample, 0 for those that a filter of the source leaves out. Int64 [n], mapped.

    `dtype`: of bytes; None: samples say it. `progress`: told of samples, while they are read.

    Raises:
        InputError: a sample holds no tokens. As the loader.
    """

    def build(folder: Path) -> dict[str, Any]:
        progress.total(len(leaf.index))
        lengths = np.lib.format.open_memmap(folder / _FILE, "w+", np.int64, (len(leaf.index),))
        at = 0
        for some in _lengths(leaf, column, dtype, fetcher):
            lengths[at : at + len(some)] = some
            at += len(some)
            progress.advance(len(some))
        lengths.flush()
        return {"samples": at}

    told = f"{leaf.index.fingerprint}\n{column}\n{dtype}".encode()
    folder, _ = Shelf.of(Settings.load()).get(f"lengths1-{xxhash.xxh3_128_hexdigest(told)}", build)
    return np.load(folder / _FILE, mmap_mode="r")


def _lengths(leaf: Leaf, column: str, dtype: np.dtype[Any] | None, fetcher: Fetcher) -> Iterator[Any]:
    index = leaf.index
    table = as_table(index)
    whole = table is not None and table.stages == leaf.stages and all(one.kind == "map" for one in leaf.stages)
    course = Course(Rows(len(index), "lengths"), Residual(), 0, Done(), len(index))
    lists = whole and pa.types.is_list(_type_in(table, column))
    if not lists:
        leaf = Leaf(index, stages=(Stage("map", CountTokens(leaf.stages, column, dtype), _THREADS),))
    plan = Plan((leaf,), (), _TOGETHER, drop_last=False, skip=None, prefetch=_PREFETCH, window=None)
    run = Pipeline(plan, course, fetcher, [], arrow=lists)
    try:
        while isinstance(delivery := run.take(), Delivery):
            data = delivery.data
            yield data[_COUNT] if isinstance(data, Mapping) else _in_lists(data[column])
    except BadSampleError as error:
        error.hint = _EVERY
        raise
    finally:
        run.close()


def _type_in(table: Any, column: str) -> Any:
    schema = table.scheme.schema
    return schema.field(column).type if column in schema.names else pa.null()


def _in_lists(column: Any) -> Any:
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy()


@dataclass(frozen=True)
class CountTokens:
    """A sample as the number of its tokens."""

    through: tuple[Stage, ...]
    column: str
    dtype: np.dtype[Any] | None

    def __call__(self, sample: Any) -> dict[str, int]:
        for stage in self.through:
            made = stage.function(sample)
            if stage.kind == "map":
                sample = made
            elif not made:
                return {_COUNT: 0}
        try:
            return {_COUNT: len(tokens_in(sample[column_of(sample, self.column)], self.dtype, self.column))}
        except InputError as error:
            raise error.at(place_of(sample)) from None
