"""Sorting more rows than memory should hold: sorted runs on disk, merged range by range.

Rows that arrive in order (the usual case) pass through; nothing is sorted, and up to one run nothing touches the disk.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator

from headrace.base.arrow import Batch, Column, Table, pa, pc

RUN_ROWS = 1 << 19
"""Rows of a run, which is sorted in memory."""
BATCH_ROWS = 1 << 16  # rows handed on at a time, and between the places at which runs may be cut


def is_sorted(column: Column) -> bool:
    """Whether values never fall (UTF-8 byte order, which is also Python's order of `str`)."""
    return len(column) < 2 or not pc.any(pc.greater(column[:-1], column[1:])).as_py()


def sort_batches(
    batches: Iterable[Batch], by: str, *, folder: str, run_rows: int = RUN_ROWS
) -> Iterator[Batch]:
    """The same rows, ascending by string column `by`; rows with equal values keep the order they came in.

    Runs of `run_rows` wait in `folder` while this iterates; each file is unlinked as soon as it is mapped.
    """
    runs: list[Table] = []
    last: Table | None = None
    for table in _gather(batches, run_rows):
        if last is not None:
            runs.append(_park(last, folder))
        last = table if is_sorted(table[by]) else table.take(pc.sort_indices(table[by]))
    if last is not None:
        runs.append(last.combine_chunks())
    if all(a[by][-1].as_py() <= b[by][0].as_py() for a, b in itertools.pairwise(runs)):
        for run in runs:
            yield from run.to_batches(max_chunksize=BATCH_ROWS)
        return
    yield from _merge(runs, by)


def _gather(batches: Iterable[Batch], rows: int) -> Iterator[Table]:
    held: list[Batch] = []
    count = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _park(table: Table, folder: str) -> Table:
    """The table as one memory-mapped record batch in an unlinked file."""
    handle, path = tempfile.mkstemp(prefix="run-", dir=folder)
    try:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        return pa.ipc.open_file(pa.memory_map(path)).read_all()
    finally:
        os.close(handle)
        os.unlink(path)


def _merge(runs: list[Table], by: str) -> Iterator[Batch]:
    """Cut all runs at common values, so that each cut of all runs together fits in memory, and sort each cut."""
    samples = sorted(run[by][i].as_py() for run in runs for i in range(0, run.num_rows, BATCH_ROWS // 4))
    step = max(1, 4 * RUN_ROWS // BATCH_ROWS)
    cuts = list(dict.fromkeys(samples[step::step]))
    done = [0] * len(runs)
    for cut in [*cuts, None]:
        stops = [run.num_rows if cut is None else _lower_bound(run[by], cut) for run in runs]
        part = pa.concat_tables([run.slice(a, b - a) for run, a, b in zip(runs, done, stops, strict=True)])
        done = stops
        if part.num_rows:
            # Arrow's sort is stable, and runs are concatenated in the order they came.
            ordered = part.take(pc.sort_indices(part[by])).combine_chunks()
            yield from ordered.to_batches(max_chunksize=BATCH_ROWS)


def _lower_bound(column: Column, value: str) -> int:
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        if column[middle].as_py() < value:
            low = middle + 1
        else:
            high = middle
    return low
