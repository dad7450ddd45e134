"""``on_change="report"``: what changed after the snapshot is read as it is now, and named once."""

import logging
from typing import Any

import pytest

from headrace.base.errors import ChangedError
from headrace.catalog.snapshot import Snapshot, take_snapshot
from headrace.loader import Changed, Dataset, Loader, Skip
from tests.unit.dataset_snapshot.kit import World

LOGGER = "headrace.dataset"


@pytest.fixture
def digits(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Thirty samples of two objects, and settings that a process of their own finds as well."""
    monkeypatch.setenv("HEADRACE_HOME", f"file://{world.home}")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(world.root / "cache"))
    world.write({f"{n:02d}.{kind}": f"{kind} {n}".encode() for n in range(30) for kind in ("image", "label")})
    return world


def snapshot(world: World) -> Snapshot:
    return take_snapshot("/data", "digits", **world.context)


def read(loader: Loader) -> dict[str, bytes]:
    """One epoch: the image of each sample, or of each window of one."""
    return {
        key: bytes(image[0] if isinstance(image, list) else image)
        for batch in loader
        for key, image in zip(batch["__key__"], batch["image"], strict=True)
    }


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize("where", ["thread", "process"])
@pytest.mark.parametrize("shape", ["samples", "windows"])
def test_each_changed_object_is_named_once(
    digits: World, caplog: pytest.LogCaptureFixture, where: Any, shape: str
) -> None:
    snapshot(digits)
    digits.write({"07.image": b"other bytes", "21.image": b"these too"})
    dataset = Dataset.open("digits@v1", namespace=digits.namespace, on_change="report")
    if shape == "windows":
        dataset = dataset.windows(1)
    loader = dataset.shuffle(seed=2).batch(4).loader(where=where)
    assert loader.changed == []
    with caplog.at_level(logging.WARNING, LOGGER):
        for epoch in range(2):
            seen = read(loader)
            assert (len(seen), seen["07"], seen["21"]) == (30, b"other bytes", b"these too"), epoch
            assert seen["08"] == b"image 8"
    assert sorted(one.url for one in loader.changed) == [f"file://{digits.data}/{n}.image" for n in ("07", "21")]
    assert all(one.listed != one.found for one in loader.changed)
    assert loader.stats().changed == 2
    assert "2 objects changed" in str(loader.stats())
    assert loader.ledger == []
    said = warnings(caplog)
    assert len(said) == 2
    assert {one.url for one in loader.changed} == {text.split()[0] for text in said}


def test_the_versions_are_the_snapshots_and_the_present_one(digits: World) -> None:
    snapshot(digits)
    before = digits.namespace.resolve("/data").store.head("07.image").version
    digits.write({"07.image": b"other bytes"})
    after = digits.namespace.resolve("/data").store.head("07.image").version
    loader = Dataset.open("digits@v1", namespace=digits.namespace, on_change="report").batch(4).loader()
    read(loader)
    assert loader.changed == [Changed(f"file://{digits.data}/07.image", before, after)]


def test_refused_without_it(digits: World) -> None:
    snapshot(digits)
    digits.write({"07.image": b"other bytes"})
    dataset = Dataset.open("digits@v1", namespace=digits.namespace)
    with pytest.raises(ChangedError, match=r"07\.image"):
        read(dataset.batch(4).loader())
    skipping = dataset.map(dict, on_error=Skip(max_count=1)).batch(4).loader()
    assert len(read(skipping)) == 29
    assert (skipping.changed, skipping.stats().changed) == ([], 0)


def test_a_deleted_object_is_no_changed_one(digits: World) -> None:
    snapshot(digits)
    (digits.data / "07.image").unlink()
    dataset = Dataset.open("digits@v1", namespace=digits.namespace, on_change="report")
    loader = dataset.map(dict, on_error=Skip(max_count=1)).batch(4).loader()
    assert len(read(loader)) == 29
    assert [entry.key for entry in loader.ledger] == ["07"]
    assert loader.changed == []


def test_a_folder_reports_only_when_told_to(digits: World, caplog: pytest.LogCaptureFixture) -> None:
    silent = Dataset.open("/data", namespace=digits.namespace).batch(4).loader()
    telling = Dataset.open("/data", namespace=digits.namespace, on_change="report").batch(4).loader()
    digits.write({"07.image": b"other bytes"})
    with caplog.at_level(logging.WARNING, LOGGER):
        assert read(silent)["07"] == read(telling)["07"] == b"other bytes"
    assert (len(silent.changed), len(telling.changed), len(warnings(caplog))) == (0, 1, 1)


def test_warnings_end_but_the_book_goes_on(digits: World, caplog: pytest.LogCaptureFixture) -> None:
    snapshot(digits)
    digits.write({f"{n:02d}.image": b"all of them are other ones" for n in range(30)})
    loader = Dataset.open("digits@v1", namespace=digits.namespace, on_change="report").batch(4).loader()
    with caplog.at_level(logging.WARNING, LOGGER):
        read(loader)
    said = warnings(caplog)
    assert len(said) == 20
    assert [text for text in said if "loader.changed" in text] == said[-1:]
    assert len(loader.changed) == loader.stats().changed == 30


def test_a_mix_reports_of_the_one_that_was_told_to(digits: World) -> None:
    snapshot(digits)
    one = Dataset.open("digits@v1", namespace=digits.namespace, on_change="report").take(10)
    other = Dataset.open("/data", namespace=digits.namespace)
    digits.write({"07.image": b"other bytes", "21.image": b"these too"})
    loader = Dataset.mix([one, other]).batch(4).loader()
    read(loader)
    assert [changed.url for changed in loader.changed] == [f"file://{digits.data}/07.image"]
