"""Single objects packed as they are: the very shards that come of taking each sample in the hand, and their index."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.base.errors import BadSampleError, NotFoundError
from headrace.base.settings import CacheSettings, Settings
from headrace.loader import Dataset, Skip
from headrace.namespace import Namespace
from headrace.pack import PackOptions, objects, pack
from headrace.store import ForwardingStore, ObjectInfo, open_store

WHAT = "function:same"



@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Samples of one part and of two, empty ones, long names, hidden parts, parts as large as several blocks."""
    (tmp_path / "function.py").write_text("def same(sample):\n    return sample\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = {f"{number % 3}/{number:03d}.PNG": os.urandom(number * 97) for number in range(150)}
    made |= {f"{number % 3}/{number:03d}.cls": str(number).encode() for number in range(0, 150, 7)}
    made |= {"0/big.bin": os.urandom(700_000), f"é/{'long' * 30}.meta.json": b"{}", "1/001.__private": b"x"}
    for name, data in made.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def packed(folder: Path, name: str, **options) -> dict[str, bytes]:
    """Packs ``tree`` into a folder of that name, with a cache of its own: the files there."""
    chosen = Settings(cache=CacheSettings(dir=str(folder / f"cache-{name}"), ttl=0.0))
    out = folder / name
    options = {"shard_size": 200_000, "workers": 2, "seed": 3, **options}
    pack((folder / "tree").as_uri(), out.as_uri(), PackOptions(**options), settings=chosen)
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("by", ["stem", "class", "object"])
def test_the_same_shards_and_the_same_index_as_sample_by_sample(tree: Path, by: str) -> None:
    if by == "object":  # then keys have dots, which only a function may mend
        for path in list((tree / "tree").rglob("*.*")):
            path.rename(path.with_name(path.name.replace(".", "_")))
    ours, theirs = packed(tree, "ours", by=by), packed(tree, "theirs", by=by, function=WHAT)
    tars = [name for name in ours if name.endswith(".tar")]
    assert len(tars) > 3
    assert {name: ours[name] for name in tars} == {name: theirs[name] for name in tars}


def test_the_index_written_is_the_one_that_reading_the_shards_gives(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [name for name in packed(tree, "out") if name.startswith("_pack/index/")]
    assert written

    def seen(cache: str) -> list[dict[str, object]]:
        monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tree / cache))
        with Dataset.open((tree / "out").as_uri()).loader() as loader:
            return [{name: bytes(v) if name[0] != "_" else v for name, v in sample.items()} for sample in loader]

    adopted = seen("first")
    for name in written:
        (tree / "out" / name).unlink()
    assert adopted == seen("second")
    assert len(adopted) == 152


def test_a_sample_of_hidden_parts_alone_is_named(tree: Path) -> None:
    (tree / "tree/odd.__hidden").write_bytes(b"x")
    with pytest.raises(BadSampleError, match="has no parts"):
        packed(tree, "out")


def test_no_temporary_file_is_needed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tree / "nowhere"))
    monkeypatch.setattr("tempfile.TemporaryFile", None)
    assert any(name.endswith(".tar") for name in packed(tree, "out"))


def test_what_cannot_be_read_is_left_out_within_the_budget_or_named(tree: Path) -> None:
    class Missing(ForwardingStore):
        def get(self, key: str, *arguments, **options):
            if key.endswith("/033.PNG"):
                raise NotFoundError("is gone")
            return super().get(key, *arguments, **options)

    chosen = Settings(cache=CacheSettings(dir=str(tree / "cache"), ttl=0.0))

    namespace = Namespace.load(chosen, opener=lambda *how: Missing(open_store(*how)))
    source, out = (tree / "tree").as_uri(), (tree / "out").as_uri()
    with pytest.raises(NotFoundError, match="is gone"):
        pack(source, out, PackOptions(), namespace=namespace, settings=chosen)
    done = pack(source, out, PackOptions(max_errors=Skip(max_count=1)), namespace=namespace, settings=chosen)
    assert (done.skipped, done.samples) == (1, 151)


def test_another_run_s_shard_that_appears_meanwhile_is_kept_or_replaced(tree: Path) -> None:
    expected = packed(tree, "alone")

    class Late(ForwardingStore):
        """Shards that are there when one is finished were not there when it was begun."""

        def head(self, key: str) -> ObjectInfo:
            if key.endswith(".tar") and key not in asked:
                asked.add(key)
                raise NotFoundError("not yet")
            return super().head(key)

    asked: set[str] = set()
    out = tree / "out"
    out.mkdir()
    chosen = Settings(cache=CacheSettings(dir=str(tree / "cache"), ttl=0.0))
    namespace = Namespace.load(chosen, opener=lambda *how: Late(open_store(*how)))
    options = PackOptions(shard_size=200_000, workers=2, seed=3)
    pack((tree / "tree").as_uri(), out.as_uri(), options, namespace=namespace, settings=chosen)
    kept = out / "000001.tar"
    before = kept.stat()
    for number in (1, 2):
        (out / f"_pack/shards/{number:06d}.json").unlink()
    (out / "000002.tar").write_bytes(b"torn")
    asked.clear()
    done = pack((tree / "tree").as_uri(), out.as_uri(), options, namespace=namespace, settings=chosen)
    assert done.made == 2
    assert kept.stat().st_ino == before.st_ino, "the same bytes were sent again"
    assert {path.name: path.read_bytes() for path in out.glob("*.tar")} == {
        name: data for name, data in expected.items() if name.endswith(".tar")
    }


def test_a_function_or_shards_take_the_loader_s_way(tree: Path) -> None:
    packed(tree, "out")
    namespace = Namespace.load(Settings(cache=CacheSettings(dir=str(tree / "cache"), ttl=0.0)))
    plain = Dataset.open((tree / "tree").as_uri(), namespace=namespace)
    assert objects.takes(plain)
    assert not objects.takes(plain.map(dict))
    assert not objects.takes(Dataset.open((tree / "out").as_uri(), namespace=namespace))
