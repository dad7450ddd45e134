"""Blocks of tokens and documents packed into sequences, against a plain model: what the rule gives, the same after a
resume, and every token exactly once on another number of ranks.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.loader import Dataset, Loader

END = 0
Document = list[int]
Block = tuple[int, ...]
PAD = 9999


def _documents() -> list[list[Document]]:
    """Of three files. Each document ends with `END`, and no token of all is there twice: a wrong one shows."""
    chance, token = random.Random(5), itertools.count(1)
    return [
        [[*itertools.islice(token, length), END] for length in chance.choices([0, 1, 2, 5, 9, 30], k=count)]
        for count in (14, 1, 25)
    ]


FILES = _documents()
DOCUMENTS = [one for documents in FILES for one in documents]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokens")
    for name in ("bin", "npy", "table"):
        (made / name).mkdir()
    for number, documents in enumerate(FILES):
        tokens = np.concatenate(documents).astype("<u2")
        tokens.tofile(made / "bin" / f"{number}.bin")
        np.save(made / "npy" / f"{number}.npy", tokens.astype(np.int32))
        table = pa.table({"input_ids": pa.array(documents, pa.list_(pa.int32())), "x": range(len(documents))})
        pq.write_table(table, made / "table" / f"{number}.parquet", row_group_size=6)
    return made


SOURCES = st.sampled_from(["bin", "npy", "table"])
RULES = st.fixed_dictionaries(
    {"length": st.integers(2, 12), "documents": st.sampled_from(["cross", "keep"]), "pad": st.sampled_from([None, PAD])}
)


def opened(folder: Path, source: str) -> Dataset:
    where = str(folder / source)
    if source == "table":
        return Dataset.open(where)
    return Dataset.open(where, format="tokens", dtype="uint16" if source == "bin" else None, end=END)


def modelled(length: int, documents: str, pad: int | None) -> list[Block]:
    """The rule, said once more in the plainest way."""
    runs = DOCUMENTS if documents == "keep" else [[token for one in DOCUMENTS for token in one]]
    blocks: list[Block] = []
    for run in runs:
        for at in range(0, max(len(run) - 1, 1), length - 1):
            some = run[at : at + length]
            if len(some) == length:
                blocks.append(tuple(some))
            elif pad is not None:
                blocks.append((*some, *[pad] * (length - len(some))))
    return blocks


def rows(loader: Loader, most: int | None = None) -> list[Block]:
    found = itertools.islice(loader, most)
    return [tuple(row) for batch in found for row in batch["tokens"].tolist()]


@given(
    source=SOURCES, rule=RULES, seed=st.sampled_from([None, 1]), block=st.sampled_from([None, 64]),
    batch=st.integers(1, 5), where=st.sampled_from(["exact", "window"]), stop=st.integers(0, 9),
    worlds=st.lists(st.integers(1, 3), min_size=2, max_size=3),
)  # fmt: skip
@settings(max_examples=30)
def test_blocks_are_those_of_the_rule_each_once_on_any_ranks(
    folder: Path, source: str, rule: dict[str, Any], seed: int | None, block: int | None, batch: int, where: str,
    stop: int, worlds: list[int],
) -> None:  # fmt: skip
    dataset = opened(folder, source).blocks(**rule)
    expected = modelled(**rule)
    assert len(dataset) == len(expected)
    at = stop * len(expected) // 10
    assert tuple(dataset[at]["tokens"].tolist()) == expected[at]
    dataset = dataset if seed is None else dataset.shuffle(seed, block=block)
    seen: list[Block] = []
    states: list[Any] = []
    for turn, world in enumerate(worlds):
        loaders = [dataset.shard(rank, world).batch(batch).loader(order=where, window=4) for rank in range(world)]
        for loader in loaders:
            if states:
                loader.load_state_dict(states)
            found = rows(loader, None if turn == len(worlds) - 1 else stop)
            if not states and world == 1 and where == "exact" and seed is None:
                assert found == expected[: len(found)]
            seen += found
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        if all(state["epoch"] for state in states):
            break
    assert sorted(seen) == sorted(expected)


def packed(documents: list[Document], length: int, batch: int, window: int, drop_last: bool) -> Iterator[list[Block]]:
    """First fit, in the plainest way: of each sequence its tokens, without padding."""
    sequences: list[list[int]] = []
    for document in documents:
        for at in range(0, len(document), length):
            piece = document[at : at + length]
            fits = next((one for one in sequences if len(one) + len(piece) <= length), None)
            if fits is None:
                if len(sequences) == window:
                    yield [tuple(one) for one in sequences[:batch]]
                    del sequences[:batch]
                sequences.append(fits := [])
            fits += piece
    while sequences and not (drop_last and len(sequences) < batch):
        yield [tuple(one) for one in sequences[:batch]]
        del sequences[:batch]


def unpadded(loader: Loader, most: int | None = None) -> list[list[Block]]:
    """Of each batch its sequences without padding; checks what stands beside the tokens."""
    found: list[list[Block]] = []
    for batch in itertools.islice(loader, most):
        held = batch["documents"] > 0
        assert (batch["tokens"][~held] == PAD).all()
        assert not batch["positions"][~held].any()
        for row, (document, position) in enumerate(zip(batch["documents"], batch["positions"], strict=True)):
            (begins,) = np.nonzero(np.diff(document[held[row]], prepend=0))
            assert document.max() == len(batch["__key__"][row]) == len(begins)
            starts = np.zeros(held[row].sum(), int)
            starts[begins] = begins
            assert (position[held[row]] == np.arange(len(starts)) - np.maximum.accumulate(starts)).all()
        found.append([tuple(row[some].tolist()) for row, some in zip(batch["tokens"], held, strict=True)])
    return found


@given(
    source=SOURCES, length=st.integers(1, 40), batch=st.integers(1, 4), more=st.integers(0, 9),
    seed=st.sampled_from([None, 1]), drop_last=st.booleans(), stop=st.integers(0, 12),
)  # fmt: skip
@settings(max_examples=30)
def test_packing_is_first_fit_and_goes_on_where_it_stopped(
    folder: Path, source: str, length: int, batch: int, more: int, seed: int | None, drop_last: bool, stop: int
) -> None:
    dataset = opened(folder, source)
    dataset = dataset if seed is None else dataset.shuffle(seed)
    name = "input_ids" if source == "table" else "tokens"
    documents = [sample[name].tolist() for sample in dataset.loader()]
    expected = list(packed(documents, length, batch, batch + more, drop_last))
    given_ = dataset.pack_documents(length, batch, window=batch + more, pad=PAD, drop_last=drop_last)
    loader, resumed = given_.loader(), given_.loader()
    assert unpadded(loader, stop) == expected[:stop]
    resumed.load_state_dict(loader.state_dict())
    if stop < len(expected):
        assert unpadded(resumed) == expected[stop:]
    loader.close()


def is_kept(sample: dict[str, Any]) -> bool:
    return len(sample.get("tokens", sample.get("input_ids"))) % 3 != 1


def halves(sample: dict[str, Any]) -> list[dict[str, Any]]:
    """Of documents with one token the second is empty."""
    tokens = sample.get("tokens", sample.get("input_ids"))
    middle = (len(tokens) + 1) // 2
    return [{"__key__": sample["__key__"], "tokens": some} for some in (tokens[:middle], tokens[middle:])]


@given(
    source=SOURCES, length=st.integers(1, 40), batch=st.integers(1, 4), seed=st.sampled_from([None, 1]),
    filtered=st.booleans(), flat=st.booleans(), where=st.sampled_from(["exact", "window"]),
    worlds=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    stops=st.lists(st.integers(0, 5), min_size=3, max_size=3),
)  # fmt: skip
@settings(max_examples=30)
def test_packed_on_another_number_of_ranks_every_token_comes_once(
    folder: Path, source: str, length: int, batch: int, seed: int | None, filtered: bool, flat: bool, where: str,
    worlds: list[int], stops: list[int],
) -> None:  # fmt: skip
    dataset = opened(folder, source)
    dataset = dataset if seed is None else dataset.shuffle(seed)
    dataset = dataset.filter(is_kept, threads=2) if filtered else dataset
    dataset = dataset.flat_map(halves, threads=2) if flat else dataset
    seen: list[int] = []
    states: list[Any] = []
    for turn, world in enumerate(worlds):
        shards = [dataset.shard(rank, world) for rank in range(world)]
        made = [one.pack_documents(length, batch, pad=PAD, window=batch) for one in shards]
        loaders = [one.loader(order=where, window=4) for one in made]
        for loader, stop in zip(loaders, stops, strict=False):
            if states:
                loader.load_state_dict(states)
            most = None if turn == len(worlds) - 1 else stop
            seen += [token for one in unpadded(loader, most) for row in one for token in row]
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        if all(state["epoch"] for state in states):
            break
    kept = [one for one in DOCUMENTS if not filtered or len(one) % 3 != 1]
    assert sorted(seen) == sorted(token for one in kept for token in one)
