"""Which tokens a block has: arithmetic over runs of tokens that lie one behind the other, nothing else.

A run is a document, or a stretch of a file. A block of `length` tokens begins `length - 1` tokens behind the one before
it, so that each token is once what a model is to predict from those before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headrace.base.errors import InputError
from headrace.catalog import Ints

CROSS, KEEP = "cross", "keep"


@dataclass(frozen=True)
class Cutting:
    """How blocks are cut, as the user has it.

    Args:
        length: tokens of a block.
        documents: ``"cross"``: a block goes on in the next document; ``"keep"``: it ends with its document.
        pad: the token that fills blocks up for which too few are left; None: these are left out.
    """

    length: int
    documents: str = CROSS
    pad: int | None = None

    def __post_init__(self) -> None:
        if self.length < 2:
            raise InputError(f"blocks({self.length})", hint="at least 2: tokens, and the one behind each of them")
        if self.documents not in (CROSS, KEEP):
            raise InputError(f"documents={self.documents!r}", hint='"cross" or "keep"')

    @property
    def step(self) -> int:
        """Tokens from one block's beginning to the next one's."""
        return self.length - 1

    def counts(self, tokens: Ints) -> Ints:
        """How many blocks are cut out of so many tokens."""
        whole = np.maximum(tokens - 1, 0) // self.step
        if self.pad is None:
            return whole
        return np.maximum(-(-(tokens - 1) // self.step), np.minimum(tokens, 1))


class Pieces(NamedTuple):
    """`parts`: of each block, one or more. Of all parts, block after block: the run, and from which of its tokens to
    which.
    """

    parts: Ints
    run: Ints
    start: Ints
    stop: Ints


class Spans:
    """Blocks over runs. Any thread."""

    def __init__(self, cutting: Cutting, tokens: Ints) -> None:
        """`tokens`: of each run, one or more."""
        self._step, self._length = cutting.step, cutting.length
        self._ends = np.cumsum(tokens)
        self._blocks = np.cumsum(cutting.counts(tokens)) if cutting.documents == KEEP else None
        total = int(self._ends[-1]) if len(self._ends) else 0
        self.tokens = total
        """Of all runs."""
        if self._blocks is None:
            self.size = int(cutting.counts(np.array([total], np.int64))[0])
        else:
            self.size = int(self._blocks[-1]) if len(self._blocks) else 0

    def pieces(self, blocks: Ints) -> Pieces:
        """Where the tokens of these blocks lie."""
        first, stop = self._reach(blocks)
        run, last = self._run_of(first), self._run_of(stop - 1)
        parts = last - run + 1
        if (parts > 1).any():
            which = np.repeat(np.arange(len(blocks)), parts)
            run = run[which] + np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)
            first, stop = first[which], stop[which]
        begun = np.where(run > 0, self._ends[run - 1], 0)
        return Pieces(parts, run, np.maximum(first - begun, 0), np.minimum(stop, self._ends[run]) - begun)

    def starts(self, runs: Ints) -> Ints:
        """The first block that begins in each of these runs, or behind it; `runs` rise."""
        begun = np.where(runs > 0, self._ends[runs - 1], 0)
        if self._blocks is None:
            return np.minimum(-(-begun // self._step), self.size)
        return np.where(runs > 0, self._blocks[runs - 1], 0)

    def _run_of(self, tokens: Ints) -> Ints:
        return np.searchsorted(self._ends, tokens, side="right").astype(np.int64)

    def _reach(self, blocks: Ints) -> tuple[Ints, Ints]:
        """First token, and the one behind the last, counted through all runs."""
        if self._blocks is None:
            first = blocks * self._step
            return first, np.minimum(first + self._length, self.tokens)
        run = np.searchsorted(self._blocks, blocks, side="right")
        within = blocks - np.where(run > 0, self._blocks[run - 1], 0)
        first = np.where(run > 0, self._ends[run - 1], 0) + within * self._step
        return first, np.minimum(first + self._length, self._ends[run])


def nothing_to_cut(spans: Spans, cutting: Cutting, longest: int) -> InputError:
    """What is wrong where there are no blocks. `longest`: tokens of the longest document."""
    if cutting.documents == KEEP and spans.tokens:
        reason = f"its longest document has {longest:,} tokens, and a block {cutting.length:,}"
        return InputError(reason, hint="shorter blocks, pad=…, or pack_documents()")
    reason = f"holds {spans.tokens:,} tokens, and a block has {cutting.length:,}"
    return InputError(reason, hint="shorter blocks, or pad=…")
