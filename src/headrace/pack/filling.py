"""Filling one shard: from its samples, one after the other, or from lines of text, many at once."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.base.arrow import from_flags, from_texts, pa
from headrace.base.errors import BadSampleError, InputError, TryAgainError
from headrace.base.progress import Progress
from headrace.base.where import Where
from headrace.fetch import Fetcher
from headrace.formats import records_of, shard_format_of
from headrace.loader import Dataset, Loader, Skip, Skipped
from headrace.pack.budget import Budget
from headrace.pack.journal import LeftOut
from headrace.pack.layouts import Sink
from headrace.pack.plan import name_by_shard
from headrace.pack.rows import CsvRows, JsonRows, TextRows
from headrace.pack.schema import KEY_COLUMN, Schema

_CHUNK_BYTES = 4 << 20  # bytes of lines parsed together
_CHUNK_ROWS = 1 << 13  # lines parsed together, at most: what they become takes memory, too
_DROPPED = object()


@dataclasses.dataclass(frozen=True, eq=False)
class Means:
    """What filling needs beside the samples. Any thread."""

    threads: int
    """For the user's function, in each shard."""
    prefetch: int
    """Bytes read ahead, in each shard."""
    budget: Budget
    fetcher: Fetcher
    stop: threading.Event
    progress: Progress

    def loader(self, dataset: Dataset) -> Loader:
        """The samples, with what is bad among them left out where the budget allows for any."""
        # The loader counts for itself what is bad in one shard; what counts is the sum, which the budget keeps.
        skip = Skip(max_rate=1.0) if self.budget.allowed else None
        return dataclasses.replace(dataset, skip=skip).loader(prefetch=self.prefetch, fetcher=self.fetcher)


@dataclasses.dataclass
class Tally:
    """What became of a shard's samples. One thread."""

    samples: int = 0
    dropped: int = 0
    left_out: list[Skipped] = dataclasses.field(default_factory=list[Skipped])


class Filler:
    """Fills shards sample by sample. Any thread, each a shard of its own.

    `function`: the user's, or None; `where`: what decides over samples that have been read, or None.
    """

    def __init__(self, means: Means, function: Callable[[Any], Any] | None, where: Where | None) -> None:
        self._means, self._function = means, function
        self._where = None if where is None or where.planned else where

    def fill(self, sink: Sink, dataset: Dataset) -> Tally:
        """Write the samples.

        Raises:
            BadSampleError: too many are bad. TryAgainError: also when stopped. What reading and writing raise.
        """
        tally, keys, seen = Tally(), set[str](), 0
        with self._means.loader(self.dataset(dataset)) as loader:
            for sample in loader:
                if self._means.stop.is_set():
                    raise TryAgainError("stopped")
                if sample is _DROPPED:
                    tally.dropped += 1
                    self._means.progress.advance(1, 0)
                else:
                    self._add(sink, sample, keys, tally)
                seen = _enter(self._means.budget, loader, seen, tally)
            _enter(self._means.budget, loader, seen, tally)
        tally.left_out.sort(key=lambda one: one.key)
        return tally

    def dataset(self, dataset: Dataset) -> Dataset:
        """The samples after `where` and the function; what `where` does not keep is `_DROPPED`."""
        if self._where is not None:
            where = self._where

            def chosen(sample: Any) -> Any:
                return sample if where.keeps(scope_of(sample)) else _DROPPED

            chosen.__qualname__ = "where"
            dataset = dataset.map(chosen, threads=self._means.threads)
        if self._function is not None:
            function = self._function if self._where is None else _kept_only(self._function)
            dataset = dataset.map(function, threads=self._means.threads)
        return dataset

    def first(self, dataset: Dataset) -> Iterator[Any]:
        """Samples as they will be packed; bad ones are left out as far as the budget allows any."""
        with self._means.loader(self.dataset(dataset)) as loader:
            for sample in loader:
                if sample is not _DROPPED:
                    yield sample

    def _add(self, sink: Sink, sample: Any, keys: set[str], tally: Tally) -> None:
        try:
            prepared = sink.prepare(sample)
            refuse_twin(sample["__key__"], keys)
        except BadSampleError as error:
            if not self._means.budget.allowed:
                raise
            left_out(self._means.budget, tally, Skipped(error.path or str(sample)[:200], "pack", error.reason))
            return
        before = sink.size
        sink.put(prepared)
        tally.samples += 1
        self._means.progress.advance(1, sink.size - before)


