"""A run's metrics, read back from the store: its segments in their order, and each metric as arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.base.errors import CorruptError, HeadraceError, NotFoundError, UnsupportedError
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.store.protocol import Store
from headrace.tracking.arrow import Table, as_schema, pa, pq, texts, to_array, to_valid
from headrace.tracking.points import SCHEMA, table
from headrace.tracking.rollups import rollups
from headrace.tracking.segments import FORMAT, SEGMENT
from headrace.tracking.summary import OURS


@dataclass(frozen=True, slots=True)
class MetricsRead:
    """What was read. `table`: columns as in `headrace.tracking.points`, segments in their order.

    `last`: number of the last segment read, or what was given as `after`. `missing`: numbers below it that were not
    there: segments are sent several at a time, so a later one may be there first.
    """

    table: Table
    last: int
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one rank, in the order of its steps, then of its times. Arrays of one length, at least 1.

    `times`: datetime64[us], UTC; `steps`: float64, NaN where none was given (these come last); `values`: float64.
    """

    name: str
    times: NDArray[np.datetime64] = field(repr=False)
    steps: NDArray[np.float64] = field(repr=False)
    values: NDArray[np.float64] = field(repr=False)

    def last(self) -> float:
        """The value at the end."""
        return float(self.values[-1])

    @property
    def min(self) -> float:
        """Of all values but NaN; NaN if there is no other."""
        return float(np.fmin.reduce(self.values))

    @property
    def max(self) -> float:
        """Of all values but NaN; NaN if there is no other."""
        return float(np.fmax.reduce(self.values))


def read_metrics(
    store: Store, prefix: str, *, names: Collection[str] = (), after: int = -1, again: Collection[int] = ()
) -> MetricsRead:
    """The segments below `prefix` (``runs/<id>/metrics/``), eight at a time: one GET each, but for those that a rollup
    holds. Two listings; one to read on.

    `names`: only metrics of these names, or shell patterns (``train/*``). To read on: `after` the `last`, and `again`
    the `missing` of what was read before. Any thread.

    Raises:
        CorruptError: a segment is damaged. UnsupportedError: a later version wrote it. And as `Store.list` and `get`.
    """
    rolled = [] if after >= 0 or again else rollups(store, prefix)
    after = rolled[-1].last if rolled else after
    found = _listed(store, prefix, after, again)
    reads = [partial(one.read, names) for one in rolled]
    reads += [partial(_read, store, names, found[number]) for number in sorted(found)]
    last = max([after, *found])
    missing = {*range(after + 1, last), *again} - found.keys()
    return MetricsRead(pa.concat_tables([table(()), *_read_all(reads)]), last, tuple(sorted(missing)))


class SegmentReader:
    """The segments of a run, each once, as they come: they are numbered and never change. One thread.

    The first `poll` lists. Later ones ask for the next number until it is not there: one GET when nothing is new. Every
    twelfth lists what comes after, as numbers may be left out for good.

    Args:
        store, prefix, names: as `read_metrics`.
        after, missing: where it begins, as `MetricsRead` has it, which has listed then; None: it has not.
    """

    _LISTED_EVERY = 12
    _GIVEN_UP: Final = 360
    """Numbers so far behind the last do not come any more."""

    def __init__(
        self, store: Store, prefix: str, names: Collection[str] = (), *, after: int = -1,
        missing: Collection[int] | None = None,
    ) -> None:
        self._store, self._prefix, self._names = store, prefix, names
        self.last, self.missing = after, tuple(missing or ())
        self._listed: dict[int, str] = {}
        self._polls = 0 if missing is None else 1

    def poll(self, most: int | None = None) -> dict[int, Table]:
        """New ones by number, in order. `most`: so many at once; the next call goes on. Raises as `read_metrics`."""
        if not self._listed:
            self._polls += 1
            if self._polls % self._LISTED_EVERY != 1:
                return self._asked()
            self._listed = _listed(self._store, self._prefix, self.last, self.missing)
        numbers = sorted(self._listed)[:most]
        try:
            tables = _read_all([partial(_read, self._store, self._names, self._listed[number]) for number in numbers])
        except HeadraceError:  # what is damaged may be deleted, as people are told: the next call lists again
            self._listed, self._polls = {}, 0
            raise
        self._note(numbers)
        for number in numbers:
            del self._listed[number]
        return dict(zip(numbers, tables, strict=True))

    def _asked(self) -> dict[int, Table]:
        """Each number that was missing, and those that are next."""
        found = {number: one for number in self.missing if (one := self._get(number)) is not None}
        number = self.last + 1
        while (one := self._get(number)) is not None:
            found[number] = one
            number += 1
        self._note(found)
        return dict(sorted(found.items()))

    def _get(self, number: int) -> Table | None:
        try:
            return _read(self._store, self._names, f"{self._prefix}{number:08d}.parquet")
        except NotFoundError:
            return None

    def _note(self, found: Collection[int]) -> None:
        last = max([self.last, *found])
        missing = {*self.missing, *range(self.last + 1, last)} - set(found)
        self.last = last
        self.missing = tuple(sorted(number for number in missing if number > last - self._GIVEN_UP))


