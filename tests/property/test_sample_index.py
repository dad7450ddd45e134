"""Grouping, comparing and sorting against models in plain Python, on trees that Hypothesis makes awkward."""

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import InputError
from headrace.catalog.external_sort import sort_batches
from headrace.catalog.index_cache import Shelf
from headrace.catalog.key_columns import stem_stops
from headrace.catalog.manifest import VERSIONED, Digest
from headrace.catalog.object_index import Objects, build_objects
from headrace.catalog.object_samples import ObjectSamples
from headrace.catalog.sample_grouping import open_groups
from headrace.catalog.snapshot_diff import compare
from headrace.loader.order.windows import folder_starts
from headrace.testing.strategies import keys
from tests.cache_kit import open_cache
from tests.unit.dataset_snapshot.kit import PagedStore

Rows: TypeAlias = dict[str, tuple[int, str | None]]
unhurried = settings(deadline=None, max_examples=60)
NEAR = st.text(alphabet="ab./-é", min_size=1, max_size=8)
KEYS = st.one_of(NEAR, NEAR, keys())
VALUES = st.tuples(st.integers(0, 99), st.sampled_from(["e1", "e2", None]))
ROWS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=40)
WHOLE_VALUES = st.tuples(st.integers(0, 1 << 40), st.sampled_from(["e1", "e2"]))
SOUND = st.dictionaries(KEYS, WHOLE_VALUES, min_size=1, max_size=40)
ZEROS = st.dictionaries(st.text(alphabet="a\0.", min_size=1, max_size=4), VALUES, min_size=1, max_size=5)


def batches(rows: Rows, step: int = 7) -> Iterator[pa.RecordBatch]:
    ordered = sorted(rows, key=str.encode)
    for start in range(0, len(ordered), step):
        part = ordered[start : start + step]
        columns = [part, [rows[k][0] for k in part], [rows[k][1] for k in part]]
        yield pa.record_batch(columns, schema=VERSIONED)


@contextmanager
def built(rows: Rows) -> Iterator[tuple[Objects, Shelf]]:
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(folder)
        yield build_objects(shelf, batches(rows)), shelf


def stem_of(key: str) -> tuple[str, str]:
    """The definition in headrace/dataset/text.py, one key at a time."""
    folder, slash, name = key.rpartition("/")
    dots = len(name) - len(name.lstrip("."))
    base, dot, suffix = name[dots:].partition(".")
    if not dot or not suffix:
        return key, ""
    return folder + slash + name[:dots] + base, suffix


@unhurried
@given(st.lists(KEYS, min_size=1, max_size=30))
def test_stems(texts: list[str]) -> None:
    column = pa.array(["pad", *texts], pa.large_string())[1:]
    ends = stem_stops(column).tolist()
    assert [text.encode()[:end].decode() for text, end in zip(texts, ends, strict=True)] == [
        stem_of(text)[0] for text in texts
    ]


def model(rows: Rows, by: str) -> dict[str, list[tuple[str, str, int, str | None]]]:
    found: dict[str, list[tuple[str, str, int, str | None]]] = {}
    for key in sorted(rows, key=str.encode):
        stem, suffix = stem_of(key)
        if key.endswith("/") or (by == "class" and stem.find("/") < 1):
            continue
        name = key if by == "object" else stem
        found.setdefault(name, []).append((suffix or "data", "root/" + key, *rows[key]))
    return dict(sorted(found.items(), key=lambda item: item[0].encode()))


@unhurried
@given(ROWS, st.sampled_from(["stem", "object", "class"]))
def test_samples_are_the_models(rows: Rows, by: str) -> None:
    expected = model(rows, by)
    clash = any(len({part[0] for part in parts}) < len(parts) for parts in expected.values())
    with built(rows) as (objects, shelf):
        if clash:
            with pytest.raises(InputError):
                open_groups(shelf, objects, by)
            return
        index = ObjectSamples(
            PagedStore([]), "root/", objects, open_groups(shelf, objects, by), fingerprint="", pinned=False
        )
        assert len(index) == len(expected)
        specs = index.specs(np.arange(len(index)))
        assert [(key, [(p.name, p.key, p.size, p.version) for p in parts]) for key, parts, _ in specs] == list(
            expected.items()
        )
        assert index.sizes(np.arange(len(index))).tolist() == [sum(p[2] for p in parts) for parts in expected.values()]
        backwards = np.arange(len(index))[::-1]
        assert index.specs(backwards) == specs[::-1]
        if by == "class" and index.classes is not None:
            assert index.classes == sorted({key.split("/")[0] for key in expected}, key=str.encode)
            assert [index.classes[extra["class"]] for _, _, extra in specs] == [key.split("/")[0] for key in expected]


