"""How data work is cut for a cluster: nothing twice, nothing lost, whatever the keys and whichever nodes go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.arrow import from_numbers, from_texts, pa
from headrace.cache.names import object_name
from headrace.catalog.manifest import MANIFEST_SCHEMA, ManifestWriter
from headrace.catalog.portable_objects import NamedObject
from headrace.cluster.data.cuts import SHARD_BYTES, Part, cut, grouped, shard_slices
from headrace.cluster.data.shares import SLICE_BYTES, SLICE_OBJECTS, Sharing, slices
from headrace.fetch.rendezvous import word_of
from headrace.formats.index.index_job import Shard
from headrace.store.protocol import Folder, ObjectInfo

KEYS = st.sets(st.lists(st.sampled_from(["a", "b", "a-b", "a0", "é", "😀", ""]), min_size=1, max_size=4).map("/".join))
NODES = st.sets(st.sampled_from([f"node{number}" for number in range(6)]), min_size=1)
SIZES = st.one_of(st.none(), st.integers(-1, 10), st.integers(0, 2 * SLICE_BYTES))


def level(keys: set[str], prefix: str) -> Folder:
    """As a store tells it, which tells a key that ends in ``/`` here and in its folder."""
    below = sorted(key for key in keys if key.startswith(prefix))
    rests = [key[len(prefix) :] for key in below]
    folders = sorted({f"{prefix}{rest.partition('/')[0]}/" for rest in rests if "/" in rest})
    objects = [key for key in below if "/" not in key[len(prefix) :] or key in folders]
    return Folder(tuple(folders), tuple(ObjectInfo(key, 1, "e", 0) for key in objects))


def listed(keys: set[str], parts: Sequence[Part]) -> list[str]:
    """What listing one part after the other gives."""
    found: list[str] = []
    for part in parts:
        found += sorted(key for key in keys if key.startswith(part)) if isinstance(part, str) else [o.key for o in part]
    return found


@settings(max_examples=40)
@given(keys=KEYS.map(lambda keys: {key for key in keys if key}), wanted=st.integers(1, 12), pieces=st.integers(1, 9))
def test_a_listing_in_pieces_has_every_key_once_and_in_order(keys: set[str], wanted: int, pieces: int) -> None:
    flat = {key[: key.rfind("/") + 1] for key in keys if len(key) % 3 == 0} - {""}
    parts = cut(lambda name: None if name in flat else level(keys, name), "", wanted)
    assert listed(keys, parts) == sorted(keys, key=str.encode)
    groups = grouped(parts, pieces)
    assert list(chain.from_iterable(groups)) == parts
    assert len(groups) <= pieces
    assert all(groups)


@given(
    sizes=st.lists(SIZES, max_size=30), nodes=NODES, lost=st.sets(st.sampled_from(["lost1", "lost2"])),
    copies=st.one_of(st.none(), st.integers(1, 7)),
)  # fmt: skip
def test_every_object_comes_to_as_many_nodes_as_it_is_to_be_on(
    sizes: list[int | None], nodes: set[str], lost: set[str], copies: int | None
) -> None:
    objects = [NamedObject(f"key{number}", size, "v") for number, size in enumerate(sizes)]
    before, left = sorted(nodes | lost), sorted(nodes)
    all_, rest = Sharing(before, copies), Sharing(left, copies, frozenset(lost))
    first, second = list(slices(objects, word, all_)), list(slices(objects, word, rest))
    for _, some in first + second:
        assert 0 < len(some) <= SLICE_OBJECTS
        assert len(some) == 1 or sum(max(0, one.size or 0) for one in some[:-1]) < SLICE_BYTES
    came = [(node, one.name) for node, some in first for one in some]
    if lost and copies is not None:
        came += [(node, one.name) for node, some in second for one in some]
    assert len(came) == len(set(came)), "nothing twice"
    wanted = len(left) if copies is None else min(copies, len(left))
    for one in objects:
        assert sum(name == one.name and node not in lost for node, name in came) == wanted
        held = {node for node in all_.owners(word(one)) if node not in lost}
        new = rest.owners(word(one)) if lost else ()
        assert held.isdisjoint(new)
        if copies is not None:
            assert held | set(new) == set(Sharing(left, copies).owners(word(one))), "what lies well stays where it is"


def word(one: NamedObject) -> int:
    return word_of(object_name("s3://bucket", one.name, "v", 1))


@given(st.lists(st.integers(-1, 2 * SHARD_BYTES), max_size=200))
def test_shards_in_slices_are_all_of_them(sizes: list[int]) -> None:
    shards = [Shard(f"{number}", size, "v") for number, size in enumerate(sizes)]
    made = list(shard_slices(shards))
    assert [shard for some in made for shard in some] == shards
    assert all(len(some) == 1 or sum(max(0, one.size) for one in some[:-1]) < SHARD_BYTES for some in made)


def test_a_manifest_is_the_same_however_its_rows_come(tmp_path: Path) -> None:
    count = 140_000
    numbers = np.arange(count)
    keys = from_texts([f"{number:09}" for number in numbers])
    etags = from_texts([f"{number * 7919 % 10**9:x}" for number in numbers]).cast(pa.string())
    rows = pa.record_batch(
        [keys, from_numbers(numbers), etags, pa.nulls(count, pa.string()), from_numbers(numbers)],
        schema=MANIFEST_SCHEMA,
    )
    written: list[bytes] = []
    for most in (count, 16384, 99_999, 777):
        with ManifestWriter(str(tmp_path / f"{most}")) as writer:
            for start in range(0, count, most):
                writer.add(rows.slice(start, most))
        written.append((tmp_path / f"{most}").read_bytes())
    assert all(one == written[0] for one in written)
