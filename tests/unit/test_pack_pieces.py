"""A packing that is made elsewhere: cut into pieces, by orders that travel, to the same shards and the same index."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import ChangedError, UnsupportedError
from headrace.base.settings import CacheSettings, Settings
from headrace.namespace import Namespace
from headrace.pack import PackOptions, pack
from headrace.pack.journal import Record
from headrace.pack.orders import Made, Orders, pieces_of
from headrace.pack.packing import Taker
from headrace.pack.unpacking import Shard
from headrace.pack.unpacking import pieces_of as pieces_of_shards
from headrace.pack.workshop import Workshop, opened

COUNT = 40


@given(st.lists(st.integers(0, 10**6), unique=True), st.integers(2048, 10**9))
def test_every_shard_is_in_one_piece_and_pieces_are_small_and_many(numbers: list[int], size: int) -> None:
    pieces = pieces_of(numbers, size)
    assert [number for piece in pieces for number in piece] == numbers
    assert len(pieces) >= min(len(numbers), 64)
    assert all(len(piece) == 1 or len(piece) * size <= 256 << 20 for piece in pieces)


@given(st.lists(st.integers(0, 10**9)))
def test_every_shard_is_unpacked_once_whatever_their_sizes(sizes: list[int]) -> None:
    shards = [Shard(f"{place:05}.tar", size) for place, size in enumerate(sizes)]
    pieces = pieces_of_shards(shards)
    assert [path for piece in pieces for path in piece] == [shard.path for shard in shards]
    of = dict(shards)
    assert all(len(piece) == 1 or sum(of[path] for path in piece) <= 64 << 20 for piece in pieces)
    if len(shards) >= 64 and len(set(sizes)) == 1 and sizes[0]:
        assert len(pieces) >= 64


class Elsewhere:
    """Makes shards as another process would: by orders that were pickled, on a shelf of its own."""

    def __init__(self, settings: Settings, source: Path | None = None) -> None:
        self.settings, self.source = settings, source
        self.orders: Orders | None = None
        self.made: list[Made] = []

    def make(self, shop: Workshop, numbers: Sequence[int], take: Taker) -> None:
        self.orders = pickle.loads(pickle.dumps(shop.orders))
        assert self.orders is not None
        with opened(self.orders, Namespace.load(self.settings), self.settings, threading.Event()) as there:
            for number in numbers:
                made = there.make_anywhere(number)
                self.made.append(made)
                if self.source is not None:  # a piece is worked off twice: nothing is read for it again
                    self.source.rename(self.source.with_name("gone"))
                    assert there.make_anywhere(number) == made
                    self.source.with_name("gone").rename(self.source)
                if made.rows is not None:
                    shop.index.take(made.rows)
                take(made.record)

    def prove(self, shop: Workshop, records: Sequence[Record]) -> None:
        for record in records:
            shop.prove(record)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    for number in range(COUNT):
        (tmp_path / f"tree/{number:02}.bin").write_bytes(bytes([number]) * 200)
        (tmp_path / f"tree/{number:02}.cls").write_bytes(b"%d" % number)
    return tmp_path


def settings_of(folder: Path, name: str) -> Settings:
    return Settings(cache=CacheSettings(dir=str(folder / f"cache-{name}"), ttl=0.0))


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("layout", ["webdataset", "tfrecord", "parquet"])
def test_shards_made_elsewhere_are_those_made_here(tree: Path, layout: str) -> None:
    options = PackOptions(layout=layout, shard_size=4096, seed=5, where="size > 205 or 'cls' in parts")
    here, source = settings_of(tree, "here"), (tree / "tree").as_uri()
    one = pack(source, (tree / "one").as_uri(), options, settings=here)
    hands = Elsewhere(settings_of(tree, "there"), tree / "tree")
    two = pack(source, (tree / "two").as_uri(), options, settings=here, hands=hands)
    assert one.shards > 2
    assert (one.shards, one.bytes, one.samples) == (two.shards, two.bytes, two.samples)
    made, same = files(tree / "two"), files(tree / "one")
    shards = [name for name in same if not name.startswith("_pack/")]
    assert [made[name] for name in shards] == [same[name] for name in shards]
    assert made.get("_pack/index/rows") == same.get("_pack/index/rows")
    if layout != "parquet":
        assert all(one.rows is not None for one in hands.made), "nobody reads shards again for the index"


def test_a_node_with_other_samples_or_another_pyarrow_makes_nothing(tree: Path) -> None:
    here, source = settings_of(tree, "here"), (tree / "tree").as_uri()
    hands = Elsewhere(settings_of(tree, "there"))
    pack(source, (tree / "one").as_uri(), PackOptions(layout="parquet", shard_size=4096), settings=here, hands=hands)
    orders = hands.orders
    assert orders is not None
    orders.check(orders.terms)
    with pytest.raises(UnsupportedError, match="Parquet would be written by 1 here"):
        orders.check({**orders.terms, "writer": "1"})
    (tree / "tree/99.bin").write_bytes(b"new")
    elsewhere = opened(orders, Namespace.load(hands.settings), hands.settings, threading.Event())
    with pytest.raises(ChangedError, match="other samples"), elsewhere:
        pass
