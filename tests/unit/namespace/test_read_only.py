"""A namespace, and a file system, that was opened read-only: nothing is written, wherever it lies."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import ReadOnlyError
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.namespace.filesystem import HeadraceFileSystem


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    (made / "kept.txt").write_text("kept")
    return made


@pytest.fixture
def namespace(folder: Path) -> Namespace:
    return Namespace(Settings(mounts={"/data": {"url": f"file://{folder}"}}), read_only=True)


@pytest.mark.parametrize(
    "write",
    [
        lambda ns, at: ns.write(f"{at}/new", b"1"),
        lambda ns, at: ns.open(f"{at}/new", "wb"),
        lambda ns, at: ns.copy(f"{at}/kept.txt", f"{at}/new"),
        lambda ns, at: ns.delete(f"{at}/kept.txt"),
        lambda ns, at: ns.delete(at, recursive=True),
    ],
    ids=["write", "open", "copy", "delete", "delete a tree"],
)
@pytest.mark.parametrize("by", ["path", "URL", "local name"])
def test_nothing_is_written(
    namespace: Namespace, folder: Path, write: Callable[[Namespace, str], object], by: str
) -> None:
    at = {"path": "/data", "URL": f"file://{folder}", "local name": str(folder)}[by]
    for one in (namespace, pickle.loads(pickle.dumps(namespace))):
        with pytest.raises(ReadOnlyError) as refused:
            write(one, at)
        assert refused.value.hint is not None
        assert one.resolve(at).read_only
        assert bytes(one.read(f"{at}/kept.txt")) == b"kept"
    assert [one.name for one in folder.iterdir()] == ["kept.txt"]


@pytest.mark.parametrize(
    "write",
    [
        lambda fs: fs.pipe("/data/new", b"1"),
        lambda fs: fs.mv("/data/kept.txt", "/data/new"),
        lambda fs: fs.rm("/data/kept.txt"),
        lambda fs: fs.touch("/data/new"),
    ],
    ids=["pipe", "mv", "rm", "touch"],
)
def test_a_file_system_is_read_only_where_it_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Any], object]
) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "headrace.toml").write_text(f'[mounts."/data"]\nurl = "file://{folder}"\n')
    fs = HeadraceFileSystem(read_only=True, skip_instance_cache=True)
    with pytest.raises(PermissionError, match="read-only"):
        write(fs)
    assert fs.cat("/data/kept.txt") == b"kept"
    assert [one.name for one in folder.iterdir()] == ["kept.txt"]
