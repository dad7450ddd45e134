"""headrace over three columns of Parquet files: ``as`` is ``tables`` (of Arrow) or ``arrays`` (the loader's batches).

Counted as for pyarrow: whole passes, the data set opened anew in each (footers are kept on the node, as always).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace import Dataset
from job import BUCKET, Job, Result
from packed import PROJECTED
from peers.parquet_scan import BATCH, passes


def run(job: Job) -> Result:
    return passes(job, _tables if job.options["as"] == "tables" else _arrays)


def _open(job: Job) -> Any:
    where = f"file://{job.root}/bench" if job.options.get("local") else f"s3://{BUCKET}"
    return Dataset.open(f"{where}/columns/", columns=list(PROJECTED)).batch(BATCH)


def _tables(job: Job) -> Iterator[tuple[int, int]]:
    for table in _open(job).to_arrow().loader():
        yield table.num_rows, table.nbytes


def _arrays(job: Job) -> Iterator[tuple[int, int]]:
    for batch in _open(job).loader():
        yield len(batch["label"]), sum(batch[name].nbytes for name in PROJECTED)
