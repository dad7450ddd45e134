"""Publications: nothing counts before its marker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.base.errors import AlreadyExistsError, CorruptError, InputError, NotFoundError
from headrace.store import Store, open_store
from headrace.upload import MARKER, Uploader, commit, is_complete, missing, publish, published, retract


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}/store" if request.param == "file" else f"memory://{tmp_path.name}")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    made = {}
    for name in ("model.bin", "shards/0", "shards/größe.txt"):
        made[name] = tmp_path / str(len(made))
        made[name].write_text(name * 100)
    return made


@pytest.fixture
def uploader():
    with Uploader() as opened:
        yield opened


def test_a_publication(store: Store, uploader: Uploader, files: dict[str, Path]) -> None:
    assert not is_complete(store, "ckpt/7")
    assert published(store, "ckpt/7") is None
    made = publish(uploader, store, "ckpt/7", files, note={"step": "7"})
    assert is_complete(store, "ckpt/7")
    assert is_complete(store, "ckpt/7/")
    assert published(store, "ckpt/7/") == made
    assert [member.name for member in made.members] == sorted(files)
    assert (made.note, made.prefix) == ({"step": "7"}, "ckpt/7/")
    assert made.size == sum(path.stat().st_size for path in files.values())
    assert missing(store, made) == []
    store.delete(["ckpt/7/shards/0"])
    store.put("ckpt/7/model.bin", b"another")
    assert missing(store, made) == ["model.bin", "shards/0"]


def test_a_failure_leaves_no_marker(store: Store, uploader: Uploader, files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        publish(uploader, store, "ckpt/7", {**files, "gone": tmp_path / "gone"})
    assert not is_complete(store, "ckpt/7")
    publish(uploader, store, "ckpt/7", files)
    with pytest.raises(AlreadyExistsError):
        publish(uploader, store, "ckpt/7", files)
    with pytest.raises(NotFoundError):
        publish(uploader, store, "ckpt/7", {**files, "gone": tmp_path / "gone"}, replace=True)
    assert not is_complete(store, "ckpt/7"), "what is there now is a mixture"
    again = publish(uploader, store, "ckpt/7", files, replace=True)
    assert published(store, "ckpt/7") == again
    retract(store, "ckpt/7")
    assert not is_complete(store, "ckpt/7")
    assert store.head("ckpt/7/model.bin").size


def test_what_cannot_be_published(store: Store, uploader: Uploader, files: dict[str, Path]) -> None:
    with pytest.raises(InputError):
        publish(uploader, store, "a", {MARKER: files["model.bin"]})
    with pytest.raises(InputError):
        commit(store, "a", [store.put("b/x", b"x")])


def test_markers_of_others(store: Store) -> None:
    for text in (b"", b"[]", b"{}", json.dumps({"format": 2, "objects": []}).encode()):
        store.put(f"a/{MARKER}", text)
        with pytest.raises(CorruptError):
            published(store, "a")
        assert is_complete(store, "a")
