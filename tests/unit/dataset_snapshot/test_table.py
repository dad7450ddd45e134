"""Tables of paths."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.base.errors import CorruptError, InputError, NotFoundError
from headrace.formats.open_options import OpenOptions
from headrace.formats.opening_targets import open_source
from tests.unit.dataset_snapshot.kit import World

CSV = b"path,score,who\nz/2.png,0.5,ann\nz/1.png,1.5,bob\nz/2.txt,9,cee\n"


def test_csv(world: World) -> None:
    world.write({"t/list.csv": CSV})
    index = open_source("/data/t/list.csv", **world.context)
    assert len(index) == 2
    specs = index.specs(np.array([1, 0]))
    assert [(key, [(p.name, p.key, p.size, p.version) for p in parts], extra) for key, parts, extra in specs] == [
        ("z/1", [("png", "t/z/1.png", -1, None)], {"score": 1.5, "who": "bob"}),
        ("z/2", [("png", "t/z/2.png", -1, None), ("txt", "t/z/2.txt", -1, None)], {"score": 0.5, "who": "ann"}),
    ]
    assert index.sizes(np.arange(2)).tolist() == [0, 0]
    assert not index.pinned


@pytest.mark.parametrize(
    ("paths", "keys"),
    [
        (["/data/x/1.png", "/data/y.png"], ["x/1.png", "y.png"]),
        (["../x/1.png", "./2.png"], ["x/1.png", "t/2.png"]),
        (["./2.png"], ["t/2.png"]),
        (["file://{data}/x/1.png"], ["x/1.png"]),
    ],
)
def test_kinds_of_paths(world: World, paths: list[str], keys: list[str]) -> None:
    table = pa.table({"path": [p.format(data=world.data) for p in paths]})
    (world.data / "t").mkdir()
    pq.write_table(table, world.data / "t/list.parquet")
    index = open_source("/data/t/list.parquet", **world.context)
    got = [part.key for _, parts, _ in index.specs(np.arange(len(index))) for part in parts]
    assert [f"{index.store.url}/{key}" for key in got] == [f"file://{world.data}/{key}" for key in keys]


def test_names_like_numbers(world: World) -> None:
    world.write({"l.csv": b"path\n007\n1e5\n"})
    index = open_source("/data/l.csv", **world.context)
    assert [key for key, _, _ in index.specs(np.arange(2))] == ["007", "1e5"]


def test_order_is_the_tables(world: World) -> None:
    world.write({"l.csv": b"path\n" + b"".join(b"%d.x\n" % n for n in (5, 3, 9, 1))})
    for by in ("stem", "object"):
        index = open_source("/data/l.csv", OpenOptions(by=by), **world.context)
        assert [parts[0].key for _, parts, _ in index.specs(np.arange(4))] == ["5.x", "3.x", "9.x", "1.x"]


def test_repeats(world: World) -> None:
    world.write({"l.csv": b"path\na.x\na.x\n"})
    with pytest.raises(InputError, match=r"'a\.x' more than once"):
        open_source("/data/l.csv", **world.context)
    assert len(open_source("/data/l.csv", OpenOptions(by="object"), **world.context)) == 2


def test_classes_of_a_table(world: World) -> None:
    world.write({"l.csv": b"path,w\nb/1.x,1\na/1.x,2\n"})
    index = open_source("/data/l.csv", OpenOptions(by="class"), **world.context)
    assert [extra for _, _, extra in index.specs(np.arange(2))] == [{"w": 1, "class": 1}, {"w": 2, "class": 0}]


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (b"file,x\na,1\n", InputError, "no column 'path'"),
        (b"path\n", InputError, "no rows"),
        (b"path,x\na,1\n,2\n", InputError, "row 1 has no path"),
        (b"path\n/data/a\nb\n", InputError, "mixes"),
        (b"path\n/data/a\n/other/b\n", InputError, "different stores"),
        (b"path\n../../x\n", InputError, "above"),
        (b"path,x\n1,2\n3\n", CorruptError, "cannot be read"),
    ],
)
def test_bad_tables(world: World, text: bytes, error: type[Exception], says: str) -> None:
    world.write({"l.csv": text})
    with pytest.raises(error, match=says):
        open_source("/data/l.csv", **world.context)


def test_no_table(world: World, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_source("/data/none.csv", **world.context)
    world.write({"l.parquet": b"PAR1 not really"})
    with pytest.raises(CorruptError):
        open_source("/data/l.parquet", **world.context)
