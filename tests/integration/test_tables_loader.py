"""Rows of tables through the loader: by columns and row by row the same batches; exactly once; resume."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import InputError
from headrace.formats.tables.table_samples import as_table
from headrace.store import open_store
from tests.standins import ended_by_closing

FILES, EACH = 3, 110
TOTAL = FILES * EACH


def rows(first: int, count: int) -> pa.Table:
    """Every kind of column that batches treat differently."""
    n = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(n, pa.int64()),
            "small": pa.array([i % 120 for i in n], pa.int8()),
            "gaps": pa.array([None if 50 < i < 90 and i % 3 else i for i in n], pa.int32()),
            "float": pa.array([None if i % 7 == 0 else i / 2 for i in n], pa.float32()),
            "flag": pa.array([i % 3 == 0 for i in n]),
            "maybe": pa.array([None if i % 50 == 0 else i % 3 == 0 for i in n]),
            "text": [f"é{i}" if i % 4 else None for i in n],
            "raw": [bytes([i % 256]) * (i % 3) for i in n],
            "kind": pa.array([f"k{i % 5}" for i in n]).dictionary_encode(),
            "when": pa.array([None if i % 9 == 0 else i * 1_000_000 for i in n], pa.timestamp("us")),
            "day": pa.array(list(n), pa.int32()).cast(pa.date32()),
            "pair": pa.array([[i, -i] for i in n], pa.list_(pa.int16(), 2)),
            "list": pa.array([[float(i)] * (1 if i < 150 else i % 4) for i in n], pa.list_(pa.float64())),
            "holes": pa.array([None if i % 11 == 0 else [i, None] if i % 5 == 0 else [i, i] for i in n]),
            "struct": [{"a": i, "b": str(i)} for i in n],
        }
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """URLs of the same rows in both kinds of files, several row groups each; the last ones are short. As files, which
    are read where they lie, and ``far-…`` in a store, which is read through `headrace.fetch`.
    """
    root = tmp_path_factory.mktemp("tables")
    for kind in ("parquet", "arrow"):
        (root / kind).mkdir()
    for number in range(FILES):
        table = rows(number * EACH, EACH)
        pq.write_table(table, root / "parquet" / f"part-{number}.parquet", row_group_size=40 + number)
        pyarrow.feather.write_feather(table, str(root / "arrow" / f"part-{number}.feather"), chunksize=40 + number)
    store = open_store(f"memory://{root.name}-{os.getpid()}")
    for path in sorted(root.glob("*/*")):
        store.put(str(path.relative_to(root)), path.read_bytes())
    near = {kind: (root / kind).as_uri() for kind in ("parquet", "arrow")}
    return near | {f"far-{kind}": f"{store.url}/{kind}" for kind in near}


def plain(value: Any) -> Any:
    """What two batches are compared by: types, shapes and values, NaN equal to NaN."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), [plain(one) for one in value] if value.dtype.kind in "fmM" else value.tolist()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, np.generic):
        return str(value.dtype), str(value)
    if isinstance(value, (list, tuple)) or type(value).__name__ in ("Keys", "Files"):
        return [plain(one) for one in value]
    return value


def same(sample: Any) -> Any:
    return sample


def order_of(ds: hr.Dataset, case: dict[str, Any]) -> hr.Dataset:
    if case["take"]:
        ds = ds.take(case["take"])
    if case["shuffle"] == "global":
        ds = ds.shuffle(case["seed"])
    if case["repeat"] > 1:
        ds = ds.repeat(case["repeat"])
    return ds.shard(case["rank"], case["world"])


def opened(url: str, case: dict[str, Any]) -> hr.Dataset:
    ds = hr.Dataset.open(url, format=case["format"], columns=case["columns"], where=case["where"])
    if case["shuffle"] == "blocked":
        ds = ds.shuffle(case["seed"], block="3kB")
    return order_of(ds, case)


cases = st.fixed_dictionaries(
    {
        "place": st.sampled_from(["", "far-"]),
        "format": st.sampled_from(["parquet", "arrow"]),
        "columns": st.sampled_from([None, ["n"], ["text", "list"], ["gaps", "struct", "when"]]),
        "where": st.sampled_from([None, [("n", ">=", 60), ("small", "<", 77)], [[("n", "<", 20)], [("n", ">", 310)]]]),
        "shuffle": st.sampled_from(["", "global", "blocked"]),
        "seed": st.integers(0, 5),
        "take": st.sampled_from([0, 0, 33, 250]),
        "repeat": st.sampled_from([1, 1, 2]),
        "batch": st.sampled_from([1, 7, 64, 1000]),
        "drop_last": st.booleans(),
        "world": st.sampled_from([1, 1, 2, 3]),
        "prefetch": st.sampled_from(["512MB", "20kB", 1]),
        "stop": st.integers(0, 9),
    }
).map(lambda case: {**case, "rank": case["seed"] % case["world"], "take": 0 if case["where"] else case["take"]})


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases)
def test_by_columns_and_row_by_row_batches_and_states_are_the_same(
    places: dict[str, str], case: dict[str, Any]
) -> None:
    ds = opened(places[case["place"] + case["format"]], case)
    by_column = ds.batch(case["batch"], drop_last=case["drop_last"])
    by_row = ds.map(same).batch(case["batch"], drop_last=case["drop_last"])
    found, states = everything(by_column.loader(prefetch=case["prefetch"]))
    wanted, wanted_states = everything(by_row.loader(prefetch=case["prefetch"]))
    assert found == wanted
    assert states == wanted_states
    if case["stop"] < len(states):  # a state of one path continues on the other
        for one, other in ((by_column, by_row), (by_row, by_column)):
            assert resumed(one, other, case["stop"]) == wanted[case["stop"] + 1 :]
    tables, table_states = everything(by_column.to_arrow().loader(prefetch=case["prefetch"]))
    assert table_states == states
    first = as_table(by_column.leaves[0].index).scheme.columns[0]
    numbers = [table.column(first).to_pylist() for table in tables]
    assert [len(one) for one in numbers] == [len(batch["__key__"]) for batch in wanted]


