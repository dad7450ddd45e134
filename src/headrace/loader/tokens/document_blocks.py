"""Blocks of tokens out of samples that are documents: rows of a table, records of shards, objects.

A block brings the bytes of all documents that it has tokens of, which are decoded as if each came alone, and cut.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.errors import ChangedError, HeadraceError
from headrace.catalog import KEY, LIST_AGAIN, Abilities, Part, Rows, SampleSpec, Stage
from headrace.loader.pipeline.feeder import Leaf
from headrace.loader.tokens.token_spans import Cutting, Spans, nothing_to_cut
from headrace.loader.tokens.token_values import column_of, place_of, tokens_in

PART, _DOCUMENTS = "tokens", "__documents__"
_BLOCK_SAMPLES = 512  # as of shards: some blocks can be mixed in memory


class DocumentBlocks:
    """A `headrace.catalog.sample_index.SampleIndex`. Any thread; survives fork.

    ``__key__`` is the block's number, ``__shard__`` the file of its first document, where there are files.
    """

    def __init__(
        self, leaf: Leaf, lengths: npt.NDArray[np.int64], cutting: Cutting, column: str, dtype: np.dtype[Any]
    ) -> None:
        """`lengths`: tokens of each sample of the leaf. Raises InputError: no block is long enough."""
        index = leaf.index
        self._given = (leaf, lengths, cutting, column, dtype)
        self._index, self._cutting = index, cutting
        self.store, self.pinned, self.classes = index.store, index.pinned, index.classes
        told = f"{index.fingerprint}\n{cutting}\n{column}\n{dtype}"
        self.fingerprint = f"blocks-{hashlib.sha256(told.encode()).hexdigest()[:32]}"
        self._rows = np.flatnonzero(lengths).astype(np.int64)
        tokens = np.asarray(lengths[self._rows], np.int64)
        self._spans = Spans(cutting, tokens)
        if not self._spans.size:
            raise nothing_to_cut(self._spans, cutting, int(tokens.max(initial=0)))
        self._bytes = max(1, int(index.sizes(self._rows[:1])[0]) * cutting.length // max(int(tokens[0]), 1))
        threads = max((stage.threads for stage in leaf.stages), default=2)
        decode = CutDocuments(leaf.stages, column, dtype.str, cutting.length, cutting.pad)
        can = index.abilities
        self.abilities = Abilities(
            blocks=None if can.blocks is None or can.together is not None else self.blocks,
            stages=(Stage("map", decode, threads),),
            shares=can.shares,
            reports=can.reports,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        leaf, lengths, *rest = self._given
        return DocumentBlocks, (leaf, np.asarray(lengths), *rest)

    def __len__(self) -> int:
        return self._spans.size

    def __repr__(self) -> str:
        return f"<{len(self):,} blocks of {self._cutting.length:,} tokens of {self._index!r}>"

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)} samples")
        parts, run, start, stop = self._spans.pieces(rows)
        chosen, back = np.unique(self._rows[run], return_inverse=True)
        documents = self._index.specs(chosen)
        found = [documents[at] for at in back.tolist()]
        pieces = list(zip(found, start.tolist(), stop.tolist(), strict=True))
        ends = np.cumsum(parts).tolist()
        return [
            _joined(row, pieces[first:end])
            for row, first, end in zip(rows.tolist(), [0, *ends[:-1]], ends, strict=True)
        ]

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`: about what its tokens are of their document."""
        return np.full(len(rows), self._bytes, np.int64)

    def blocks(self, size: int) -> Rows:
        """The samples at which blocks of about `size` bytes begin, the first being 0: where those of the source do."""
        cut = self._index.abilities.blocks
        assert cut is not None
        runs = np.unique(np.searchsorted(self._rows, cut(size)))
        firsts = np.unique(self._spans.starts(runs[runs < len(self._rows)].astype(np.int64)))
        ends = np.append(firsts[1:], len(self))
        return np.concatenate(
            [np.arange(first, end, _BLOCK_SAMPLES) for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]
        )


_Piece = tuple[SampleSpec, int, int]
"""A document, and from which of its tokens to which."""


def _joined(row: int, pieces: Sequence[_Piece]) -> SampleSpec:
    """A block's sample. Documents that lie in the very same parts, as rows of one row group do, have them once."""
    (_, first, extra), *_ = pieces[0]
    shard = {"__shard__": extra["__shard__"]} if "__shard__" in extra else {}
    if all(spec[1] is first for spec, _, _ in pieces):
        names = tuple((part.name, part.name) for part in first)
        told = tuple((spec[0], names, spec[2], start, stop) for spec, start, stop in pieces)
        return f"{row:08d}", first, {**shard, _DOCUMENTS: told}
    parts: dict[tuple[str, int, int | None, str], Part] = {}
    documents: list[tuple[Any, ...]] = []
    for (key, some, more), start, stop in pieces:
        names: tuple[tuple[str, str], ...] = ()
        for part in some:
            place = (part.key, part.start, part.stop, part.name)
            held = parts.setdefault(place, part._replace(name=f"{len(parts)}"))
            names = (*names, (part.name, held.name))
        documents.append((key, names, more, start, stop))
    return f"{row:08d}", tuple(parts.values()), {**shard, _DOCUMENTS: tuple(documents)}


@dataclass(frozen=True)
class CutDocuments:
    """A block's documents as one array. Pickles; any thread.

    `through`: what makes a document's sample of its bytes. `length`: of every array; where fewer tokens are there,
    `pad` fills it up.
    """

    through: tuple[Stage, ...]
    column: str
    dtype: str
    length: int
    pad: int | None

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """One block. Raises InputError: a document holds a token that is not of `dtype`."""
        filled, at = np.empty(self.length, self.dtype), 0
        for key, names, extra, start, stop in sample[_DOCUMENTS]:
            document = {KEY: key, **{name: sample[held] for name, held in names}, **extra}
            try:
                tokens = self._tokens(document)
                if len(tokens) < stop:
                    reason = f"has {len(tokens):,} tokens, and had more when it was indexed"
                    raise ChangedError(reason, hint=LIST_AGAIN)
            except HeadraceError as error:
                raise error.at(place_of({KEY: key, **extra})) from None
            filled[at : at + stop - start] = tokens[start:stop]
            at += stop - start
        if at < self.length:
            filled[at:] = self.pad
        shard = {"__shard__": sample["__shard__"]} if "__shard__" in sample else {}
        return {KEY: sample[KEY], PART: filled, **shard}

    def _tokens(self, document: Any) -> npt.NDArray[Any]:
        for stage in self.through:
            if stage.kind == "map":  # what a filter leaves out has no tokens in any block
                document = stage.function(document)
        return tokens_in(document[column_of(document, self.column)], np.dtype(self.dtype), self.column)


