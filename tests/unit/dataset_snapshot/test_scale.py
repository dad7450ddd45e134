"""A million rows: everything stays columnar and mapped. The figures themselves are benchmarks/scale.py's to take."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from headrace.catalog import sample_grouping as group
from headrace.catalog.external_sort import sort_batches
from headrace.catalog.index_cache import Shelf
from headrace.catalog.manifest import VERSIONED
from headrace.catalog.object_index import build_objects, open_objects
from headrace.catalog.object_samples import ObjectSamples
from headrace.catalog.sample_grouping import open_groups
from tests.unit.dataset_snapshot.kit import PagedStore, World

COUNT, STEP = 1_000_000, 1 << 16


def rows() -> "list[pa.RecordBatch]":
    made: list[pa.RecordBatch] = []
    for start in range(0, COUNT, STEP):
        numbers = range(start, min(start + STEP, COUNT))
        keys = [f"c{n // 10000:03d}/{n // 2:07d}{('.image', '.label')[n % 2]}" for n in numbers]
        made.append(pa.record_batch([keys, [n % 7 for n in numbers], ["e"] * len(keys)], schema=VERSIONED))
    return made


def test_a_million_rows(world: World) -> None:
    shelf = Shelf.of(world.settings)
    digest = build_objects(shelf, rows()).digest
    objects = open_objects(shelf, digest)
    assert objects is not None
    assert len(objects) == COUNT
    groups = open_groups(shelf, objects, "class")
    assert (len(groups), groups.order, len(groups.classes or ())) == (COUNT // 2, None, 100)
    index = ObjectSamples(PagedStore([]), "p/", objects, groups, fingerprint="", pinned=True)
    wanted = np.random.default_rng(1).integers(0, len(index), 20_000)
    specs = [spec for at in range(0, len(wanted), 256) for spec in index.specs(wanted[at : at + 256])]
    for row, (key, parts, extra) in zip(wanted.tolist(), specs, strict=True):
        assert key == f"c{row // 5000:03d}/{row:07d}"
        assert [part.size for part in parts] == [2 * row % 7, (2 * row + 1) % 7]
        assert extra == {"class": row // 5000}


def test_sorting_rows_whose_stems_fall(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """``a-1.png`` comes before ``a.png``, sample ``a`` before ``a-1``: more rows than one run of the external sort."""
    monkeypatch.setattr(group, "sort_batches", partial(sort_batches, run_rows=1 << 15))
    numbers = range(50_000)
    keys = sorted(f"{n:06d}{suffix}" for n in numbers for suffix in ("-1.png", ".png"))
    step = 1 << 14
    parts = [keys[at : at + step] for at in range(0, len(keys), step)]
    shelf = Shelf.of(world.settings)
    batches = [pa.record_batch([p, [1] * len(p), ["e"] * len(p)], schema=VERSIONED) for p in parts]
    objects = build_objects(shelf, batches)
    groups = open_groups(shelf, objects, "stem")
    assert groups.order is not None
    index = ObjectSamples(PagedStore([]), "", objects, groups, fingerprint="", pinned=True)
    found = [key for key, _, _ in index.specs(np.arange(len(index)))]
    assert found == sorted(key.removesuffix(".png") for key in keys)
