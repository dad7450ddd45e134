"""The plan of a packing: whole, bounded, pure; and the notes beside the shards."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import ChangedError, CorruptError, InputError
from headrace.base.progress import SILENT
from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.sample_index import Part
from headrace.loader import Dataset, Skip
from headrace.namespace import Namespace
from headrace.pack import PackOptions, pack
from headrace.pack.members import weigh
from headrace.pack.options import load_function
from headrace.pack.plan import make_plan

COUNT = 300


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Namespace, Settings]:
    folder = tmp_path_factory.mktemp("plan")
    (folder / "tree").mkdir()
    for number in range(COUNT):
        (folder / f"tree/{number:03d}.bin").write_bytes(bytes(number * 7))
        (folder / f"tree/{number:03d}.{'x' * (1 + number % 130)}").write_bytes(b"x")
    chosen = Settings(cache=CacheSettings(dir=str(folder / "cache"), ttl=0.0))
    return folder, Namespace.load(chosen), chosen


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(2048, 300_000), st.one_of(st.none(), st.integers(0, 1000)))
def test_every_sample_is_in_one_shard_and_a_shard_is_as_large_as_it_may_be(
    place: tuple[Path, Namespace, Settings], size: int, seed: int | None
) -> None:
    folder, namespace, _ = place
    dataset = Dataset.open((folder / "tree").as_uri(), namespace=namespace)
    options = PackOptions(shard_size=size, seed=seed)
    plan = make_plan(dataset, options, SILENT)
    assert plan.terms == make_plan(dataset, options, SILENT).terms
    assert plan.starts[0] == 0
    assert plan.starts[-1] == COUNT == plan.samples
    assert (np.diff(plan.starts) > 0).all()

    rows = plan.dataset.stream.locate(0, np.arange(COUNT))[1]
    assert sorted(rows.tolist()) == list(range(COUNT))
    index = plan.dataset.leaves[0].index
    pairs = zip(index.specs(rows), index.sizes(rows).tolist(), strict=True)
    weights = [weigh(spec, payload, checked=True) for spec, payload in pairs]
    for number in range(plan.shards):
        start, stop = plan.starts[number], plan.starts[number + 1]
        filled = sum(weights[start:stop]) + 1024
        assert filled <= size or stop - start == 1
        if number + 1 < plan.shards:
            assert filled + weights[stop] > size


def test_a_shard_has_exactly_the_bytes_that_were_planned(place: tuple[Path, Namespace, Settings]) -> None:
    folder, namespace, chosen = place
    out = folder / "exact"
    options = PackOptions(shard_size=10**9)
    packed = pack((folder / "tree").as_uri(), out.as_uri(), options, namespace=namespace, settings=chosen)
    index = Dataset.open((folder / "tree").as_uri(), namespace=namespace).leaves[0].index
    rows = np.arange(COUNT)
    pairs = zip(index.specs(rows), index.sizes(rows).tolist(), strict=True)
    assert packed.bytes == sum(weigh(spec, payload, checked=True) for spec, payload in pairs) + 1024
    assert (out / "000000.tar").stat().st_size == packed.bytes


def test_a_key_that_no_tar_can_hold_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "z").mkdir()
    for name in ("a.data", "b.data", "z/.x.data"):
        (tmp_path / name).write_bytes(b"x")
    dataset = Dataset.open(tmp_path.as_uri())
    with pytest.raises(InputError, match="dot in its last part") as refused:
        make_plan(dataset, PackOptions(), SILENT)
    assert refused.value.path == "z/.x"


def test_pieces_of_larger_objects_weigh_no_less_than_they_take() -> None:
    parts = (Part("a", "shard.tar", 10**9, "v"), Part("b", "shard.tar", 10**9, "v"))
    assert 2 * 512 + 1024 <= weigh(("k", parts, {"__shard__": "shard.tar"}), 600, checked=True) < 2 * 512 + 1024 + 1200


def test_a_source_that_changes_while_it_is_packed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(20):
        (tmp_path / f"tree/{number:02d}.bin").write_bytes(bytes(100))
    os.utime(tmp_path / "tree", (1e9, 1e9))  # what is changed in place, a folder does not tell
    chosen = Settings(cache=CacheSettings(dir=str(tmp_path / "cache"), ttl=600.0))
    namespace = Namespace.load(chosen)
    source, out = (tmp_path / "tree").as_uri(), (tmp_path / "out").as_uri()
    assert len(Dataset.open(source, namespace=namespace)) == 20  # listed, and remembered
    (tmp_path / "tree/07.bin").write_bytes(bytes(101))
    with pytest.raises(ChangedError, match=r"07\.bin"):
        pack(source, out, namespace=namespace, settings=chosen)
    options = PackOptions(max_errors=Skip(max_count=1))
    assert pack(source, out, options, namespace=namespace, settings=chosen).skipped == 1


def test_notes_that_make_no_sense_cost_only_their_shard(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(20):
        (tmp_path / f"tree/{number:02d}.bin").write_bytes(bytes(1000))
    chosen = Settings(cache=CacheSettings(dir=str(tmp_path / "cache")))
    source, out = (tmp_path / "tree").as_uri(), tmp_path / "out"
    options = PackOptions(shard_size=10_000)

    def again() -> int:
        return pack(source, out.as_uri(), options, settings=chosen).made

    shards = again()
    assert shards > 3
    notes = out / "_pack/shards"
    (notes / "000000.json").write_bytes(b"\xff")
    (notes / "000001.json").write_text('{"number": 1}')
    (notes / "000002.json").write_text((notes / "000003.json").read_text())
    assert again() == 3
    wrong = json.loads((notes / "000001.json").read_text()) | {"size": 7}
    (notes / "000001.json").write_text(json.dumps(wrong))
    assert again() == 1
    assert again() == 0
    (out / "_pack/plan.json").write_text("[]")
    with pytest.raises(CorruptError, match=r"plan\.json"):
        again()


def test_full_verification_finds_what_the_listing_does_not_show(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/a.bin").write_bytes(bytes(1000))
    chosen = Settings(cache=CacheSettings(dir=str(tmp_path / "cache")))
    source, out = (tmp_path / "tree").as_uri(), tmp_path / "out"
    pack(source, out.as_uri(), settings=chosen)
    shard = out / "000000.tar"
    note = out / "_pack/shards/000000.json"
    noted = json.loads(note.read_text())
    note.write_text(json.dumps(noted | {"digest": "0" * 32}))  # as if a bit had flipped on the way
    assert pack(source, out.as_uri(), settings=chosen).made == 0
    with pytest.raises(CorruptError, match=r"000000\.tar: reads otherwise"):
        pack(source, out.as_uri(), PackOptions(verify="full"), settings=chosen)
    shard.unlink()
    assert pack(source, out.as_uri(), PackOptions(verify="full"), settings=chosen).made == 1
    with tarfile.open(shard) as tar:
        assert tar.getnames() == ["a.bin"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"shard_size": 100},
        {"workers": -1},
        {"memory": 0},
        {"verify": "never"},
        {"name": "x.tar"},
        {"name": "%d"},
        {"name": "%d%d.tar"},
        {"name": "a/%d.tar"},
        {"name": "%s.tar"},
        {"name": "_%d.tar"},
        {"function": "nothing"},
        {"function": "a:b:c"},
    ],
)
def test_options_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError) as caught:
        PackOptions(**wrong)  # type: ignore[arg-type]
    assert caught.value.hint or "at least" in caught.value.reason


def test_functions_are_found_by_module_and_name() -> None:
    assert load_function("os:path.join")("a", "b") == "a/b"
    for wrong in ("os:name", "os:nothing", "no_such_module:f"):
        with pytest.raises(InputError):
            load_function(wrong)
