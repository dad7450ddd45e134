"""safetensors in a real bucket: received in place, through the cache, by slices and shards; saved whole or not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch

import headrace as hr
from headrace.base.errors import (
    ChangedError,
    CorruptError,
    HeadraceError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    TryAgainError,
)
from headrace.base.settings import Settings
from headrace.fetch import Fetcher
from headrace.namespace import Namespace
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.memory_kit import peak_kib

pytestmark = pytest.mark.server
MIB = 1 << 20
Open = Callable[..., Namespace]


def model() -> dict[str, np.ndarray]:
    """41 MiB and some: several parts, a tensor across them, small ones, an empty one."""
    rng = np.random.default_rng(1)
    return {
        "a": rng.standard_normal((3 * MIB, 2)).astype("f4"),
        "b": rng.integers(0, 255, (17 * MIB + 5,), "u1"),
        "c": rng.standard_normal((5, 7)).astype("f2"),
        "empty": np.empty((0, 4), "f4"),
        "one": np.array(2.5),
    }


MODEL = model()


@pytest.fixture
def bucket(seaweedfs: EmbeddedS3) -> str:
    return seaweedfs.create_bucket(f"weights-{os.urandom(4).hex()}")


@pytest.fixture
def open_(seaweedfs: EmbeddedS3, bucket: str, tmp_path: Path) -> Iterator[Open]:
    """A process's namespace over the bucket, at /m: with the node's cache, or with none; through another server."""
    opened: list[Fetcher] = []

    def begin(cache: str = "0", endpoint: str | None = None, **fetch: str) -> Namespace:
        told = {f"HEADRACE_FETCH_{name.upper()}": value for name, value in fetch.items()}
        environ = {"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_CACHE_SIZE": cache, **told}
        fetcher = Fetcher.open(Settings.load(environ=environ))
        opened.append(fetcher)
        ns = Namespace(fetcher.settings, fetcher=lambda: fetcher)
        given = {name: value for name, value in asdict(seaweedfs.options()).items() if value and isinstance(value, str)}
        ns.attach("/m", bucket, **given | ({"endpoint": endpoint} if endpoint else {}))
        return ns

    yield begin
    for fetcher in opened:
        fetcher.close()


@pytest.fixture
def faulty(seaweedfs: EmbeddedS3) -> Iterator[FaultServer]:
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as server:
        yield server


def assert_model(found: dict[str, Any], expected: dict[str, np.ndarray] = MODEL) -> None:
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert found[name].numpy().tobytes() == one.tobytes(), name
        assert tuple(found[name].shape) == one.shape


def counters(ns: Namespace) -> dict[str, float]:
    return ns.fetcher.stats().counters


@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_what_is_saved_is_loaded_and_the_library_reads_it(open_: Open, cache: str) -> None:
    ns = open_(cache)
    hr.safetensors.save(MODEL, "/m/x.safetensors", metadata={"of": "tests"}, namespace=ns)
    assert_model(hr.safetensors.load("/m/x.safetensors", namespace=ns))
    library = safetensors.numpy.load(bytes(ns.read("/m/x.safetensors")))
    assert_model({name: torch.from_numpy(one) for name, one in library.items()})
    opened = hr.safetensors.open("/m/x.safetensors", namespace=ns)
    assert opened.metadata()["of"] == "tests"
    assert set(opened) == set(MODEL)
    assert np.array_equal(opened.get_slice("a")[7:9, 1], MODEL["a"][7:9, 1])


def test_without_a_cache_each_byte_is_received_once_and_may_be_changed(open_: Open, tmp_path: Path) -> None:
    ns = open_()
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=ns)
    before = counters(ns).get("fetch.bytes", 0)
    found = hr.safetensors.load("/m/x.safetensors", namespace=ns)
    size = ns.stat("/m/x.safetensors").size
    assert size - MIB < counters(ns)["fetch.bytes"] - before <= size + MIB // 4, "256 KiB twice at most, for the header"
    found["a"] += 1
    assert torch.equal(found["b"], torch.from_numpy(MODEL["b"]))
    assert not (tmp_path / "cache").exists()


def test_a_cached_file_is_mapped_and_nothing_is_asked_for_again(open_: Open) -> None:
    ns = open_("1GB")
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=ns)
    assert_model(hr.safetensors.load("/m/x.safetensors", namespace=ns))
    another = open_("1GB")
    first = hr.safetensors.load("/m/x.safetensors", namespace=another)
    assert_model(first)
    assert counters(another).get("fetch.bytes", 0) == 0
    for one in first.values():
        one.zero_()  # this process's own: the file stays as it is
    assert_model(hr.safetensors.load("/m/x.safetensors", namespace=open_("1GB"), verify=True))
    assert_model(hr.safetensors.load("/m/x.safetensors", namespace=another))


def test_what_was_mapped_stays_readable_when_it_is_evicted(open_: Open) -> None:
    ns = open_("1GB")
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=ns)
    found = hr.safetensors.load("/m/x.safetensors", namespace=ns)
    assert ns.fetcher.cache is not None
    assert ns.fetcher.cache.evict().entries >= 1
    assert_model(found)


def test_a_model_that_the_cache_is_too_small_for_is_received_in_memory(open_: Open) -> None:
    ns = open_("60MB")
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=ns)
    assert_model(hr.safetensors.load("/m/x.safetensors", namespace=ns))


@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_only_what_is_wanted_is_read(open_: Open, cache: str) -> None:
    ns = open_(cache)
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=ns)
    found = hr.safetensors.load("/m/x.safetensors", only=["c", "one"], namespace=ns)
    assert_model(found, {name: MODEL[name] for name in ("c", "one")})
    read = 9 * MIB if cache != "0" else MIB  # blocks of 4 MiB each
    assert counters(ns)["fetch.bytes"] < read
    found = hr.safetensors.load("/m/x.safetensors", only=lambda name: name in "ac", namespace=ns)
    assert_model(found, {name: MODEL[name] for name in ("a", "c")})


@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_ranks_read_their_slices(open_: Open, cache: str) -> None:
    ns = open_(cache)
    wide = np.random.default_rng(2).standard_normal((64, 65536)).astype("f4")  # 16 MiB
    hr.safetensors.save({"rows": wide, "columns": wide[::-1], "bias": wide[0, :9]}, "/m/x.safetensors", namespace=ns)
    ranks = []
    before = counters(ns).get("fetch.bytes", 0)
    for rank in range(4):
        part = slice(16 * rank, 16 * rank + 16), slice(16384 * rank, 16384 * rank + 16384)
        slices = {"rows": part[0], "columns": (..., part[1])}
        ranks.append(hr.safetensors.load("/m/x.safetensors", framework="numpy", slices=slices, namespace=ns))
    assert np.array_equal(np.concatenate([one["rows"] for one in ranks]), wide)
    assert np.array_equal(np.concatenate([one["columns"] for one in ranks], 1), wide[::-1])
    assert all(np.array_equal(one["bias"], wide[0, :9]) for one in ranks)
    read = (counters(ns)["fetch.bytes"] - before) / MIB
    assert read < (16 + 16 * 4 + 6 if cache == "0" else 33), "rows lie together; columns are cut from whole rows"


def sharded(ns: Namespace, folder: str) -> dict[str, np.ndarray]:
    """Three shards with an index, as transformers writes them."""
    values = {f"layer.{n}": np.full((1000, 3), n, "f4") for n in range(6)}
    places = {}
    for shard in range(3):
        name = f"model-{shard + 1:05}-of-00003.safetensors"
        mine = {f"layer.{n}": values[f"layer.{n}"] for n in (2 * shard, 2 * shard + 1)}
        hr.safetensors.save(mine, f"{folder}/{name}", namespace=ns)
        places.update(dict.fromkeys(mine, name))
    told = {"metadata": {"total_size": 72000}, "weight_map": places}
    ns.write(f"{folder}/model.safetensors.index.json", json.dumps(told).encode())
    return values


def test_of_a_sharded_model_only_the_shards_wanted_are_read(open_: Open, faulty: FaultServer) -> None:
    values = sharded(open_(), "/m/big")
    ns = open_(endpoint=faulty.endpoint)
    wanted = ["layer.5", "layer.4"]
    found = hr.safetensors.load("/m/big/model.safetensors.index.json", only=wanted, namespace=ns)
    assert list(found) == wanted
    assert_model(found, {name: values[name] for name in wanted})
    assert not [one for one in faulty.seen if "00001-of" in one.path or "00002-of" in one.path]
    assert_model(hr.safetensors.load("/m/big", namespace=ns), values)
    rank = hr.safetensors.load("/m/big", slices={"layer.2": slice(10, 30)}, only=["layer.2"], namespace=ns)
    assert rank["layer.2"].shape == (20, 3)
    with hr.safetensors.open("/m/big", namespace=ns) as opened:
        assert opened.shapes == dict.fromkeys(values, (1000, 3))
        assert float(opened.get_slice("layer.3")[5, 2]) == 3.0


@pytest.mark.parametrize(
    "index",
    [
        b"nonsense",
        b"[]",
        b'{"weight_map": []}',
        b'{"weight_map": {"x": 1}}',
        b'{"weight_map": {"x": "../x.safetensors"}}',
        b'{"weight_map": {"x": "/x.safetensors"}}',
        b'{"weight_map": {"x": "s3://other/x.safetensors"}}',
    ],
)
def test_an_index_that_is_none_or_leads_elsewhere_is_refused(open_: Open, index: bytes) -> None:
    ns = open_()
    ns.write("/m/model.safetensors.index.json", index)
    with pytest.raises(CorruptError, match="index"):
        hr.safetensors.load("/m/model.safetensors.index.json", namespace=ns)


def test_names_that_are_not_there_are_told_with_those_that_are_near(open_: Open) -> None:
    ns = open_()
    sharded(ns, "/m/big")
    ns.write("/m/notes.txt", b"x" * 100)
    for wrong in ({"only": ["layer.9"]}, {"slices": {"layer.9": slice(1)}}):
        with pytest.raises(InputError, match=r"layer\.9.*did you mean.*layer"):
            hr.safetensors.load("/m/big", namespace=ns, **wrong)
    with pytest.raises(NotFoundError):
        hr.safetensors.load("/m/none.safetensors", namespace=ns)
    with pytest.raises(CorruptError, match="no safetensors file"):
        hr.safetensors.load("/m/notes.txt", namespace=ns)
    ns.write("/m/empty/x.bin", b"")
    with pytest.raises(NotFoundError, match="neither"):
        hr.safetensors.load("/m/empty", namespace=ns)


@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_a_tensor_that_was_damaged_on_its_way_is_named(open_: Open, faulty: FaultServer, cache: str) -> None:
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=open_())
    ns = open_(cache, endpoint=faulty.endpoint)
    hr.safetensors.open("/m/x.safetensors", namespace=ns)
    faulty.plan = Plan([Fault(Kind.CORRUPT, "*x.safetensors", count=1, after=1)])
    with pytest.raises(CorruptError, match=r"tensor '[ab]' does not match its checksum"):
        hr.safetensors.load("/m/x.safetensors", namespace=ns, verify=True)


def test_a_tensor_is_compared_with_a_checksum_that_is_given(open_: Open) -> None:
    ns = open_()
    hr.safetensors.save({"x": np.arange(3)}, "/m/x.safetensors", checksums=False, namespace=ns)
    hr.safetensors.load("/m/x.safetensors", namespace=ns, checksums={"y": "0"})
    with pytest.raises(CorruptError, match="'x'"):
        hr.safetensors.load("/m/x.safetensors", namespace=ns, checksums={"x": "0" * 16})
    hr.safetensors.load("/m/x.safetensors", namespace=ns, checksums={"x": "0" * 16}, verify=False)


@pytest.mark.parametrize("kind", [Kind.TRUNCATE, Kind.RESET, Kind.SLOW_DOWN, Kind.SHORT])
@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_answers_that_are_cut_off_are_asked_for_again(open_: Open, faulty: FaultServer, kind: Kind, cache: str) -> None:
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=open_())
    faulty.plan = Plan([Fault(kind, "*x.safetensors", rate=0.4, count=4)])
    assert_model(hr.safetensors.load("/m/x.safetensors", namespace=open_(cache, endpoint=faulty.endpoint)))


@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_a_store_that_stays_away_is_told_and_no_thread_is_left(open_: Open, faulty: FaultServer, cache: str) -> None:
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=open_())
    ns = open_(cache, endpoint=faulty.endpoint, deadline="2s", retries="2")
    hr.safetensors.open("/m/x.safetensors", namespace=ns)
    faulty.plan = Plan([Fault(Kind.INTERNAL)])
    with pytest.raises(TryAgainError):
        hr.safetensors.load("/m/x.safetensors", namespace=ns)


def test_an_object_that_is_replaced_is_loaded_as_it_is_now_or_refused(open_: Open, faulty: FaultServer) -> None:
    ns = open_(endpoint=faulty.endpoint)
    for value in (1, 2):
        hr.safetensors.save({"x": np.full(3 * MIB, value, "f4")}, "/m/x.safetensors", namespace=open_())
        assert float(hr.safetensors.load("/m/x.safetensors", namespace=ns)["x"][-1]) == value, "seen a moment ago"
    faulty.plan = Plan([Fault(Kind.CHANGED, "*x.safetensors", after=2)])
    with pytest.raises(ChangedError):
        hr.safetensors.load("/m/x.safetensors", namespace=ns)


class Broken:
    """Looks like an array until it is read."""

    dtype = np.dtype("f4")

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise OSError("the disk is gone")


def test_a_failed_save_leaves_what_was_there(open_: Open, faulty: FaultServer) -> None:
    ns = open_()
    hr.safetensors.save({"x": np.arange(3)}, "/m/x.safetensors", namespace=ns)
    faulty.plan = Plan([Fault(Kind.ARCHIVED, operations=frozenset({"put"}), after=1)])
    for namespace, tensors in ((ns, {"x": Broken()}), (open_(endpoint=faulty.endpoint), MODEL)):
        with pytest.raises((HeadraceError, OSError)):
            hr.safetensors.save(tensors, "/m/x.safetensors", namespace=namespace)
    assert hr.safetensors.load("/m/x.safetensors", namespace=ns)["x"].tolist() == [0, 1, 2]


def test_nothing_is_saved_where_nothing_may_be_written(open_: Open) -> None:
    ns = open_()
    (mount,) = ns.mounts()
    ns.attach("/r", f"{mount.url}/below", read_only=True, **mount.options)
    with pytest.raises(ReadOnlyError):
        hr.safetensors.save(MODEL, "/r/x.safetensors", namespace=ns)
    with pytest.raises(InputError):
        hr.safetensors.save(MODEL, "/m", namespace=ns)


@pytest.mark.parametrize("cache", ["0", "1GB"])
def test_memory_stays_near_the_models_size(open_: Open, cache: str) -> None:
    """At most 64 MiB above; a save copies no tensor."""
    size = 160 * MIB
    tensors = {f"w{n}": np.full(size // 8, n, "u1") for n in range(8)}
    ns = open_(cache)
    base = peak_kib(anew=True)
    hr.safetensors.save(tensors, "/m/x.safetensors", namespace=ns)
    assert peak_kib() - base < 64 << 10
    del tensors
    base = peak_kib(anew=True)
    found = hr.safetensors.load("/m/x.safetensors", namespace=ns)
    assert all(int(found[f"w{n}"][-1]) == n for n in range(8))
    assert peak_kib() - base < (size >> 10) + (64 << 10)


def test_what_another_process_reads_too_is_fetched_once(open_: Open) -> None:
    ns, other = open_("1GB"), open_("1GB")
    hr.safetensors.save(MODEL, "/m/x.safetensors", namespace=ns)
    with closing(ns), ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda one: hr.safetensors.load("/m/x.safetensors", namespace=one), (ns, other)):
            assert_model(found)
    read = sum(counters(one).get("fetch.bytes", 0) for one in (ns, other))
    assert read < 1.3 * ns.stat("/m/x.safetensors").size
