"""Samples of shards planned by arrays: every part is cut out of the right bytes, whatever lies where, and batches that
nobody looked into are those that somebody did.
"""

from __future__ import annotations

import dataclasses
import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import BadSampleError
from headrace.catalog.sample_abilities import Ranged, Ranges
from headrace.fetch import Read
from headrace.loader.joining_limits import MOST_JOINED
from headrace.loader.pipeline.range_groups import Grouping, Lot, RangedGroup, lots
from headrace.pack.examples import RecordWriter
from headrace.store import open_store
from headrace.store.protocol import Blob, Store

OBJECTS = [bytes((n * 31 + at) % 251 for at in range(6000)) for n in range(4)]


class Sample(NamedTuple):
    key: str
    object: int
    parts: list[tuple[int, int]]


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    """Parts may overlap, be empty, or lie anywhere."""
    found: list[Sample] = []
    for number in range(draw(st.integers(1, 30))):
        bounds = draw(st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 300)), min_size=1, max_size=3))
        parts = [(start, min(6000, start + size)) for start, size in bounds]
        found.append(Sample(f"s{number}", draw(st.integers(0, 3)), parts))
    return found


class Index:
    """A `Ranged` over `OBJECTS`."""

    def __init__(self, given: list[Sample], folder: str) -> None:
        self._given = given
        self.store: Store = open_store(f"memory://{folder}")

    def ranges(self, rows: Any) -> Ranges:
        some = [self._given[row] for row in rows.tolist()]
        flat = [(one.object, start, stop) for one in some for start, stop in one.parts]
        parts = np.array([len(one.parts) for one in some], np.int64)
        return Ranges(parts, *(np.array(column, np.int64) for column in zip(*flat, strict=True)))

    def object_at(self, number: int) -> tuple[str, int, str | None]:
        return str(number), len(OBJECTS[number]), None

    def blanks(self, rows: Any, objects: Sequence[int]) -> list[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
        some = [self._given[row] for row in rows.tolist()]
        assert list(objects) == [one.object for one in some]
        return [(one.key, tuple(f"p{at}" for at in range(len(one.parts))), {"from": one.object}) for one in some]

    def columns(self, rows: Any, objects: Sequence[int]) -> tuple[dict[str, list[Any]], tuple[str, ...] | None]:
        blanks = self.blanks(rows, objects)
        names = {names for _, names, _ in blanks}
        found = {"__key__": [key for key, _, _ in blanks], "from": [extra["from"] for _, _, extra in blanks]}
        return found, names.pop() if len(names) == 1 else None


@settings(max_examples=200, deadline=None)
@given(samples(), st.integers(1, 9), st.integers(1, 4000), st.booleans(), st.randoms(use_true_random=False))
def test_every_part_is_cut_out_of_the_right_bytes(
    given: list[Sample], limit: int, room: int, columns: bool, chance: Any
) -> None:
    index = Index(given, "ranged")
    order = chance.sample(range(len(given)), len(given))
    found: list[dict[str, Any]] = []
    number = 7
    for lot in lots(cast("Ranged", index), 0, order, np.array(order), Grouping(7, limit, room)):
        assert [group.number for group in lot.groups] == list(range(number, number + len(lot.groups)))
        number += len(lot.groups)
        _answer(lot, chance)
        for group in lot.groups:
            assert 1 <= group.count <= limit
            assert sum(stop - start for row in group.locals for start, stop in given[row].parts) == group.size
            found += _opened(group, columns=columns)
    expected = [
        {
            "__key__": given[row].key,
            **{f"p{at}": OBJECTS[given[row].object][start:stop] for at, (start, stop) in enumerate(given[row].parts)},
            "from": given[row].object,
        }
        for row in order
    ]
    assert found == expected


def test_a_group_ends_where_the_next_object_begins_if_that_is_rare() -> None:
    given = [Sample(f"s{at}", at // 20, [(at % 20 * 10, at % 20 * 10 + 10)]) for at in range(60)]
    rows = list(range(60))

    def ends(order: list[int]) -> list[int]:
        index = cast("Ranged", Index(given, "ends"))
        found = lots(index, 0, order, np.array(order), Grouping(0, 8, 1 << 20))
        return np.cumsum([group.count for lot in found for group in lot.groups]).tolist()

    assert ends(rows) == [8, 16, 20, 24, 32, 40, 48, 56, 60]
    mixed = sorted(rows, key=lambda row: row % 20)  # the next object at every sample
    assert ends(mixed) == [8, 16, 24, 32, 40, 48, 56, 60]


def _answer(lot: Lot, chance: Any) -> None:
    """Every group is complete with its last read, and never before; no read is larger than it may be."""
    reads = chance.sample(lot.reads, len(lot.reads))
    whole: set[int] = set()
    for read in reads:
        assert isinstance(read, Read)
        assert read.stop is not None
        assert read.start < read.stop <= 6000
        assert read.stop - read.start <= MOST_JOINED
        data = memoryview(OBJECTS[int(read.key)])[read.start : read.stop]
        for group in read.tag.settle(read, Blob(data, cast("Any", None))):
            assert group.number not in whole
            whole.add(group.number)
    assert whole == {group.number for group in lot.groups}


def _opened(group: RangedGroup, *, columns: bool) -> list[dict[str, Any]]:
    if columns and group.open_columns([]):
        assert group.columns is not None
        rows = zip(*group.columns.values(), strict=True)
        samples = [dict(zip(group.columns, row, strict=True)) for row in rows]
    else:
        group.open()
        assert [slot.local for slot in group.slots] == group.locals
        samples = [slot.sample for slot in group.slots]
    return [
        {name: bytes(value) if isinstance(value, memoryview) else value for name, value in one.items()}
        for one in samples
    ]


def _same(sample: Any) -> Any:
    return sample


def _tar(path: Path, numbers: range) -> None:
    """Most samples alike, some with a part more."""
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            parts = {"x": bytes([number % 256]) * number, "y": b"%d" % number}
            for name, data in (parts | ({"z": b"more"} if number % 50 == 7 else {})).items():
                member = tarfile.TarInfo(f"{number:05d}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def _tfrecord(path: Path, numbers: range) -> None:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for number in numbers:
            writer.add(b"%d" % number * 20)
        writer.finish()


def _seen(batch: Any) -> Any:
    return {
        name: [bytes(value) if isinstance(value, memoryview) else value for value in values]
        for name, values in batch.items()
    }


@pytest.mark.parametrize("order", ["storage", "blocked", "global"])
@pytest.mark.parametrize("kind", ["tar", "tfrecord"])
def test_batches_that_nobody_looked_into_are_those_that_somebody_did(
    kind: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(3):
        (_tar if kind == "tar" else _tfrecord)(folder / f"{number}.{kind}", range(number * 130, number * 130 + 130))
    dataset = hr.Dataset.open(f"file://{folder}/")
    if order != "storage":
        dataset = dataset.shuffle(3, block="4kB" if order == "blocked" else None)
    plain, looked = dataset.batch(7).loader(), dataset.map(_same).batch(7).loader()
    states: list[Any] = []
    for mine, theirs in zip(plain, looked, strict=True):
        assert _seen(mine) == _seen(theirs)
        assert plain.state_dict() == looked.state_dict()
        states.append(plain.state_dict())
    again = dataset.batch(7).loader()
    again.load_state_dict(states[20])
    assert sum(len(batch["__key__"]) for batch in again) == 390 - 21 * 7


def test_a_damaged_record_is_named_and_skipped_where_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "one.tfrecord"
    _tfrecord(path, range(100))
    dataset = hr.Dataset.open(f"file://{tmp_path}/", format="tfrecord").batch(8)
    list(dataset.loader())
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    with path.open("r+b") as file:  # in place, so that the version is the one that was indexed
        before = path.stat()
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(BadSampleError, match=r"one\.tfrecord: record 00000099"):
        list(dataset.loader())
    mixed = dataclasses.replace(dataset, skip=hr.Skip(max_count=1)).loader()
    assert sum(len(batch["__key__"]) for batch in mixed) == 99
    assert [one.key for one in mixed.ledger] == ["00000099"]
