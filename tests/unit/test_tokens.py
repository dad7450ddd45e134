"""Blocks of tokens and packed documents: what comes, from which sources, and what is refused, and how."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.base.errors import BadSampleError, CorruptError, InputError, NotFoundError, UnsupportedError
from headrace.loader import Dataset, Skip

TOKENS = np.arange(1, 101, dtype=np.uint16)
DOCUMENTS = [[1, 2, 3], [], [4, 5], [6, 7, 8, 9, 10, 11, 12]]


def mds(documents: list[list[int]]) -> bytes:
    """A shard of one column of arrays of one axis: of each its length, one axis (4) and its size, the values."""
    arrays = [bytes([4, len(one)]) + np.array(one, "<u2").tobytes() for one in documents]
    records = [len(one).to_bytes(4, "little") + one for one in arrays]
    said = {"column_names": ["tokens"], "column_encodings": ["ndarray:uint16"], "column_sizes": [None]}
    about = json.dumps({**said, "format": "mds", "version": 2}).encode()
    at = np.cumsum([4 * (len(records) + 2) + len(about), *map(len, records)]).astype("<u4")
    return len(records).to_bytes(4, "little") + at.tobytes() + about + b"".join(records)


def megatron(documents: list[list[list[int]]]) -> tuple[bytes, bytes]:
    """The ``.bin`` and the ``.idx`` of documents of several sequences each."""
    sequences = [one for document in documents for one in document]
    lengths = np.array([len(one) for one in sequences], "<i4")
    bounds = np.cumsum([0, *map(len, documents)]).astype("<i8")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(bounds))
    at = (2 * (np.cumsum(lengths) - lengths)).astype("<i8")
    return np.concatenate(sequences).astype("<u2").tobytes(), b"".join(
        [head, lengths.tobytes(), at.tobytes(), bounds.tobytes()]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokens")
    for name in ("flat", "npy", "lines", "table", "mds", "objects", "odd", "floats", "square"):
        (made / name).mkdir()
    TOKENS[:40].tofile(made / "flat" / "a.bin")
    TOKENS[40:40].tofile(made / "flat" / "b.bin")
    TOKENS[40:].tofile(made / "flat" / "c.bin")
    np.save(made / "npy" / "a.npy", TOKENS[:40].astype(">u4"))
    np.save(made / "npy" / "b.npy", TOKENS[40:].astype(">u4"))
    rows = [{"tokens": one, "text": "x"} for one in DOCUMENTS]
    (made / "lines" / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table = pa.table({"input_ids": pa.array([*DOCUMENTS, None], pa.list_(pa.int32())), "day": [1, 1, 2, 2, 2]})
    pq.write_table(table, made / "table" / "a.parquet", row_group_size=2)
    (made / "mds" / "shard.00000.mds").write_bytes(mds(DOCUMENTS))
    for number, one in enumerate(DOCUMENTS):
        np.array(one, np.uint16).tofile(made / "objects" / f"{number}.raw")
    (made / "odd" / "a.bin").write_bytes(b"12345")
    np.save(made / "floats" / "a.npy", np.ones(9))
    np.save(made / "square" / "a.npy", np.ones((3, 3), int))
    return made


def flat(folder: Path, end: int | None = None) -> Dataset:
    return Dataset.open(str(folder / "flat"), format="tokens", dtype="uint16", end=end)


def table(folder: Path, **options: Any) -> Dataset:
    return Dataset.open(str(folder / "table"), **options)


def lines(folder: Path) -> Dataset:
    return Dataset.open(str(folder / "lines"), format="jsonl")


def rows(dataset: Dataset) -> list[list[int]]:
    return [row for batch in dataset.batch(3).loader() for row in batch["tokens"].tolist()]


# What comes


def test_a_batch_is_one_array_of_the_files_type_or_of_another(folder: Path) -> None:
    batch = next(iter(flat(folder).blocks(12).batch(4).loader()))
    assert batch["tokens"].dtype == np.uint16
    assert (batch["tokens"] == [TOKENS[at : at + 12] for at in (0, 11, 22, 33)]).all()
    assert batch["__key__"] == ["00000000", "00000001", "00000002", "00000003"]
    assert batch["__shard__"] == ["a.bin"] * 4, "the file in which a block begins"
    assert batch["tokens"].flags.writeable
    wide = next(iter(flat(folder).blocks(12, dtype="int64").batch(4).loader()))["tokens"]
    assert wide.dtype == np.int64
    assert (wide == batch["tokens"]).all()


def test_npy_files_say_their_type_and_come_in_the_machines_byte_order(folder: Path) -> None:
    dataset = Dataset.open(str(folder / "npy"), format="tokens").blocks(34)
    assert dataset[0]["tokens"].dtype == np.uint32
    assert dataset[0]["tokens"].dtype.isnative
    assert rows(dataset) == [TOKENS[at : at + 34].tolist() for at in (0, 33, 66)]


def test_what_is_known_of_a_block_dataset(folder: Path) -> None:
    dataset = flat(folder).blocks(12)
    assert len(dataset) == 9
    assert dataset["00000008"]["tokens"].tolist() == TOKENS[88:100].tolist()
    assert rows(dataset.shuffle(1).take(4)) == rows(pickle.loads(pickle.dumps(dataset)).shuffle(1).take(4))
    assert dataset.fingerprint != flat(folder).blocks(12, pad=0).fingerprint != flat(folder).blocks(13).fingerprint
    assert "9 blocks of 12 tokens" in repr(dataset.leaves[0].index)


@pytest.mark.parametrize(
    ("opened", "asked"),
    [
        (lines, {}),
        (table, {}),
        (lambda folder: Dataset.open(str(folder / "mds"), format="mds"), {}),
        (lambda folder: table(folder, columns=["input_ids"]), {"dtype": "int64"}),
        (lambda folder: Dataset.open(str(folder / "objects")), {"column": "raw", "dtype": "uint16"}),
    ],
)
def test_documents_of_any_source_are_one_stream(
    folder: Path, opened: Callable[[Path], Dataset], asked: dict[str, Any]
) -> None:
    dataset = opened(folder).blocks(5, **asked)
    assert rows(dataset) == [[1, 2, 3, 4, 5], [5, 6, 7, 8, 9]]
    assert rows(pickle.loads(pickle.dumps(dataset))) == rows(dataset)
    assert rows(opened(folder).blocks(5, pad=0, **asked))[-1] == [9, 10, 11, 12, 0]


def test_rows_that_are_not_asked_for_have_no_tokens(folder: Path) -> None:
    assert rows(table(folder, where=[("day", "==", 2)]).blocks(5)) == [[4, 5, 6, 7, 8], [8, 9, 10, 11, 12]]


def test_a_batch_of_sequences(folder: Path) -> None:
    (batch,) = table(folder).pack_documents(6, batch=4, pad=-1).loader()
    assert batch["tokens"].tolist() == [[1, 2, 3, 4, 5, 12], [6, 7, 8, 9, 10, 11]]
    assert batch["positions"].tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]]
    assert batch["documents"].tolist() == [[1, 1, 1, 2, 2, 3], [1] * 6]
    assert batch["__key__"] == [["00000000", "00000002", "00000003"], ["00000003"]]
    assert list(table(folder).pack_documents(6, batch=4, drop_last=True).loader()) == []


def test_what_map_makes_is_packed_and_whole_batches_are_mapped(folder: Path) -> None:
    made = lines(folder).map(lambda sample: {"tokens": [len(sample["tokens"])]}).pack_documents(3, batch=2)
    (batch,) = made.map(lambda batch: {"sum": int(batch["tokens"].sum())}).loader()
    assert batch == {"sum": 12}


def test_documents_that_are_refused_are_within_the_budget(folder: Path) -> None:
    loader = lines(folder).pack_documents(4, long="refuse", on_error=Skip(max_rate=0.5)).loader()
    assert [row for batch in loader for row in batch["tokens"].tolist()] == [[1, 2, 3, 0], [4, 5, 0, 0]]
    assert [(one.key, one.stage) for one in loader.ledger] == [("00000003", "flat_map(DocumentPieces)")]


def test_megatrons_index_says_type_and_documents(tmp_path: Path) -> None:
    for name, documents in (("a", [[[1, 2], [3]], [[4]]]), ("b", [[[5, 6, 7, 8], [], [9]]])):
        data, index = megatron(documents)
        (tmp_path / f"{name}.bin").write_bytes(data)
        (tmp_path / f"{name}.idx").write_bytes(index)
    dataset = Dataset.open(str(tmp_path), format="megatron")
    assert [sample["tokens"].tolist() for sample in dataset.loader()] == [[1, 2, 3], [4], [5, 6, 7, 8, 9]]
    assert dataset[0]["tokens"].dtype == np.uint16
    assert rows(dataset.blocks(4)) == [[1, 2, 3, 4], [4, 5, 6, 7]]
    assert rows(dataset.blocks(4, documents="keep", pad=0)) == [[1, 2, 3, 0], [4, 0, 0, 0], [5, 6, 7, 8], [8, 9, 0, 0]]


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        (lambda data, index: (data[2:], index), CorruptError, "a.bin: has 6 bytes, and its .idx tells of 8 bytes"),
        (lambda data, index: (data, index[:-1]), CorruptError, "a.idx: 73 bytes, meant for 2 sequences"),
        (lambda data, index: (data, b"x" + index[1:]), CorruptError, "no Megatron index"),
        (lambda data, index: (data, index[:17] + b"\7" + index[18:]), UnsupportedError, "tokens of type 7"),
        (lambda data, index: (data, index[:-8] + bytes(8)), CorruptError, "one behind the other"),
        (lambda data, index: (data, None), NotFoundError, "a.idx: there is no .idx beside the shard"),
    ],
)
def test_megatron_pairs_that_are_none(
    tmp_path: Path, change: Callable[[bytes, bytes], Any], error: type[Exception], told: str
) -> None:
    data, index = change(*megatron([[[1, 2], [3, 4]]]))
    (tmp_path / "a.bin").write_bytes(data)
    if index is not None:
        (tmp_path / "a.idx").write_bytes(index)
    with pytest.raises(error) as raised:
        Dataset.open(str(tmp_path), format="megatron")
    assert told in str(raised.value)


# What is refused


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        (lambda f: Dataset.open(str(f / "odd"), format="tokens", dtype="uint16"), CorruptError, "odd/a.bin: 5 bytes"),
        (lambda f: Dataset.open(str(f / "flat"), format="tokens"), InputError, 'dtype="uint16"'),
        (lambda f: Dataset.open(str(f / "flat"), format="tokens", dtype="float32"), InputError, "tokens are integers"),
        (lambda f: Dataset.open(str(f / "flat"), format="tokens", dtype="uint8", end=256), InputError, "end=256"),
        (lambda f: Dataset.open(str(f / "flat"), dtype="uint16"), InputError, 'format="tokens"'),
        (lambda f: Dataset.open(str(f / "npy"), format="tokens", dtype="uint16"), InputError, "holds uint32 tokens"),
        (lambda f: Dataset.open(str(f / "floats"), format="tokens"), InputError, "floats/a.npy: dtype='float64'"),
        (lambda f: Dataset.open(str(f / "square"), format="tokens"), UnsupportedError, "not of one axis"),
        (lambda f: flat(f).blocks(101), InputError, "holds 100 tokens, and a block has 101"),
        (lambda f: flat(f, end=50).blocks(60, documents="keep"), InputError, "longest document has 50 tokens"),
        (lambda f: flat(f).blocks(1), InputError, "at least 2"),
        (lambda f: flat(f).blocks(9, documents="mix"), InputError, '"cross" or "keep"'),
        (lambda f: flat(f).blocks(9, pad=-1), InputError, "pad=-1 is no uint16"),
        (lambda f: flat(f).blocks(9, column="x"), InputError, "a flat file has none"),
        (lambda f: flat(f).shuffle(1).blocks(9), InputError, "straight after open"),
        (lambda f: flat(f).batch(2).blocks(9), InputError, "put blocks before batch"),
        (lambda f: flat(f).blocks(9).blocks(5), InputError, "straight after open"),
        (lambda f: lines(f).blocks(4).windows(2), InputError, "ask for longer ones"),
        (lambda f: lines(f).blocks(4, column="text"), InputError, "a.jsonl: 00000000: 'text' holds no tokens but str"),
        (lambda f: lines(f).blocks(4, column="x"), InputError, "has no part 'x', but tokens, text"),
        (lambda f: table(f, columns=["day"]).blocks(4), InputError, "'day' holds no tokens but int64 of 0 axes"),
        (lambda f: Dataset.open(str(f / "objects")).blocks(4), InputError, 'dtype="…" says'),
        (lambda f: rows(lines(f).blocks(4, dtype="bool")), InputError, "tokens are integers"),
        (lambda f: flat(f).pack_documents(0), InputError, "at least 1"),
        (lambda f: flat(f).pack_documents(9, batch=4, window=3), InputError, "at least one batch"),
        (lambda f: flat(f).pack_documents(9, long="cut"), InputError, '"split" or "refuse"'),
        (lambda f: flat(f).pack_documents(9, pad=-1, dtype="uint16"), InputError, "pad=-1"),
        (lambda f: list(flat(f).pack_documents(9, pad=-1).loader()), InputError, "pad=-1 is no uint16"),
        (lambda f: flat(f).batch(2).pack_documents(9), InputError, "put pack_documents before batch"),
        (lambda f: list(lines(f).pack_documents(9, column="text").loader()), BadSampleError, "holds no tokens but str"),
    ],
)  # fmt: skip
def test_bad_input_is_told(folder: Path, wrong: Callable[[Path], Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error) as raised:
        wrong(folder)
    assert told in str(raised.value)


@pytest.mark.parametrize("batch", [1, 40], ids=["one by one", "by columns"])
def test_a_token_that_is_not_of_the_type_is_told_with_its_block(tmp_path: Path, batch: int) -> None:
    np.arange(400, dtype=np.uint16).tofile(tmp_path / "a.bin")
    dataset = Dataset.open(str(tmp_path), format="tokens", dtype="uint16").blocks(11, dtype="uint8")
    with pytest.raises(BadSampleError, match=r"00000025: map\(BlockTokens\).*the token 256, and uint8"):
        list(dataset.batch(batch).loader())


def test_a_later_document_without_tokens_is_told_when_they_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"tokens": [1, 2, 3]}\n{"tokens": "abc"}\n')
    with pytest.raises(BadSampleError, match=r"a\.jsonl: 00000001: 'tokens' holds no tokens but str.*pack_documents"):
        Dataset.open(str(tmp_path), format="jsonl").blocks(3)
