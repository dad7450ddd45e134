"""``file://`` beyond the conformance suite: links, order, temporary files, folders."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.base.errors import AlreadyExistsError, ChangedError, DeniedError, NotFoundError, UnsupportedError
from headrace.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"file://{tmp_path}/root")


def keys(store: Store, prefix: str = "", after: str | None = None) -> Sequence[str]:
    return [one.key for page in store.list(prefix, start_after=after) for one in page]


def test_an_absent_root_is_an_empty_store(store: Store) -> None:
    assert keys(store) == []
    assert store.list_folder().folders == ()
    with pytest.raises(NotFoundError):
        store.get("x")


def test_the_order_is_that_of_whole_keys(store: Store) -> None:
    names = ["a/b", "a-b", "a.b", "a0", "a/b-c/d", "a/b0", "ab", "é", "z", "😀", "\uffee"]
    for name in (one for one in names if one != "a/b"):
        store.put(name, b"")
    expected = sorted((one for one in names if one != "a/b"), key=str.encode)
    assert keys(store) == expected
    for at, after in enumerate(expected):
        assert keys(store, after=after) == expected[at + 1 :]
    for prefix in ("a", "a/", "a/b", "a/b-", "ab", "x", "é", "../", "/", "//"):
        assert keys(store, prefix) == [one for one in expected if one.startswith(prefix)]


def test_no_key_reaches_outside(store: Store, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    for key in ("../secret", "a/../../secret", "/etc/passwd", ".", ""):
        for call in (store.get, store.head, lambda key: store.put(key, b""), lambda key: store.delete([key])):
            with pytest.raises(UnsupportedError):
                call(key)
    assert (tmp_path / "secret").read_bytes() == b"x"


def test_links_are_followed_but_never_for_ever(store: Store, tmp_path: Path) -> None:
    store.put("real/x", b"1")
    root = tmp_path / "root"
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "y").write_bytes(b"2")
    os.symlink(tmp_path / "outside", root / "linked")
    os.symlink(root, root / "real" / "loop")
    os.symlink(root / "nothing", root / "dangling")
    os.symlink(root / "real" / "x", root / "file")
    assert keys(store) == ["file", "linked/y", "real/x"]
    assert bytes(store.get("linked/y").data) == b"2"
    store.put("file", b"new")
    assert bytes(store.get("real/x").data) == b"1"


def test_temporary_files_are_hidden(store: Store, tmp_path: Path) -> None:
    store.put("a/x", b"1")
    (tmp_path / "root" / "a" / ".headrace-tmp-dead").write_bytes(b"torn")
    assert keys(store) == ["a/x"]
    assert [one.key for one in store.list_folder("a/").objects] == ["a/x"]


def test_a_failed_write_leaves_nothing(store: Store, tmp_path: Path) -> None:
    store.put("a/x", b"1")
    with pytest.raises(AlreadyExistsError):
        store.put("a/x", b"2", create=True)
    with pytest.raises(ChangedError):
        store.put("a/x", b"2", if_match="0-0")
    with pytest.raises(ChangedError):
        store.put("a/none", b"2", if_match="0-0")
    with pytest.raises(UnsupportedError, match="file and a folder"):
        store.put("a", b"2")
    with pytest.raises(UnsupportedError, match="file and a folder"):
        store.put("a/x/y", b"2")
    assert os.listdir(tmp_path / "root" / "a") == ["x"]
    assert os.listdir(tmp_path / "root") == ["a"]


def test_deleting_the_last_object_removes_its_folders(store: Store, tmp_path: Path) -> None:
    store.put("a/b/c", b"1")
    store.put("a/d", b"1")
    store.delete(["a/b/c", "a/b/none"])
    assert os.listdir(tmp_path / "root" / "a") == ["d"]
    store.delete(["a/d"])
    assert os.listdir(tmp_path / "root") == []


def test_one_of_many_creators_wins(store: Store) -> None:
    for number in range(20):
        barrier, won = threading.Barrier(4), list[int]()

        def race(me: int, number: int = number, barrier: threading.Barrier = barrier, won: list[int] = won) -> None:
            barrier.wait()
            try:
                store.put(f"f{number}/claim", str(me).encode(), create=True)
                won.append(me)
            except AlreadyExistsError:
                pass

        threads = [threading.Thread(target=race, args=(me,)) for me in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert [str(me).encode() for me in won] == [bytes(store.get(f"f{number}/claim").data)]


def test_compare_and_swap_loses_no_update(store: Store) -> None:
    store.put("counter", b"0")

    def add() -> None:
        for _ in range(10):
            while True:
                blob = store.get("counter")
                text = str(int(bytes(blob.data)) + 1).encode()
                try:
                    # A different size each time would hide a clock too coarse to tell versions apart.
                    store.put("counter", text, if_match=blob.info.version)
                    break
                except ChangedError:
                    continue

    threads = [threading.Thread(target=add) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert bytes(store.get("counter").data) == b"30"


def test_a_name_that_is_not_utf8_is_named(store: Store, tmp_path: Path) -> None:
    store.put("a", b"")
    (tmp_path / "root").joinpath(os.fsdecode(b"bad\xff")).write_bytes(b"")
    with pytest.raises(UnsupportedError, match=r"bad\\xff"):
        keys(store)


def test_pipes_are_not_objects(store: Store, tmp_path: Path) -> None:
    store.put("a", b"")
    os.mkfifo(tmp_path / "root" / "pipe")
    assert keys(store) == ["a"]
    with pytest.raises(UnsupportedError):
        store.get("pipe")


def test_a_folder_without_permission_is_named(store: Store, tmp_path: Path) -> None:
    store.put("a/x", b"")
    os.chmod(tmp_path / "root" / "a", 0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(DeniedError):
            keys(store)
    finally:
        os.seteuid(me)
        os.chmod(tmp_path / "root" / "a", 0o700)


def test_errors_below_the_root_of_all_files_name_the_path_as_one_writes_it() -> None:
    with pytest.raises(NotFoundError) as caught:
        open_store("file:///").get("no-such-folder/x")
    assert caught.value.path == "file:///no-such-folder/x"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_what_is_replaced_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    """Nor does anybody else get to read it on the way."""
    store = open_store(f"file://{tmp_path}")
    (tmp_path / "key.pem").write_bytes(b"old")
    (tmp_path / "key.pem").chmod(mode)
    assembly = store.assemble("key.pem")
    (hidden,) = [path for path in tmp_path.iterdir() if path.name != "key.pem"]
    assert hidden.stat().st_mode & 0o7777 == mode
    assembly.part(1, 0, b"new")
    assembly.complete()
    assert (tmp_path / "key.pem").read_bytes() == b"new"
    assert (tmp_path / "key.pem").stat().st_mode & 0o7777 == mode
    store.put("other", b"x")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "other").stat().st_mode & 0o7777 == 0o666 & ~umask