class TextFiller:
    """Fills shards from lines of CSV or JSON, as columns. Any thread, each a shard of its own.

    `keyed`: whether lines have keys of their own, which then are a column in front (`Schema.keyed`).

    Raises:
        InputError: the columns do not go with the source.
    """

    def __init__(self, means: Means, schema: Schema, where: Where | None, dataset: Dataset) -> None:
        self._means, self._schema = means, schema
        self._where = None if where is None or where.planned else where
        self._rows, self._kind_of = _parsers(schema, dataset)
        self._decode = records_of(dataset.leaves[0].index)
        self.keyed = self._decode is not None and self._decode.keyed

    def fill(self, sink: Sink, dataset: Dataset) -> Tally:
        """See `Filler.fill`."""
        tally, seen, twins = Tally(), 0, set[str]()
        leaves = tuple(dataclasses.replace(leaf, stages=()) for leaf in dataset.leaves)
        raw = dataclasses.replace(dataset, leaves=leaves, stages=())
        with self._means.loader(raw.batch(_at_once(raw))) as loader:
            for batch in loader:
                if self._means.stop.is_set():
                    raise TryAgainError("stopped")
                for start, stop in self._runs(batch["__shard__"]):
                    self._add(sink, {name: values[start:stop] for name, values in batch.items()}, tally, twins)
                seen = _enter(self._means.budget, loader, seen, tally)
            _enter(self._means.budget, loader, seen, tally)
        return tally

    def _add(self, sink: Sink, batch: Mapping[str, Sequence[Any]], tally: Tally, twins: set[str]) -> None:
        """Lines of one kind of header. `twins`: keys that the shard has already."""
        keys, shards, count = batch["__key__"], batch["__shard__"], len(batch["__key__"])
        before = sink.size
        table, bad = self._parser(shards[0]).parse(batch["data"])
        places = {one.place for one in bad}
        good = [place for place in range(count) if place not in places]
        left = [_named(shards[one.place], keys[one.place], one.reason) for one in bad]
        if good and (self._where is not None or self.keyed):
            flags: list[bool | None] = []
            whole = [self._key(shards[one], keys[one], batch["data"][one]) for one in good]
            scopes = self._scopes(table, whole, [shards[one] for one in good])
            for place, scope in zip(good, scopes, strict=True):
                try:
                    flags.append(self._kept(scope, twins))
                except BadSampleError as error:
                    flags.append(None)
                    left.append(_named(shards[place], keys[place], error.reason))
            tally.dropped += flags.count(False)
            if self.keyed:
                field = pa.field(KEY_COLUMN.name, KEY_COLUMN.arrow, nullable=False)
                table = table.add_column(0, field, [from_texts(whole)])
            table = table.filter(from_flags(_bools(flags)))
        if left:
            if not self._means.budget.allowed:
                raise BadSampleError(left[0].reason, path=f"{left[0].shard}: record {left[0].record}")
            tally.left_out += left
            self._means.budget.spend(left)
        sink.put_table(table)
        tally.samples += table.num_rows
        self._means.progress.advance(count, sink.size - before)

    def _kept(self, scope: Mapping[str, Any], twins: set[str]) -> bool:
        """Raises BadSampleError: `where` cannot tell, or the shard has a line of this key."""
        if self._where is not None and not self._where.keeps(scope):
            return False
        if self.keyed:
            refuse_twin(scope["key"], twins)
        return True

    def _key(self, shard: str, number: str, line: memoryview) -> str:
        """A good line's key: its own, or its number in its shard."""
        sample = name_by_shard({"__key__": number, "__shard__": shard, "data": line})
        return (self._decode(sample) if self._decode is not None and self.keyed else sample)["__key__"]

    def _scopes(self, table: Any, keys: list[str], shards: list[str]) -> Iterator[dict[str, Any]]:
        names = tuple(field.name for field in self._schema.fields)
        wanted = () if self._where is None else self._where.names
        columns = {name: table.column(name).to_pylist() for name in wanted if name in names}
        for place, (key, shard) in enumerate(zip(keys, shards, strict=True)):
            row = {name: values[place] for name, values in columns.items()}
            yield {"key": key, "parts": names, "shard": shard, **row}

    def _parser(self, shard: str) -> TextRows:
        return self._rows[self._kind_of.get(shard, 0)]

    def _runs(self, shards: Sequence[str]) -> Iterator[tuple[int, int]]:
        if len(self._rows) == 1:
            yield 0, len(shards)
            return
        kinds = [self._kind_of[shard] for shard in shards]
        start = 0
        for stop in range(1, len(kinds) + 1):
            if stop == len(kinds) or kinds[stop] != kinds[start]:
                yield start, stop
                start = stop