class MetricsReader:
    """A run's metrics, read on as more comes. One thread.

    Args:
        store: of the run.
        prefix: of its metrics: ``runs/<id>/metrics/``.
        names: only metrics of these names, or shell patterns (``train/*``).
    """

    def __init__(self, store: Store, prefix: str, names: Collection[str] = ()) -> None:
        self._store, self._prefix, self._names = store, prefix, names
        self._table = table(())
        self._segments: SegmentReader | None = None

    def poll(self) -> Table:
        """All points there are. Raises as `read_metrics`."""
        if self._segments is None:
            read = read_metrics(self._store, self._prefix, names=self._names)
            self._table, last, missing = read.table, read.last, read.missing
            self._segments = SegmentReader(self._store, self._prefix, self._names, after=last, missing=missing)
        elif new := self._segments.poll():
            self._table = pa.concat_tables([self._table, *new.values()])
        return self._table

    def series(self, *, rank: int | None = None, own: bool = False) -> dict[str, Series]:
        """Each metric as it is by now: `series` of `poll`. Raises as `read_metrics`."""
        return series(self.poll(), rank=rank, own=own)


def _listed(store: Store, prefix: str, after: int, again: Collection[int]) -> dict[int, str]:
    """Keys of segments by number: those after `after`, and `again`."""
    first = min([after, *(number - 1 for number in again)])
    start = f"{prefix}{first:08d}.parquet" if first >= 0 else None
    found: dict[int, str] = {}
    for page in store.list(prefix, start_after=start):
        for info in page:
            match = SEGMENT.fullmatch(info.key[len(prefix) :])
            if match and (int(match[1]) > after or int(match[1]) in again):
                found[int(match[1])] = info.key
    return found


def read_segments(store: Store, prefix: str, *, after: int = -1) -> Iterator[tuple[int, Table]]:
    """The same one by one, in their order: number and points of each segment that is there. Any thread.

    Raises as `read_metrics`.
    """
    found = _listed(store, prefix, after, ())
    for number in sorted(found):
        yield number, _read(store, (), found[number])


def series(points: Table, *, rank: int | None = None, own: bool = False) -> dict[str, Series]:
    """Each metric of a table of points, by name. `rank`: whose; None: of each metric, the lowest that logged it.
    `own`: only what the job logged itself, nothing of the machine, its processes and headrace.
    """
    if not points.num_rows:
        return {}
    whole = points.unify_dictionaries().combine_chunks()
    time, step, ranked, coded, value = (whole.column(name).chunk(0) for name in SCHEMA.names)
    names: list[str] = coded.dictionary.to_pylist()
    codes, ranks = to_array(coded.indices, np.int32), to_array(ranked, np.int32)
    times, values = to_array(time, "datetime64[us]"), to_array(value, np.float64)
    steps = np.where(to_valid(step), to_array(step, np.int64).astype(np.float64), np.nan)
    order = np.lexsort((times, steps, ranks, codes))  # sorts NaN last
    bounds = np.flatnonzero(np.diff(codes[order], prepend=-1))
    found: dict[str, Series] = {}
    for rows in np.split(order, bounds[1:]):
        name, wanted = names[codes[rows[0]]], ranks[rows[0]] if rank is None else rank
        if own and name.startswith(OURS):
            continue
        if (rows := rows[ranks[rows] == wanted]).size:
            found[name] = Series(name, times[rows], steps[rows], values[rows])
    return dict(sorted(found.items()))


def _read_all(reads: Sequence[Callable[[], Table]]) -> list[Table]:
    if len(reads) < 2:
        return [read() for read in reads]
    pool = Threads(REQUESTS_AT_ONCE, "headrace-metrics")
    try:
        return [one.result() for one in [pool.submit(read) for read in reads]]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _read(store: Store, names: Collection[str], key: str) -> Table:
    where = f"{store.url}/{key}"
    blob = store.get(key)
    try:
        file = pq.ParquetFile(pa.BufferReader(blob.data), page_checksum_verification=True)
        _check(file.metadata.metadata or {}, where)
        read = as_schema(file.read(use_threads=False), SCHEMA)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        hint = "delete it to read the rest of the run"
        raise CorruptError(f"is no segment of metrics: {error}", path=where, hint=hint) from error
    return _named(read, names) if names else read


def _check(told: Mapping[bytes, bytes], where: str) -> None:
    """Raises ValueError, UnsupportedError."""
    found = told.get(b"headrace.format")
    if found is None:
        raise ValueError("it does not say headrace.format")
    if int(found) > FORMAT:
        reason = f"is a segment of format {int(found)}; this version reads up to {FORMAT}"
        raise UnsupportedError(reason, path=where, hint="update headrace")


def _named(points: Table, patterns: Collection[str]) -> Table:
    import pyarrow.compute  # not with the room: it takes a tenth of a second, and every run would pay

    pc: Any = pyarrow.compute
    known = pc.unique(pc.cast(points.column("name"), pa.string())).to_pylist()
    wanted = [name for name in known if any(name == one or fnmatchcase(name, one) for one in patterns)]
    return points.filter(pc.is_in(pc.cast(points.column("name"), pa.string()), value_set=texts(wanted)))
