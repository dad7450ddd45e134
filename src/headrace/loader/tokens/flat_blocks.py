"""Blocks of flat files: each is a range of bytes of one file, rarely of several.

Documents that lie one behind the other in a file are one run where blocks may cross their ends: then what is kept is as
small as the list of files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import InputError
from headrace.base.settings import Settings
from headrace.catalog import (
    KEY,
    Abilities,
    Ints,
    Part,
    Ranged,
    Ranges,
    Rows,
    SampleIndex,
    SampleSpec,
    Shelf,
    Stage,
    TakesColumns,
)
from headrace.formats import Megatron, Pieces, ShardSamples, TokenFiles, records_of, shard_format_of
from headrace.loader.tokens.token_spans import CROSS, Cutting, Spans, nothing_to_cut
from headrace.loader.tokens.token_values import as_type

PART = "tokens"
_STEP = 1 << 16  # documents looked at together
_BLOCK_SAMPLES = 512  # as of shards: some blocks can be mixed in memory
_THREADS = 2  # that count, or cut: most of it is NumPy's, which releases the GIL for large arrays alone
_FILE = "runs.npy"


def is_flat(index: SampleIndex) -> bool:
    """Whether its samples are documents of flat files."""
    return isinstance(shard_format_of(index), (TokenFiles, Megatron))


class FlatBlocks:
    """A `headrace.catalog.sample_index.SampleIndex`. Any thread; survives fork.

    ``__key__`` is the block's number, ``__shard__`` the file in which it begins.
    """

    pinned = True
    classes: list[str] | None = None

    def __init__(self, documents: SampleIndex, cutting: Cutting, dtype: str | None) -> None:
        """`dtype`: of what batches hold; None: as in the files.

        Raises:
            InputError: no block is long enough, files are of several types, or of tokens that are not of `dtype`.
        """
        self._documents, self._cutting, self._dtype = documents, cutting, dtype
        self._ranged = cast("ShardSamples", documents.abilities.ranges)
        self.store = self._ranged.store
        stored = _type_of(documents)
        self._size = stored.itemsize
        told = f"{documents.fingerprint}\n{cutting}\n{dtype}"
        self.fingerprint = f"blocks-{hashlib.sha256(told.encode()).hexdigest()[:32]}"
        runs = _runs(documents, self._ranged, self._size, together=cutting.documents == CROSS)
        self._object, self._start, tokens = runs[:, 0], runs[:, 1], runs[:, 2]
        self._spans = Spans(cutting, tokens)
        if not self._spans.size:
            raise nothing_to_cut(self._spans, cutting, int(tokens.max(initial=0)))
        wanted = np.dtype(dtype) if dtype is not None else stored.newbyteorder("=")
        self.dtype = wanted
        """Of the arrays."""
        decode = BlockTokens(stored.str, wanted.str, cutting.length, cutting.pad)
        self.abilities = Abilities(ranges=self, blocks=self.blocks, stages=(Stage("map", decode, _THREADS),))

    def __reduce__(self) -> tuple[Any, ...]:
        return FlatBlocks, (self._documents, self._cutting, self._dtype)

    def __len__(self) -> int:
        return self._spans.size

    def __repr__(self) -> str:
        return f"<{len(self):,} blocks of {self._cutting.length:,} tokens of {self._documents!r}>"

    def ranges(self, rows: Ints) -> Ranges:
        """See `headrace.catalog.sample_abilities.Ranged.ranges`."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)} samples")
        count, run, start, stop = self._spans.pieces(rows)
        begun = self._start[run]
        return Ranges(count, self._object[run], begun + start * self._size, begun + stop * self._size)

    def object_at(self, number: int) -> tuple[str, int, str | None]:
        """See `headrace.catalog.sample_abilities.Ranged.object_at`."""
        return self._ranged.object_at(number)

    def blanks(self, rows: Rows, objects: Sequence[int]) -> list[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
        """See `headrace.catalog.sample_abilities.Ranged.blanks`."""
        counts = self.ranges(rows).parts.tolist()
        return [
            (f"{row:08d}", _names(count), {"__shard__": self._shard(number)})
            for row, count, number in zip(rows.tolist(), counts, objects, strict=True)
        ]

    def columns(self, rows: Rows, objects: Sequence[int]) -> tuple[dict[str, list[Any]], tuple[str, ...] | None]:
        """See `headrace.catalog.sample_abilities.Ranged.columns`."""
        counts = self.ranges(rows).parts
        alike = _names(int(counts[0])) if (counts == counts[0]).all() else None
        names = {number: self._shard(number) for number in set(objects)}
        keys = [f"{row:08d}" for row in rows.tolist()]
        return {KEY: keys, "__shard__": [names[number] for number in objects]}, alike

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        found = self.ranges(rows)
        firsts = found.object[np.cumsum(found.parts) - found.parts].tolist()
        part = zip(found.object.tolist(), found.start.tolist(), found.stop.tolist(), strict=True)
        specs: list[SampleSpec] = []
        for key, names, extra in self.blanks(rows, firsts):
            parts: list[Part] = []
            for name, (number, start, stop) in zip(names, part, strict=False):
                parts.append(Part(name, *self.object_at(number), start, stop))
            specs.append((key, tuple(parts), extra))
        return specs

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        return np.full(len(rows), self._cutting.length * self._size, np.int64)

    def blocks(self, size: int) -> Rows:
        """The samples at which blocks of about `size` bytes begin, the first being 0. Each is in one file, but for a
        sample that crosses its end.
        """
        runs = np.flatnonzero(np.diff(self._object, prepend=-1)).astype(np.int64)
        firsts = np.unique(self._spans.starts(runs))
        most = min(max(size // (self._cutting.step * self._size), 1), _BLOCK_SAMPLES)
        ends = np.append(firsts[1:], len(self))
        cuts = [np.arange(first, end, most) for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]
        return np.concatenate(cuts)

    def _shard(self, number: int) -> str:
        return self.object_at(number)[0][len(self._ranged.prefix) :]


def _names(count: int) -> tuple[str, ...]:
    return (PART,) if count == 1 else tuple(f"{PART}.{number}" for number in range(count))


def _type_of(documents: SampleIndex) -> np.dtype[Any]:
    """Of all files. Raises InputError: there are several."""
    records = records_of(documents)
    decoders = cast("list[Mapping[str, Any]]", list(records.decoders)) if records is not None else []
    kinds = sorted({one[PART].dtype for one in decoders})
    if len(kinds) != 1:
        told = " and ".join(np.dtype(kind).name for kind in kinds)
        raise InputError(f"holds files of {told} tokens", hint="blocks() of files of one type")
    return np.dtype(kinds[0])


def _runs(documents: SampleIndex, ranged: Ranged, size: int, *, together: bool) -> npt.NDArray[np.int64]:
    """Int64 [runs, 3], mapped: object, first byte, tokens. `together`: neighbours are one run. Made once on a node."""

    def build(folder: Path) -> dict[str, Any]:
        found = list(_found(documents, ranged, together=together))
        runs = np.concatenate([np.empty((0, 3), np.int64), *found])
        runs[:, 2] = (runs[:, 2] - runs[:, 1]) // size
        runs = runs[runs[:, 2] > 0]
        np.save(folder / _FILE, runs)
        return {"runs": len(runs)}

    name = f"runs1-{'files' if together else 'documents'}-{documents.fingerprint}"
    folder, _ = Shelf.of(Settings.load()).get(name, build)
    return np.load(folder / _FILE, mmap_mode="r")


def _found(documents: SampleIndex, ranged: Ranged, *, together: bool) -> Iterator[npt.NDArray[np.int64]]:
    """Object, first byte, and the byte behind the last, of documents or of what several are together."""
    last: npt.NDArray[np.int64] | None = None
    for first in range(0, len(documents), _STEP):
        found = ranged.ranges(np.arange(first, min(first + _STEP, len(documents)), dtype=np.int64))
        some = np.stack([found.object, found.start, found.stop], axis=1)
        if not together:
            yield some
            continue
        some = some if last is None else np.concatenate([last, some])
        new = np.ones(len(some), np.bool_)
        new[1:] = (some[1:, 0] != some[:-1, 0]) | (some[1:, 1] != some[:-1, 2])
        begins = np.flatnonzero(new)
        joined = some[begins]
        joined[:, 2] = some[np.append(begins[1:], len(some)) - 1, 2]
        last = joined[-1:]
        yield joined[:-1]
    if last is not None:
        yield last


@dataclass(frozen=True)
class BlockTokens(TakesColumns):
    """The bytes of blocks as arrays. Pickles; any thread.

    `stored`, `dtype`: of the files, and of the arrays. `length`: of every array; where fewer tokens are there, `pad`
    fills it up.
    """

    stored: str
    dtype: str
    length: int
    pad: int | None

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        """One block: its parts one behind the other. Raises InputError: a token that is not of `dtype`."""
        parts = [np.frombuffer(value, self.stored) for name, value in sample.items() if not name.startswith("__")]
        row = self._typed(parts[0] if len(parts) == 1 else np.concatenate(parts))
        row = row if len(row) == self.length else self._filled([row])[0]
        return {KEY: sample[KEY], PART: row, "__shard__": sample["__shard__"]}

    def columns(self, columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]] | None:
        """Several at once, as the rows of one array. Raises as for one."""
        parts = [values for name, values in columns.items() if not name.startswith("__")]
        if len(parts) > 1:  # they cross the end of a file
            each = [[np.frombuffer(one, self.stored) for one in some] for some in zip(*parts, strict=True)]
            rows: Any = self._filled([self._typed(np.concatenate(some)) for some in each])
            return {KEY: columns[KEY], PART: rows, "__shard__": columns["__shard__"]}
        data = parts[0]
        width = self.length * np.dtype(self.stored).itemsize
        if isinstance(data, Pieces) and data.size() == width:
            rows = self._typed(_matrix(data).view(self.stored))
        elif all(len(one) == width for one in data):
            rows = np.empty((len(data), self.length), self.stored)
            for row, one in zip(rows, data, strict=True):
                row[:] = np.frombuffer(one, self.stored)
            rows = self._typed(rows)
        else:
            rows = self._filled([self._typed(np.frombuffer(one, self.stored)) for one in data])
        return {KEY: columns[KEY], PART: rows, "__shard__": columns["__shard__"]}

    def _typed(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return as_type(rows, np.dtype(self.dtype), PART)

    def _filled(self, rows: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        filled = np.full((len(rows), self.length), self.pad or 0, self.dtype)
        for place, row in enumerate(rows):
            filled[place, : len(row)] = row
        return filled


def _matrix(data: Pieces) -> npt.NDArray[np.uint8]:
    """Pieces of one size as the rows of an array: a view where they lie in even steps."""
    found = data.matrix()
    if found is not None:
        return found
    size = cast("int", data.size())
    everything = np.frombuffer(data.data, np.uint8)
    sliding = np.ndarray((len(everything) - size + 1, size), np.uint8, everything, 0, (1, 1))
    return sliding[data.start]
