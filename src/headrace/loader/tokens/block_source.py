"""What `Dataset.blocks` is asked for: flat files by ranges, anything else document by document."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.base.errors import InputError
from headrace.base.progress import Progress
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
from headrace.loader.tokens.token_values import column_of, native, place_of, tokens_in

_FIRST = np.zeros(1, np.int64)


def holds_blocks(index: SampleIndex) -> bool:
    """Whether its samples are blocks already."""
    return isinstance(index, (FlatBlocks, DocumentBlocks))


class Wanted(NamedTuple):
    """What is asked for. `path`: of the source, for errors; `progress`: told of documents, while they are read once."""

    cutting: Cutting
    column: str | None
    dtype: Any
    path: str
    progress: Progress


def blocks_of(leaf: Leaf, wanted: Wanted, fetcher: Fetcher) -> SampleIndex:
    """The blocks of a source's documents. Where the source is no flat file, all of it is read once.

    Raises:
        InputError: samples hold no tokens, no block is long enough, the padding is no token. As the loader.
    """
    try:
        blocks, held = _blocks(leaf, wanted, fetcher)
        if wanted.cutting.pad is not None:
            check_fits(wanted.cutting.pad, held, "pad")
    except InputError as error:
        raise error.at(wanted.path) from None
    return blocks


def _blocks(leaf: Leaf, wanted: Wanted, fetcher: Fetcher) -> tuple[SampleIndex, np.dtype[Any]]:
    """And the type of their tokens."""
    cutting, column, dtype, _, progress = wanted
    kind = None if dtype is None else native(dtype)
    if not is_flat(leaf.index):
        name, held = _looked_at(leaf, column, kind, fetcher)
        return DocumentBlocks(leaf, lengths_of(leaf, name, kind, fetcher, progress), cutting, name, held), held
    if column not in (None, "tokens"):
        raise InputError(f"column={column!r}, and a flat file has none", hint="leave it out")
    blocks = FlatBlocks(leaf.index, cutting, None if kind is None else kind.str)
    return blocks, blocks.dtype


def _looked_at(
    leaf: Leaf, column: str | None, wanted: np.dtype[Any] | None, fetcher: Fetcher
) -> tuple[str, np.dtype[Any]]:
    """The part that holds the tokens, and their type, as the first sample has it."""
    maps = tuple(stage for stage in leaf.stages if stage.kind == "map")
    stream = Rows(len(leaf.index), "first")
    sample = samples_at(stream, (Leaf(leaf.index, stages=maps),), (), 0, _FIRST, fetcher)[0]
    name = column_of(sample, column)
    try:
        return name, tokens_in(sample[name], wanted, name).dtype.newbyteorder("=")
    except InputError as error:
        raise error.at(place_of(sample)) from None
