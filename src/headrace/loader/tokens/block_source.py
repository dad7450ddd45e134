"""What `Dataset.blocks` is asked for: flat files by ranges, anything else document by document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from headrace.base.errors import HeadraceError, InputError
from headrace.catalog import SampleIndex
from headrace.fetch import Fetcher
from headrace.formats import check_fits
from headrace.loader.order.order import Rows
from headrace.loader.pipeline.feeder import Leaf
from headrace.loader.random_access import samples_at
from headrace.loader.tokens.document_blocks import DocumentBlocks
from headrace.loader.tokens.document_lengths import lengths_of
from headrace.loader.tokens.flat_blocks import FlatBlocks, is_flat
from headrace.loader.tokens.token_spans import Cutting
from headrace.loader.tokens.token_values import column_of, native, tokens_in

_FIRST = np.zeros(1, np.int64)


def blocks_of(leaf: Leaf, cutting: Cutting, column: str | None, dtype: Any, fetcher: Fetcher) -> SampleIndex:
    """The blocks of a source's documents. Where the source is no flat file, all of it is read once.

    Raises:
        InputError: samples hold no tokens, no block is long enough, the padding is no token. As the loader.
    """
    index = leaf.index
    wanted = None if dtype is None else native(dtype)
    if is_flat(index):
        if column not in (None, "tokens"):
            raise InputError(f"column={column!r}, and a flat file has none", path=repr(index), hint="leave it out")
        blocks: SampleIndex = FlatBlocks(index, cutting, None if wanted is None else wanted.str)
        held = np.dtype(cast("Any", blocks.abilities.stages[0].function).dtype)
    else:
        name, held = _looked_at(leaf, column, wanted, fetcher)
        blocks = DocumentBlocks(leaf, lengths_of(leaf, name, wanted, fetcher), cutting, name, held)
    if cutting.pad is not None:
        check_fits(cutting.pad, held, "pad")
    return blocks


def _looked_at(
    leaf: Leaf, column: str | None, wanted: np.dtype[Any] | None, fetcher: Fetcher
) -> tuple[str, np.dtype[Any]]:
    """The part that holds the tokens, and their type, as the first sample has it."""
    maps = tuple(stage for stage in leaf.stages if stage.kind == "map")
    stream = Rows(len(leaf.index), "first")
    sample = samples_at(stream, (Leaf(leaf.index, stages=maps),), (), 0, _FIRST, fetcher)[0]
    try:
        name = column_of(sample, column)
        return name, tokens_in(sample[name], wanted, name).dtype.newbyteorder("=")
    except HeadraceError as error:
        key = sample.get("__key__") if isinstance(sample, Mapping) else None
        raise error.at(f"{leaf.index!r}: sample {key}") from None