def scope_of(sample: Any) -> dict[str, Any]:
    """What an expression sees of a sample that has been read. Raises BadSampleError."""
    if not isinstance(sample, Mapping):
        raise BadSampleError(f"--where: not a sample but {type(sample).__name__}")
    fields: dict[str, Any] = {str(name): value for name, value in sample.items() if not str(name).startswith("__")}
    size = sum(memoryview(one).nbytes for one in fields.values() if isinstance(one, (bytes, bytearray, memoryview)))
    own = {"key": sample["__key__"], "size": size, "parts": tuple(fields), "shard": sample.get("__shard__", "")}
    return {**fields, **own}


def is_text(dataset: Dataset) -> bool:
    """Whether its samples are lines of CSV or JSON."""
    fmt = shard_format_of(dataset.leaves[0].index)
    return fmt is not None and fmt.name in ("csv", "jsonl")


def _parsers(schema: Schema, dataset: Dataset) -> tuple[list[TextRows], Mapping[str, int]]:
    fmt, records = shard_format_of(dataset.leaves[0].index), records_of(dataset.leaves[0].index)
    if records is None or (fmt is not None and fmt.name == "jsonl"):
        return [JsonRows(schema)], {}
    kinds: list[Any] = list(records.decoders)
    of_kind = {kind: shard for shard, kind in reversed(list(records.kind_of.items()))}
    parsers = [CsvRows(schema, kind.columns, of_kind.get(number, "the header")) for number, kind in enumerate(kinds)]
    if len(parsers) > 1 and not all(one.by_name for one in parsers):
        raise InputError(
            "its headers differ, and columns are taken by their place",
            path=of_kind[1],
            hint="name columns as the headers do: label:i64, x:f32",
        )
    return list(parsers), records.kind_of


def _named(shard: str, key: str, reason: str) -> LeftOut:
    record = int(key) if key.isdecimal() else None
    return LeftOut(f"{shard}: record {key}", "columns", reason, shard=shard, record=record)


def refuse_twin(key: str, keys: set[str]) -> None:
    """Note `key` among those that a shard has. Raises BadSampleError if it has it already."""
    if key in keys:
        raise BadSampleError(
            "the shard has a sample of this key already",
            path=key,
            hint="readers would take the two for one: give each a __key__ of its own by --map",
        )
    keys.add(key)


def left_out(budget: Budget, tally: Tally, bad: Skipped) -> None:
    """Enter one that is left out. Raises BadSampleError: one too many."""
    tally.left_out.append(bad)
    budget.spend([bad])


def _enter(budget: Budget, loader: Loader, seen: int, tally: Tally) -> int:
    """Enter what the loader has left out since it had left out `seen`; how many these are now."""
    new = loader.ledger[seen:]
    if new:
        tally.left_out += new
        budget.spend(new)
    return seen + len(new)


def _kept_only(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(function, updated=())
    def kept_only(sample: Any) -> Any:
        return sample if sample is _DROPPED else function(sample)

    return kept_only


def _at_once(dataset: Dataset) -> int:
    """Lines parsed together: about 4 MB of them, going by the first ones. The same in every run."""
    positions = np.arange(min(256, len(dataset)), dtype=np.int64)
    sizes = dataset.leaves[0].index.sizes(dataset.stream.locate(0, positions)[1])
    return max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // max(1, int(sizes.max()))))


def _bools(flags: list[bool | None]) -> Any:
    return np.array([bool(flag) for flag in flags], np.bool_)
