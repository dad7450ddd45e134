"""What leads from one snapshot to another, as rows that are kept: the same as the stream of changes says."""

from __future__ import annotations

import pytest

from headrace.catalog import diff_cache as differing
from headrace.catalog import snapshot_diff as changes
from headrace.catalog.diff_cache import kept_diff
from headrace.catalog.snapshot import Snapshot, take_snapshot
from headrace.catalog.snapshot_diff import Change, ChangeKind, diff
from tests.unit.dataset_snapshot.kit import World

KINDS: tuple[ChangeKind, ...] = ("added", "removed", "changed")


def two(world: World, count: int = 500) -> tuple[Snapshot, Snapshot]:
    """The second lacks every seventh, has others in between, and every eleventh is changed."""
    world.write({f"{number:05}": b"old" for number in range(count)})
    first = take_snapshot("/data", "x", **world.context)
    for number in range(0, count, 7):
        (world.data / f"{number:05}").unlink()
    world.write({f"{number:05}-more": b"new" for number in range(0, count, 5)})
    world.write({f"{number:05}": b"changed" for number in range(1, count, 11) if number % 7})
    return first, take_snapshot("/data", "x", **world.context)


def all_changes(a: Snapshot, b: Snapshot, world: World) -> list[Change]:
    found = kept_diff(a, b, settings=world.settings)
    return [change for kind in KINDS for change in found.changes(kind, 0, found.count(kind))]


@pytest.mark.parametrize("rows", [1, 7, 64, 1 << 16])
def test_rows_are_those_of_the_stream(world: World, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr("headrace.catalog.object_index.BATCH_ROWS", rows)
    first, second = two(world)
    expected = list(diff(first, second, settings=world.settings))
    assert len(expected) > 200
    assert sorted(all_changes(first, second, world), key=lambda one: one.key) == expected
    back = all_changes(second, first, world)
    assert {(one.kind, one.key) for one in back if one.kind == "added"} == {
        ("added", one.key) for one in expected if one.kind == "removed"
    }


def test_a_stretch_of_them(world: World) -> None:
    first, second = two(world)
    found = kept_diff(first, second, settings=world.settings)
    removed = found.changes("removed", 3, 6)
    assert [one.key for one in removed] == ["00021", "00028", "00035"]
    assert {(one.size_before, one.size_after) for one in removed} == {(3, None)}
    assert found.changes("added", 10_000, 10_010) == []
    (one,) = found.changes("changed", 0, 1)
    assert (one.key, one.size_before, one.size_after) == ("00001", 3, 7)


def test_it_is_worked_out_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two(world)
    before = all_changes(first, second, world)
    monkeypatch.setattr(differing, "compare_rows", None)
    assert all_changes(first, second, world) == before


def test_the_same_twice(world: World) -> None:
    first, _ = two(world)
    found = kept_diff(first, first, settings=world.settings)
    assert [found.count(kind) for kind in KINDS] == [0, 0, 0]
    assert found.changes("changed", 0, 5) == []


def test_nothing_in_common() -> None:
    assert list(changes.compare_rows([], [])) == []
