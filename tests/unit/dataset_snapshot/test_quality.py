"""The data-quality report."""

import json

import pyarrow as pa

from headrace.catalog.index_cache import Shelf
from headrace.catalog.manifest import VERSIONED
from headrace.catalog.object_index import build_objects
from headrace.catalog.quality import Duplicates, Missing, SampleGroup, Sizes, quality_report, report
from headrace.catalog.snapshot import take_snapshot
from tests.unit.dataset_snapshot.kit import World


def test_report(world: World) -> None:
    tree = {f"a/{n}.image": b"x" * 10 for n in range(4)} | {f"a/{n}.label": b"1" for n in range(3)} | {"b/9.image": b""}
    world.write(tree)
    take_snapshot("/data", "d", **world.context)
    for target in ("/data", "d@v1"):
        found = quality_report(target, **world.context)
        assert (found.objects, found.samples) == (8, 5)
        assert found.sizes == Sizes(0, 10, 10, 43) or found.sizes.median in (1, 5, 10)
        assert found.folders == (SampleGroup("a", 7, 43), SampleGroup("b", 1, 0))
        assert found.suffixes == (SampleGroup("image", 5, 40), SampleGroup("label", 3, 3))
        assert (found.empty, found.empty_examples) == (1, ("b/9.image",))
        assert found.missing == (Missing("label", 2, ("a/3", "b/9")),)
        assert json.loads(json.dumps(found.as_dict()))["folder_count"] == 2


def test_duplicates_by_etag(world: World) -> None:
    rows = [("a", 5, "e1"), ("b", 5, "e2"), ("c", 5, "e1"), ("d", 6, "e1"), ("e", 0, "e0"), ("f", 0, "e0")]
    rows += [("g", 5, "e1"), ("h", 7, None), ("i", 7, None)]
    batch = pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=VERSIONED)
    shelf = Shelf.of(world.settings)
    assert report(build_objects(shelf, [batch]), shelf).duplicates == Duplicates(2, 10, (("a", "c", "g"),))


def test_dots_that_are_no_suffixes(world: World) -> None:
    count = 3000
    batch = pa.record_batch(
        [[f"{n:05d}.{n}" for n in range(count)], [1] * count, ["v"] * count], schema=VERSIONED
    )
    shelf = Shelf.of(world.settings)
    suffixes = report(build_objects(shelf, [batch]), shelf).suffixes
    assert suffixes[0] == SampleGroup("(other)", 2000, 2000)
    assert len(suffixes) == 1001
