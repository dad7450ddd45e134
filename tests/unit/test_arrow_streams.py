"""Arrow's streaming format: what Hugging Face's ``save_to_disk`` wrote, and what pyarrow writes, comes out by rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import CorruptError

SAVED = Path(__file__).parents[1] / "compat" / "shards" / "arrow-saved"


def test_what_hugging_face_saved(tmp_path: Path) -> None:
    for target in (SAVED, shutil.copytree(SAVED, tmp_path / "ours" / "train").parent):
        dataset = hr.Dataset.open(target)  # by its state.json
        found = list(dataset)
        assert [(one["n"], one["text"]) for one in found] == [(n, f"größe {n}") for n in range(10)]
        assert [one["list"].tolist() for one in found] == [[1.0] * (n % 3) for n in range(10)]
        assert [one["__shard__"].rpartition("/")[2] for one in found[4:6]] == [
            "data-00000-of-00002.arrow",
            "data-00001-of-00002.arrow",
        ]
        batch = next(iter(dataset.shuffle(7).batch(10).loader()))
        assert sorted(batch["n"].tolist()) == list(range(10))
        assert dataset[7]["text"] == "größe 7"
    assert len(hr.Dataset.open(SAVED / "data-00001-of-00002.arrow")) == 5


def test_beside_other_files_arrow_has_to_be_asked_for(tmp_path: Path) -> None:
    folder = shutil.copytree(SAVED, tmp_path / "saved")
    (folder / "state.json").unlink()
    assert "data-00000-of-00002" in next(iter(hr.Dataset.open(folder)))["__key__"]
    assert len(hr.Dataset.open(folder, format="arrow")) == 10


columns = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "text": st.none() | st.text(max_size=5),
    "kind": st.sampled_from(["a", "b", None]),
    "list": st.lists(st.floats(width=32, allow_nan=False), max_size=3),
}
TYPES = {
    "n": pa.int64(),
    "text": pa.string(),
    "kind": pa.dictionary(pa.int8(), pa.string()),
    "list": pa.list_(pa.float32()),
}


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.fixed_dictionaries(columns), max_size=4), max_size=4),
    codec=st.sampled_from([None, "lz4", "zstd"]),
    deltas=st.booleans(),
    wanted=st.none() | st.lists(st.sampled_from(sorted(columns)), min_size=1, unique=True),
)
def test_every_row_comes_out(
    tmp_path_factory: pytest.TempPathFactory, batches: list[Any], codec: Any, deltas: bool, wanted: Any
) -> None:
    """Dictionaries that grow, or are replaced, from batch to batch; batches without rows; compressed ones."""
    folder = tmp_path_factory.mktemp("stream")
    options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=deltas)
    schema = pa.schema(list(TYPES.items()))
    with pa.ipc.new_stream(str(folder / "a.arrow"), schema, options=options) as writer:
        for rows in batches:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
    with pa.ipc.new_file(str(folder / "b.arrow"), schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([dict.fromkeys(columns) | {"n": 1}], schema=schema))
    rows = [row for batch in batches for row in batch]
    dataset = hr.Dataset.open(folder, format="arrow", columns=wanted)
    assert len(dataset) == len(rows) + 1
    for found in (list(dataset), [row for table in dataset.batch(3).to_arrow() for row in table.to_pylist()]):
        for one, row in zip(found, rows, strict=False):
            got = {name: value for name, value in one.items() if not name.startswith("__")}
            assert {name: _plain(value) for name, value in got.items()} == {
                name: row[name] for name in wanted or columns
            }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def test_a_stream_that_does_not_say_where_it_ends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    table = pa.table({"x": list(range(100))})
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=30)
    whole = path.read_bytes()
    for stop in (len(whole) - 8, len(whole) - 9, len(whole) - 1, len(whole) // 2, 100, 9, 8, 4):
        path.write_bytes(whole[:stop])
        with pytest.raises(CorruptError, match=r"a\.arrow"):
            hr.Dataset.open(path, refresh=True)
    path.write_bytes(whole + b"more")
    with pytest.raises(CorruptError, match="behind its end"):
        hr.Dataset.open(path, refresh=True)
