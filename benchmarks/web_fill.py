"""Fills the databases of MLflow and trackio quickly; run by the Python they are installed in, by `web_peers.py`.

    .tools/trackers/bin/python benchmarks/web_fill.py mlflow FILE RUNS METRICS POINTS
    .tools/trackio/bin/python benchmarks/web_fill.py trackio FOLDER RUNS METRICS POINTS

MLflow makes its tables and one run by itself; the others are rows like that run's, its tags among them: MLflow's page
shows "Request error: Cannot read properties of undefined (reading 'some')" when one run of a list has no tag.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
from collections.abc import Iterator

FIRST_MS = 1_700_000_000_000


def values(points: int, seed: int) -> Iterator[float]:
    some = random.Random(seed)
    return (2 / (1 + step / max(1, points / 200)) + some.gauss(0, 0.05) for step in range(points))


def names(metrics: int) -> list[str]:
    return ["loss", *(f"metric-{at}" for at in range(1, metrics))]


def fill_mlflow(path: str, runs: int, metrics: int, points: int) -> None:
    from mlflow.entities import RunTag
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(f"sqlite:///{path}", "mlflow-artifacts:/")
    tags = [
        RunTag("mlflow.user", "ann"),
        RunTag("mlflow.source.name", "train.py"),
        RunTag("mlflow.source.type", "LOCAL"),
    ]
    first = store.create_run("0", "ann", FIRST_MS, tags, "bench").info.run_id
    store._dispose_engine()
    base = sqlite3.connect(path)
    with base:
        _copies(base, first, runs)
        ids = [one for (one,) in base.execute("SELECT run_uuid FROM runs ORDER BY start_time")]
        for at, run in enumerate(ids):
            _measure(base, run, at, metrics, points)
    base.close()


def _copies(base: sqlite3.Connection, first: str, runs: int) -> None:
    for table in ("runs", "tags"):
        cursor = base.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (first,))
        columns = [one[0] for one in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor]
        for row in rows:
            if table == "runs":
                row |= {"status": "FINISHED", "end_time": FIRST_MS + 600_000}
        put = f"INSERT INTO {table} VALUES ({', '.join(':' + one for one in columns)})"
        base.executemany(put, (_copy(row, at) for at in range(1, runs) for row in rows))


def _copy(row: dict[str, object], at: int) -> dict[str, object]:
    more: dict[str, object] = {"run_uuid": f"{at:032x}"}
    if "start_time" in row:
        more |= {
            "name": f"bench-{at}",
            "start_time": FIRST_MS + at * 60_000,
            "end_time": FIRST_MS + at * 60_000 + 600_000,
        }
    elif row["key"] == "mlflow.runName":
        more |= {"value": f"bench-{at}"}
    return {**row, **more}


def _measure(base: sqlite3.Connection, run: str, at: int, metrics: int, points: int) -> None:
    put = "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)"
    base.executemany(put, [("lr", "0.1", run), ("batch", "64", run)])
    for number, name in enumerate(names(metrics)):
        put = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
        last = 0.0
        rows: list[tuple[str, float, int, str, int]] = []
        for step, last in enumerate(values(points, at * 100 + number)):
            rows.append((name, last, FIRST_MS + step * 10, run, step))
        base.executemany(put, rows)
        put = "INSERT INTO latest_metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
        base.execute(put, (name, last, FIRST_MS + points * 10, run, points - 1))


def fill_trackio(folder: str, runs: int, metrics: int, points: int) -> None:
    os.environ["TRACKIO_DIR"] = folder
    from trackio.sqlite_storage import SQLiteStorage

    for at in range(runs):
        columns = [values(points, at * 100 + number) for number in range(metrics)]
        rows = [dict(zip(names(metrics), row, strict=True)) for row in zip(*columns, strict=True)]
        run = f"run-{at:02}"
        SQLiteStorage.bulk_log("bench", run, rows, steps=list(range(points)), run_id=run)


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    {"mlflow": fill_mlflow, "trackio": fill_trackio}[what](where, *(int(one) for one in numbers))
