"""A store of what was pinned lists and finds exactly what the store itself had then."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import ChangedError, NotFoundError, ReadOnlyError
from headrace.catalog.index_cache import Shelf
from headrace.catalog.manifest import page_batch, versioned
from headrace.catalog.object_index import build_objects
from headrace.jobs.inputs import pinned
from headrace.jobs.inputs.pinned import PinnedStore
from headrace.store import Store, open_store
from headrace.store.protocol import ObjectInfo

PARTS = st.text(st.sampled_from("ab.0-é\U0001f600/"), min_size=1, max_size=4)
KEYS = st.sets(st.lists(PARTS, min_size=1, max_size=3).map("/".join), min_size=1, max_size=30)


def pinned_store(store: Store, prefix: str, infos: list[ObjectInfo], folder: Path) -> PinnedStore:
    times = np.array([info.mtime_us for info in infos])
    batch = page_batch(infos, prefix)
    return PinnedStore(store, prefix, build_objects(Shelf(str(folder)), [versioned(batch)]), times)


@pytest.mark.parametrize("page", [1, 3, 4096])
@settings(deadline=None, max_examples=50)
@given(keys=KEYS, probes=st.lists(st.one_of(PARTS, st.just("")), max_size=4))
def test_it_tells_what_was_there(
    page: int, keys: set[str], probes: list[str], tmp_path_factory: pytest.TempPathFactory
):
    pinned._PAGE = page
    order = sorted((f"in/{key}" for key in keys), key=str.encode)
    infos = [ObjectInfo(key, at, f"tag-{at}" if at % 2 else None, at) for at, key in enumerate(order)]
    expected, folder = dict(zip(order, infos, strict=True)), tmp_path_factory.getbasetemp() / "shelf"
    store = pinned_store(open_store("memory://none"), "in/", infos, folder)
    folders = {"in/", *(key[: index + 1] for key in expected for index, mark in enumerate(key) if mark == "/")}
    for prefix in ["", "in/", *folders, *(f"in/{probe}" for probe in probes)]:
        told = list(chain.from_iterable(store.list(prefix)))
        assert told == [expected[key] for key in order if key.startswith(prefix)]
    for after in [f"in/{probe}" for probe in probes] + order[:3]:
        told = [info.key for info in chain.from_iterable(store.list("in/", start_after=after))]
        assert told == [key for key in order if key.encode() > after.encode()]
    for folder in folders:
        mine = store.list_folder(folder)
        rest = {key: key[len(folder) :] for key in expected if key.startswith(folder)}
        assert list(mine.objects) == [expected[key] for key in order if key in rest and "/" not in rest[key]]
        inner = {folder + name.partition("/")[0] + "/" for name in rest.values() if "/" in name}
        assert sorted(mine.folders) == sorted(inner)
    for key in order:
        assert store.head(key) == expected[key]
    for probe in probes:
        if f"in/{probe}" not in expected:
            with pytest.raises(NotFoundError):
                store.head(f"in/{probe}")


def test_other_bytes_are_never_given_and_nothing_is_written(tmp_path: Path):
    memory = open_store("memory://some")
    memory.put("in/a", b"one")
    store = pinned_store(memory, "in/", [memory.head("in/a")], tmp_path)
    memory.put("in/a", b"two")
    with pytest.raises(ChangedError):
        store.get("in/a")
    for write in (
        lambda: store.put("in/a", b"x"), lambda: store.delete(["in/a"]), lambda: store.copy("in/a", "in/b"),
        lambda: store.assemble("in/b"),
    ):  # fmt: skip
        with pytest.raises(ReadOnlyError):
            write()
    assert bytes(memory.get("in/a").data) == b"two"