def everything(loader: Any) -> tuple[list[Any], list[Any]]:
    with contextlib.closing(loader):
        found = [(plain(batch), loader.state_dict()) for batch in loader]
    return [batch for batch, _ in found], [state for _, state in found]


def resumed(before: hr.Dataset, after: hr.Dataset, stop: int) -> list[Any]:
    with contextlib.closing(before.loader()) as loader:
        for _ in itertools.islice(loader, stop + 1):
            pass
        state = json.loads(json.dumps(loader.state_dict()))
    with contextlib.closing(after.loader()) as loader:
        loader.load_state_dict(state)
        return [plain(batch) for batch in loader]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("block", [None, "2kB"])
@pytest.mark.parametrize("columnar", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_a_resume_on_other_ranks_sees_exactly_what_is_left(
    places: dict[str, str], form: str, block: str | None, columnar: bool, before: int, after: int
) -> None:
    where = [("n", "not in", [5, 6, 200])]
    ds = hr.Dataset.open(places[form], format=form, columns=["n"], where=where).shuffle(3, block=block)
    ds = (ds if columnar else ds.map(same)).batch(9)
    seen: list[int] = []
    states: list[Any] = []
    for rank in range(before):
        with contextlib.closing(ds.shard(rank, before).loader()) as loader:
            for batch in itertools.islice(loader, 2 + rank):
                seen += batch["n"].tolist()
            states.append(json.loads(json.dumps(loader.state_dict())))
    for rank in range(after):
        with contextlib.closing(ds.shard(rank, after).loader()) as loader:
            loader.load_state_dict(states)
            seen += [n for batch in loader for n in batch["n"].tolist()]
            assert loader.epoch == 1
    assert sorted(seen) == sorted(set(range(TOTAL)) - {5, 6, 200})


def test_a_state_of_overtaken_rows_continues_by_columns(places: dict[str, str]) -> None:
    ds = hr.Dataset.open(places["parquet"], columns=["n"]).shuffle(1)
    with contextlib.closing(ds.map(same).batch(10).loader(order="window", window=64)) as loader:
        seen = [n for batch in itertools.islice(loader, 5) for n in batch["n"].tolist()]
        state = loader.state_dict()
        state["ahead"][0] = sorted({*state["ahead"][0], state["frontiers"][0] + 3, state["frontiers"][0] + 4})
    found = []
    for one in (ds.batch(10), ds.map(same).batch(10)):
        with contextlib.closing(one.loader()) as loader:
            loader.load_state_dict(state)
            found.append([(batch["n"].tolist(), loader.state_dict()) for batch in loader])
    assert found[0] == found[1]
    assert len(seen) + sum(len(batch) for batch, _ in found[0]) <= TOTAL


def test_two_epochs_differ_and_each_has_every_row(places: dict[str, str]) -> None:
    with contextlib.closing(hr.Dataset.open(places["parquet"]).shuffle(7).batch(32).loader()) as loader:
        first, second = ([n for batch in loader for n in batch["n"].tolist()] for _ in range(2))
        stats = loader.stats()
    assert sorted(first) == sorted(second) == list(range(TOTAL))
    assert first != second
    assert (stats.samples, stats.batches) == (TOTAL, -(-TOTAL // 32))
    assert stats.held_bytes == 0
    assert stats.bytes > 0


def test_leaving_early_leaves_no_threads(places: dict[str, str]) -> None:
    loader = hr.Dataset.open(places["parquet"]).batch(3).loader(prefetch=1)
    next(iter(loader))
    loader.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-loader")]


def test_of_a_row_group_of_many_batches_each_is_made_when_it_is_asked_for(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": np.arange(2_000_000)}), tmp_path / "one.parquet")
    dataset = hr.Dataset.open(str(tmp_path)).batch(2)
    before = pa.total_allocated_bytes()
    gc.disable()
    try:
        with contextlib.closing(dataset.loader()) as loader:
            epoch = iter(loader)
            assert [next(epoch)["n"].tolist() for _ in range(500)] == [[at, at + 1] for at in range(0, 1000, 2)]
            assert pa.total_allocated_bytes() > before + 10_000_000
        assert pa.total_allocated_bytes() < before + 1_000_000, "let go when closed, not when garbage is collected"
    finally:
        gc.enable()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace-loader")]


def test_closed_or_begun_anew_is_no_end_of_the_data(places: dict[str, str]) -> None:
    loader = hr.Dataset.open(places["parquet"]).repeat().batch(3).loader(prefetch=1)
    assert ended_by_closing(loader) == "the loader was closed before this epoch ended"
    with pytest.raises(InputError, match="another iteration of this loader began"):
        list(zip(loader, loader, strict=True))
    loader.close()


def test_a_child_process_reads_by_columns_too(places: dict[str, str]) -> None:
    ds = hr.Dataset.open(places["parquet"], where=[("n", "<", 99)]).batch(20)
    with contextlib.closing(ds.loader(where="process")) as child, contextlib.closing(ds.loader()) as here:
        assert [plain(batch) for batch in child] == [plain(batch) for batch in here]
    with pytest.raises(InputError, match="to_arrow"):
        ds.to_arrow().loader(where="process")


def test_windows_cross_no_file(places: dict[str, str]) -> None:
    found = [sample["n"] for sample in hr.Dataset.open(places["parquet"], columns=["n"]).windows(4).loader()]
    assert len(found) == FILES * (EACH - 3)
    assert all([int(n) for n in one] == list(range(one[0], one[0] + 4)) for one in found)


def test_to_arrow_is_refused_where_single_rows_are_seen(places: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("x")
    ds = hr.Dataset.open(places["parquet"])
    for wrong in (
        lambda: ds.to_arrow(),
        lambda: ds.map(same).batch(2).to_arrow(),
        lambda: ds.filter(bool).batch(2).to_arrow(),
        lambda: ds.windows(2).batch(2).to_arrow(),
        lambda: hr.Dataset.mix([ds, ds]).batch(2).to_arrow(),
        lambda: hr.Dataset.open(tmp_path.as_uri()).batch(2).to_arrow(),
    ):
        with pytest.raises(InputError, match="to_arrow"):
            wrong()


def test_a_table_has_the_schema_of_its_columns(places: dict[str, str]) -> None:
    table = next(iter(hr.Dataset.open(places["parquet"], columns=["text", "n"]).batch(50).to_arrow().loader()))
    assert isinstance(table, pa.Table)
    assert table.schema == pa.schema({"text": pa.string(), "n": pa.int64()})
    assert table.equals(rows(0, 50).select(["text", "n"]))


def test_mixed_with_other_samples(places: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("x")
    both = hr.Dataset.mix([hr.Dataset.open(places["parquet"], columns=["n"]), hr.Dataset.open(tmp_path.as_uri())])
    found = list(both.loader())
    assert sorted(int(one["n"]) for one in found if "n" in one) == list(range(TOTAL))
    assert sum("txt" in one for one in found) == 1


def test_rows_left_out_at_the_end_of_a_row_group_are_in_the_state(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [0, 1, 2, 3, 4, 9, 10, 11, 12, 13]}), tmp_path / "x.parquet", row_group_size=5)
    ds = hr.Dataset.open(tmp_path.as_uri(), where=[("n", "not in", [3, 4])])
    found, states = everything(ds.batch(3).loader())
    wanted, wanted_states = everything(ds.map(same).batch(3).loader())
    assert (found, states) == (wanted, wanted_states)
    assert [state["even"] for state in states] == [True, False, False]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_files_that_the_disk_must_bring_first(tmp_path: Path, form: str) -> None:
    for number in range(4):
        path = tmp_path / f"{number}.{form}"
        table = pa.table({"n": range(number * 10_000, (number + 1) * 10_000)})
        if form == "parquet":
            pq.write_table(table, path, row_group_size=1000)
        else:
            pyarrow.feather.write_feather(table, str(path), chunksize=1000)
    ds = hr.Dataset.open(tmp_path.as_uri(), format=form).batch(700)
    for number in range(4):
        with (tmp_path / f"{number}.{form}").open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with contextlib.closing(ds.loader()) as loader:
        assert [n for batch in loader for n in batch["n"].tolist()] == list(range(40_000))
        stats = loader.stats()
    assert stats.reads == stats.counters["fetch.requests"] == 40
    assert stats.counters["fetch.bytes"] == stats.bytes > 40_000


@pytest.mark.parametrize("place", ["", "far-"])
def test_a_window_smaller_than_a_row_group_is_filled_as_soon_as_it_is_empty(places: dict[str, str], place: str) -> None:
    with contextlib.closing(hr.Dataset.open(places[f"{place}parquet"]).batch(7).loader(prefetch=1)) as loader:
        assert [n for batch in loader for n in batch["n"].tolist()] == list(range(TOTAL))
