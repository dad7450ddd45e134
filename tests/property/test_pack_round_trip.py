"""What is packed comes back from every layout: each key, part and byte; with columns named, each of these."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pack import PackOptions, pack, unpack

LAYOUTS = ["webdataset", "tfrecord", "parquet"]
WHOLE = {"jpg": st.binary(max_size=40), "cls": st.text("0123456789", min_size=1, max_size=4).map(str.encode)}
"""Parts of each sample, and their bytes."""

part = st.text(
    st.characters(codec="utf-8", exclude_characters="./\0", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6
)
keys = st.lists(part, min_size=1, max_size=3).map("/".join).filter(lambda key: not key.startswith(("_", ".")))
trees = st.dictionaries(keys, st.fixed_dictionaries(WHOLE), min_size=1, max_size=12)


def is_tree(samples: dict[str, object]) -> bool:
    """Whether folders and files, in capitals or not, can be called so at once."""
    return not any(f"{other}.".startswith(f"{key}.jpg/") or "_pack" in key for key in samples for other in samples)


def written(folder: Path, samples: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    files = {f"{key}.{name}": data for key, parts in samples.items() for name, data in parts.items()}
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return files


def read(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=25, deadline=None)
@given(samples=trees.filter(is_tree), seed=st.none() | st.integers(0, 3))
def test_every_object_comes_back(layout: str, samples: dict[str, dict[str, bytes]], seed: int | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = written(folder / "tree", samples)
        options = PackOptions(layout=layout, seed=seed, shard_size=4096)
        pack((folder / "tree").as_uri(), (folder / "packed").as_uri(), options)
        unpack((folder / "packed").as_uri(), (folder / "back").as_uri())
        assert read(folder / "back") == files


@pytest.mark.parametrize("layout", ["tfrecord", "parquet"])
@settings(max_examples=25, deadline=None)
@given(samples=trees.filter(is_tree), columns=st.sampled_from(["jpg:bytes", "cls:bytes", "cls:str, jpg:bytes"]))
def test_every_column_that_is_named_comes_back(layout: str, samples: dict[str, dict[str, bytes]], columns: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = written(folder / "tree", samples)
        pack((folder / "tree").as_uri(), (folder / "packed").as_uri(), PackOptions(layout=layout, columns=columns))
        unpack((folder / "packed").as_uri(), (folder / "back").as_uri())
        wanted = tuple(f".{one.split(':')[0].strip()}" for one in columns.split(","))
        assert read(folder / "back") == {name: data for name, data in files.items() if name.endswith(wanted)}


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=15, deadline=None)
@given(samples=trees.filter(is_tree), through=st.sampled_from(LAYOUTS))
def test_it_goes_through_two_layouts(layout: str, through: str, samples: dict[str, dict[str, bytes]]) -> None:
    """By way of the objects, which is how one becomes the other."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = written(folder / "tree", samples)
        source = "tree"
        for step in (layout, through):
            pack((folder / source).as_uri(), (folder / f"{step}-{source}").as_uri(), PackOptions(layout=step))
            unpack((folder / f"{step}-{source}").as_uri(), (folder / f"back-{source}").as_uri())
            source = f"back-{source}"
        assert read(folder / source) == files