@unhurried
@given(st.one_of(ROWS, SOUND), st.sampled_from(["stem", "object", "class"]), st.booleans(), st.data())
def test_what_the_cache_is_asked_for_is_what_single_samples_say(
    rows: Rows, by: str, few: bool, data: st.DataObject
) -> None:
    """Asked for the first time, and again in any order, with some that were not asked for before."""
    with (
        built(rows) as (objects, shelf),
        closing(open_cache(shelf.root / "cache")) as cache,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("headrace.catalog.whole_samples._MOST_KNOWN", len(objects) if few else len(objects) - 1)
        try:
            groups = open_groups(shelf, objects, by)
        except InputError:
            return
        if not len(groups):
            return
        index = ObjectSamples(PagedStore([]), "root/", objects, groups, fingerprint="", pinned=False)
        for _ in range(4):
            chosen = np.array(data.draw(st.lists(st.integers(0, len(index) - 1), min_size=1, max_size=12)), np.int64)
            wholes, kept = index.wholes(chosen), index.kept(chosen, cache)
            assert (kept is None) == (wholes is None)
            if kept is None or wholes is None:
                continue
            assert (kept.keys, kept.names, kept.extra) == (wholes.keys, wholes.names, wholes.extra)
            versions = zip(wholes.objects, wholes.versions, wholes.sizes, strict=True)
            expected = [cache.name(index.store.identity, *version) for version in versions]
            assert [kept.entries.name(at) for at in range(len(kept.entries))] == expected
            step = len(kept.names)
            half = kept.part(0, len(chosen) // 2)
            assert (half.keys, half.names) == (kept.keys[: len(chosen) // 2], kept.names)
            assert half.entries.paths.tolist() == kept.entries.paths[: len(chosen) // 2 * step].tolist()


@unhurried
@given(st.one_of(ROWS, ZEROS), st.booleans(), st.data())
def test_keys_and_stems_of_many_are_those_of_each(rows: Rows, stems: bool, data: st.DataObject) -> None:
    with built(rows) as (objects, _):
        most = len(objects) - 1
        chosen = np.array(data.draw(st.lists(st.integers(0, most), max_size=20)) if most >= 0 else [], np.int64)
        expected = [key[:stem] if stems else key for key, stem, _, _ in objects.read(chosen)]
        assert objects.texts(chosen, stems=stems) == expected


@unhurried
@given(ROWS, st.sampled_from(["stem", "object", "class"]), st.randoms(use_true_random=False), st.integers(1, 5))
def test_folders_begin_where_the_samples_say(rows: Rows, by: str, random: Random, at_once: int) -> None:
    """In key order, and in a table's, which may be any."""
    listed = sorted(rows, key=str.encode)
    random.shuffle(listed)
    parts = [listed, [rows[k][0] for k in listed], [rows[k][1] for k in listed]]
    shuffled = pa.record_batch(parts, schema=VERSIONED)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        shelf = Shelf(folder)
        for batch, keep_order in ((batches(rows), False), ([shuffled], True)):
            objects = build_objects(shelf, batch)
            try:
                groups = open_groups(shelf, objects, by, keep_order=keep_order)
            except InputError:
                return
            if not len(groups):
                return
            index = ObjectSamples(PagedStore([]), "root/", objects, groups, fingerprint="", pinned=False)
            folders = [key.rpartition("/")[0] for key, _, _ in index.specs(np.arange(len(index)))]
            starts = [row for row in range(len(folders)) if row == 0 or folders[row] != folders[row - 1]]
            patch.setattr("headrace.catalog.object_samples._AT_ONCE", at_once)
            assert index.folders().tolist() == starts
            assert folder_starts(index).tolist() == starts


@unhurried
@given(ROWS)
def test_rows_come_back_whole(rows: Rows) -> None:
    with built(rows) as (objects, _):
        back = [row for batch in objects.batches() for row in batch.to_pylist()]
    ordered = sorted(rows, key=str.encode)
    assert [(r["key"], r["size"], r["version"]) for r in back] == [(key, *rows[key]) for key in ordered]


@unhurried
@given(ROWS, st.integers(1, 9), st.integers(1, 9))
def test_the_digest_knows_nothing_of_batches(rows: Rows, one: int, other: int) -> None:
    digests: list[str] = []
    for step in (one, other):
        digest = Digest()
        for batch in batches(rows, step):
            digest.update(batch)
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1]
    key = min(rows)
    digest = Digest()
    for batch in batches(rows | {key: (rows[key][0] + 1, rows[key][1])}):
        digest.update(batch)
    assert digest.hexdigest() != digests[0]


@unhurried
@given(ROWS, ROWS, st.integers(1, 9), st.integers(1, 9), st.data())
def test_compare_is_set_arithmetic(
    a: Rows, b: Rows, one: int, other: int, data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.sampled_from(sorted(a))))
    b = b | {key: a[key] for key in kept}
    found = list(compare(batches(a, one), batches(b, other)))
    assert [c.key for c in found] == sorted((c.key for c in found), key=str.encode)
    assert {(c.kind, c.key) for c in found} == (
        {("added", key) for key in b.keys() - a.keys()}
        | {("removed", key) for key in a.keys() - b.keys()}
        | {("changed", key) for key in a.keys() & b.keys() if a[key] != b[key]}
    )
    assert all((c.size_before, c.version_before) == (a.get(c.key, (None, None))) for c in found)
    assert all((c.size_after, c.version_after) == (b.get(c.key, (None, None))) for c in found)


@unhurried
@given(st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=60), st.integers(1, 20), st.integers(1, 7))
def test_external_sort_is_a_stable_sort(rows: list[tuple[str, int]], run: int, step: int) -> None:
    schema = pa.schema([("name", pa.large_string()), ("value", pa.int64())])
    parts = [rows[i : i + step] for i in range(0, len(rows), step)]
    given_batches = (pa.record_batch([list(c) for c in zip(*part, strict=True)], schema=schema) for part in parts)
    with tempfile.TemporaryDirectory() as folder:
        back = [r for b in sort_batches(given_batches, "name", folder=folder, run_rows=run) for r in b.to_pylist()]
    assert [(r["name"], r["value"]) for r in back] == sorted(rows, key=lambda row: row[0].encode())
