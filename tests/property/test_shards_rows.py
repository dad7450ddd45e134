"""Members become samples, shards become one set: against a model in plain Python."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.index.key_hashes import hash_of, hashes_of
from headrace.formats.index.shard_rows import Rows, RowsWriter, join_rows
from headrace.formats.shard_format import Alike, Member

many = settings(deadline=None, max_examples=150)
KEYS = st.text(st.sampled_from("ab/é日0\0"), max_size=5) | st.text("ab", min_size=2, max_size=2)
NAMES = st.sampled_from(["x", "y", "seg.png", "日"])
SHARD = st.dictionaries(st.tuples(KEYS, NAMES), st.integers(0, 1 << 40), max_size=12)
Shard = dict[tuple[str, str], int]


def model(shard: Shard) -> list[tuple[str, tuple[str, ...], tuple[int, ...]]]:
    """Samples by first sight of their key, parts as they come."""
    samples: dict[str, list[tuple[str, int]]] = {}
    for (key, name), start in shard.items():
        samples.setdefault(key, []).append((name, start))
    return [
        (key, tuple(name for name, _ in parts), tuple(bound for _, start in parts for bound in (start, start + 7)))
        for key, parts in samples.items()
    ]


def _read_alike(rows: Rows, some: npt.NDArray[np.int64]) -> None:
    """Keys, layout and bounds at once are those of each."""
    samples = rows.read(some)
    parts, bounds = rows.bounds(some)
    assert parts.tolist() == [len(names) for _, names, _ in samples]
    assert bounds.reshape(-1).tolist() == [bound for *_, bounds in samples for bound in bounds]
    keys, layout = rows.keys_at(some)
    if len({names for _, names, _ in samples}) > 1:
        assert layout is None
    else:
        assert (keys, layout) == ([key for key, *_ in samples], samples[0][1])


@many
@given(st.lists(SHARD, max_size=5))
def test_a_set_holds_the_samples_of_its_shards_one_after_the_other(shards: list[Shard]) -> None:
    with tempfile.TemporaryDirectory() as root:
        made = []
        for number, shard in enumerate(shards):
            folder = Path(root) / str(number)
            folder.mkdir()
            writer = RowsWriter(folder, "memory://s")
            writer.add(Member(key, name, start, start + 7) for (key, name), start in shard.items())
            made.append((folder, writer.meta()))
        joined = Path(root) / "joined"
        joined.mkdir()
        meta = join_rows(joined, made)
        rows = Rows(joined, meta)
        expected = [sample for shard in shards for sample in model(shard)]
        assert meta["samples"] == len(rows) == len(expected)
        order = np.arange(len(rows), dtype=np.int64)[::-1]
        assert rows.read(order) == expected[::-1]
        for first in range(len(rows)):
            for stop in range(first + 1, len(rows) + 1):
                some = np.arange(first, stop, dtype=np.int64)
                _read_alike(rows, some)
                _read_alike(rows, some[::-1])
        assert rows.keys(0, len(rows)).to_pylist() == [key for key, _, _ in expected]
        assert np.diff(np.fromfile(joined / "first", "<i8")).tolist() == [len(model(shard)) for shard in shards]
        rows.close()


@many
@given(st.lists(st.binary(min_size=1, max_size=21), min_size=1, max_size=40))
def test_a_key_has_the_same_hash_alone_and_among_many(keys: list[bytes]) -> None:
    found = hashes_of(np.array(keys)).tolist()
    assert found == [hash_of(key) for key in keys]
    assert len(set(found)) == len({key.rstrip(b"\0") for key in keys})


@pytest.mark.parametrize("far", [0, 1, 7])
def test_a_sample_told_of_among_many_and_alone_again_is_one(tmp_path: Path, far: int) -> None:
    keys = np.array([b"%d" % row for row in range(8)])
    bounds = np.arange(16, dtype=np.int64).reshape(8, 2)
    writer = RowsWriter(tmp_path, "memory://s")
    writer.add([Alike(keys, ("x",), bounds), Member("far", "y", 20, 21), Member(str(far), "y", 30, 31)])
    rows = Rows(tmp_path, writer.meta())
    found = {key: (names, tuple(bounds)) for key, names, bounds in rows.read(np.arange(9))}
    assert found[str(far)] == (("x", "y"), (2 * far, 2 * far + 1, 30, 31))
