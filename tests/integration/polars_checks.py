"""Polars over `headrace://`. Runs in a child: see tests/frameworks_kit.py. The working directory attaches /tables."""

from __future__ import annotations

import fsspec
import polars as pl
import pyarrow.dataset

from tests.frameworks_kit import report


def check_polars() -> None:
    fs = fsspec.filesystem("headrace")
    table = pl.DataFrame({"x": range(1000), "y": [str(row) for row in range(1000)]})
    with fs.open("/tables/t.parquet", "wb") as file:
        table.write_parquet(file)
    with fs.open("/tables/t.parquet") as file:
        assert pl.read_parquet(file, columns=["x"]).equals(table[["x"]])
    lazy = pl.scan_pyarrow_dataset(pyarrow.dataset.dataset("/tables/t.parquet", filesystem=fs))
    assert lazy.filter(pl.col("x") > 997).select("y").collect()["y"].to_list() == ["998", "999"]


if __name__ == "__main__":
    from tests.integration import polars_checks

    report(polars_checks)
