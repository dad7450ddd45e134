"""docs/semantics.md, re-enacted: one test for each numbered statement, named after it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
)
from headrace.base.settings import Settings
from headrace.catalog.snapshot import take_snapshot
from headrace.loader import Dataset
from headrace.namespace import Namespace, write_mount
from headrace.namespace.filesystem import HeadraceFileSystem
from tests.unit.namespace.reference import References, namespace

DOCUMENT = Path(__file__).parents[2] / "docs" / "semantics.md"
ODD = ["a b", "ü/日本", "x//y", "/lead", "trail/", "../up", "./dot", "%41", "a+b?c#d", "e\u0301", "\u00e9", "q\n"]
ODD += ["a/..", "//"]


@pytest.fixture
def world() -> Iterator[tuple[Namespace, References]]:
    with namespace(mounts={"/data/s": "ref://one", "/data/s/in/n": "ref://two"}) as made:
        yield made


@pytest.fixture
def ns(world: tuple[Namespace, References]) -> Namespace:
    return world[0]


def paths(entries: object) -> list[str]:
    return [entry.path for entry in entries]  # type: ignore[attr-defined]


def test_every_statement_has_its_test():
    stated = re.findall(r"\*\*\[([A-Z]\d+)\]\*\*", DOCUMENT.read_text())
    files = Path(__file__).parent.glob("test_semantics*.py")
    enacted = {name.upper() for file in files for name in re.findall(r"(?m)^def test_([a-z]\d+)_", file.read_text())}
    assert len(stated) == len(set(stated))
    assert set(stated) == enacted


def test_p1_path_or_url(ns: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ns.write("/data/s/k", b"1")
    assert bytes(ns.read("ref://one/k")) == b"1"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file").write_bytes(b"2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("sub/file", "./sub/file", "~/sub/file", Path("sub/file"), str(tmp_path / "sub/file")):
        assert bytes(ns.read(name)) == b"2"
        assert ns.stat(name).path == f"file://{tmp_path}/sub/file"


def test_p7_what_is_attached_comes_first(ns: Namespace, tmp_path: Path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/k").write_bytes(b"on the disk")
    ns.attach(tmp_path / "set", "ref://one/below")
    ns.write(tmp_path / "set/k", b"attached")
    assert bytes(ns.read(f"{tmp_path}/set/k")) == b"attached"
    assert bytes(ns.read(f"file://{tmp_path}/set/k")) == b"on the disk"


def test_p8_what_can_be_nothing(ns: Namespace):
    for wrong in ("", "s3:/k"):
        with pytest.raises(InputError):
            ns.read(wrong)
    with pytest.raises(NotFoundError):
        ns.read("/no/such/folder/k")


def test_p9_snapshots_and_folders_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("pets", "taken"):
        (tmp_path / name).mkdir()
    (tmp_path / "pets/a").write_bytes(b"1")
    (tmp_path / "taken/a").write_bytes(b"1")
    (tmp_path / "taken/b").write_bytes(b"1")
    settings = Settings(home=f"file://{tmp_path}/home")
    monkeypatch.setenv("HEADRACE_HOME", settings.home or "")
    assert len(Dataset.open("pets")) == 1
    take_snapshot("taken", "pets", namespace=Namespace(settings), settings=settings)
    assert len(Dataset.open("pets")) == len(Dataset.open("pets@v1")) == 2
    assert len(Dataset.open("./pets")) == 1


def test_p10_a_mount_shows_what_is_attached(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"1")
    with pytest.raises(NotFoundError):
        Namespace(Settings(), local=False).read(tmp_path / "file")


@pytest.mark.parametrize("key", ODD)
def test_p2_keys_are_literal(world: tuple[Namespace, References], key: str):
    ns, references = world
    ns.write(f"/data/s/{key}", key.encode())
    assert list(references.stores["ref://one"].objects) == [key]
    assert bytes(ns.read(f"/data/s/{key}")) == key.encode()
    assert bytes(ns.read(f"ref://one/{key}")) == key.encode()


def test_p3_only_unicode_without_nul(ns: Namespace):
    for wrong in ("/data/s/a\0b", "/data/s/\udc80"):
        with pytest.raises(InputError):
            ns.write(wrong, b"")


@pytest.mark.parametrize("key", ["x//y", "../up", "./dot", "trail/", "/lead"])
@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_p4_a_store_refuses_what_it_cannot_hold(ns: Namespace, tmp_path: Path, scheme: str, key: str):
    ns.attach("/odd", f"file://{tmp_path}/in" if scheme == "file" else f"memory://{tmp_path.name}")
    for operation in (lambda p: ns.write(p, b"x"), ns.read, lambda p: ns.open(p).read()):
        with pytest.raises(UnsupportedError):
            operation(f"/odd/{key}")
    assert list(ns.walk("/odd")) == []
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "in"])


def test_p5_entries_lead_back(ns: Namespace):
    for key in ODD:
        ns.write(f"/data/s/{key}", key.encode())
    assert sorted(bytes(ns.read(entry.path)).decode() for entry in ns.walk("/data/s")) == sorted(ODD)

    def visit(folder: str) -> list[str]:
        found: list[str] = []
        for entry in ns.list(folder):
            if entry.is_file:
                found.append(bytes(ns.read(entry.path)).decode())
            elif not entry.path.startswith("/data/s/in"):
                found.extend(visit(entry.path))
        return found

    assert sorted(visit("/data/s")) == sorted(ODD)
    for entry in ns.walk("ref://one"):
        assert ns.stat(entry.path).path == entry.path or entry.path.endswith("/")


def test_p6_urls(ns: Namespace, tmp_path: Path):
    assert ns.resolve("s3://bucket/a%20b//c?d").key == "a%20b//c?d"
    assert ns.resolve("s3a://bucket/k").store.url == "s3://bucket"
    assert ns.resolve("http://127.0.0.1:1/a%20b/%2341").key == "a b/#41"
    (tmp_path / "a%20b").mkdir()
    assert ns.resolve(f"file://{tmp_path}/a%20b").key == f"{tmp_path}/a%20b"[1:]
    for wrong in ("http://127.0.0.1:1/a?b=c", "https://127.0.0.1:1/a#b"):
        with pytest.raises(UnsupportedError):
            ns.resolve(wrong)


def test_m1_longest_prefix_of_whole_parts(ns: Namespace):
    assert ns.resolve("/data/s/in/n/k").store.url == "ref://two"
    assert ns.resolve("/data/s/in/nn").store.url == "ref://one"
    with pytest.raises(NotFoundError):
        ns.resolve("/data/sx/k")


def test_m2_a_nested_mount_hides(world: tuple[Namespace, References]):
    ns, references = world
    for key in ("in/n", "in/n/x", "in/nn", "in/m"):
        ns.write(f"ref://one/{key}", b"outer")
    ns.write("/data/s/in/n/y", b"inner")
    assert paths(ns.walk("/data/s")) == ["/data/s/in/m", "/data/s/in/n/y", "/data/s/in/nn"]
    assert [(e.name, e.kind) for e in ns.list("/data/s/in")] == [("m", "file"), ("n", "folder"), ("nn", "file")]
    with pytest.raises(NotFoundError):
        ns.read("/data/s/in/n/x")
    ns.delete("/data/s/in/n/x")
    assert "in/n/x" in references.stores["ref://one"].objects


def test_m3_folders_that_lead_to_mounts(ns: Namespace):
    assert paths(ns.list("/")) == ["/data"]
    assert paths(ns.list("/data")) == ["/data/s"]
    assert ns.stat("/data").kind == ns.stat("/data/s/in").kind == "folder"
    assert "in" in [entry.name for entry in ns.list("/data/s")]
    with pytest.raises(NotFoundError):
        ns.write("/data/x", b"")


def test_m4_a_mount_point_is_a_folder(ns: Namespace):
    assert ns.stat("/data/s").kind == "folder"
    assert ns.list("/data/s/in/n") == []
    for wrong in (ns.read, ns.open, lambda p: ns.write(p, b"")):
        with pytest.raises(InputError):
            wrong("/data/s")


def test_m5_attach_and_detach(world: tuple[Namespace, References]):
    ns, references = world
    ns.attach("/data/s", "ref://one")
    with pytest.raises(AlreadyExistsError):
        ns.attach("/data/s", "ref://other")
    with pytest.raises(NotFoundError):
        ns.detach("/data")
    ns.detach("/data/s/in/n")
    assert ns.resolve("/data/s/in/n/k").store.url == "ref://one"
    assert references.requests() == []


def test_m6_mount_paths(ns: Namespace):
    assert ns.attach("/x/", "ref://x").path == "/x"
    assert ns.attach("/", "ref://root").path == "/"
    assert ns.resolve("/k").key == "k"
    for wrong in ("/a//b", "/a/../b", "/./a", "a", "s3://b/k", "/a//"):
        with pytest.raises(InputError):
            ns.attach(wrong, "ref://y")


def test_m7_a_url_uses_its_attachment(tmp_path: Path):
    with namespace() as (ns, _):
        ns.attach("/w", "s3://bucket", endpoint="http://127.0.0.1:1", anonymous=True)
        ns.attach("/w/deep", "s3://bucket/deep/er", read_only=True, endpoint="http://127.0.0.1:1", anonymous=True)
        ns.attach("/again", "s3://bucket", region="x", anonymous=True)
        assert ns.resolve("s3://bucket/k").mount == ns.mounts()[1]
        assert ns.resolve("s3://bucket/deep/er/k").read_only
        assert not ns.resolve("s3://bucket/deep/error").read_only
        assert ns.resolve("s3://bucket/k").store is ns.resolve("/w/k").store
        assert ns.resolve("file:///etc/x").mount is None


def test_m8_a_url_ignores_nested_mounts(ns: Namespace):
    ns.write("ref://one/in/n/x", b"outer")
    ns.write("/data/s/in/n/y", b"inner")
    assert paths(ns.walk("ref://one")) == ["ref://one/in/n/x"]
    assert paths(ns.list("ref://one/in/n")) == ["ref://one/in/n/x"]


def test_m9_read_only_before_any_request(world: tuple[Namespace, References]):
    ns, references = world
    ns.attach("/ro", "ref://ro", read_only=True)
    ns.write("/data/s/k", b"1")
    references.stores["ref://one"].requests.clear()
    for path in ("/ro/k", "ref://ro/k", "/ro", "/ro/"):
        for operation in (
            lambda p: ns.write(p, b""),
            ns.delete,
            lambda p: ns.delete(p, recursive=True),
            lambda p: ns.delete(["/data/s/k", p]),
            lambda p: ns.copy("/data/s/k", p),
            lambda p: ns.open(p, "w"),
        ):
            with pytest.raises(ReadOnlyError):
                operation(path)
    assert references.requests() == []
    ns.resolve("/ro/k").store.put("k", b"2")
    ns.copy("/ro/k", "/data/s/out")
    assert bytes(ns.read("/data/s/out")) == b"2"


def test_m10_secrets(tmp_path: Path):
    file = tmp_path / "headrace.toml"
    for secret in ("secret_access_key", "session_token"):
        with pytest.raises(InputError) as caught:
            write_mount("/x", "s3://bucket", {secret: "HUSH"}, file)
        assert "HUSH" not in str(caught.value)
        assert "profile" in str(caught.value)
    assert not file.exists()
    with namespace() as (ns, _):
        mount = ns.attach("/x", "s3://bucket", secret_access_key="HUSH", access_key_id="id")
        assert "HUSH" not in repr(mount) + repr(ns) + repr(ns.resolve("/x/k"))


def test_f1_folders(ns: Namespace, tmp_path: Path):
    assert not ns.exists("/data/s/f")
    ns.write("/data/s/f/k", b"")
    assert ns.stat("/data/s/f").kind == "folder"
    ns.delete("/data/s/f/k")
    assert not ns.exists("/data/s/f")
    (tmp_path / "empty").mkdir()
    ns.attach("/disk", f"file://{tmp_path}")
    assert paths(ns.list("/disk")) == ["/disk/empty"]
    assert ns.stat("/disk/empty").kind == "folder"
    assert ns.list("/disk/empty") == []
    assert list(ns.walk("/disk/empty")) == []


def test_f2_file_and_folder_of_one_name(ns: Namespace):
    ns.write("/data/s/a", b"file")
    ns.write("/data/s/a/b", b"below")
    assert [(e.name, e.kind) for e in ns.list("/data/s")] == [("a", "file"), ("a", "folder"), ("in", "folder")]
    assert ns.stat("/data/s/a").kind == "file"
    assert ns.stat("/data/s/a/").kind == "folder"
    assert paths(ns.list("/data/s/a")) == paths(ns.walk("/data/s/a")) == ["/data/s/a/b"]


def test_f3_a_file_lists_as_itself(ns: Namespace):
    ns.write("/data/s/k", b"1")
    assert paths(ns.list("/data/s/k")) == paths(ns.walk("/data/s/k")) == ["/data/s/k"]
    for missing in ("/data/s/nothing", "/nowhere", "/data/s/k/"):
        with pytest.raises(NotFoundError):
            ns.list(missing)
        with pytest.raises(NotFoundError):
            list(ns.walk(missing))


def test_f4_folder_markers(ns: Namespace):
    ns.write("/data/s/m/", b"")
    ns.write("/data/s/full/", b"content")
    assert ns.stat("/data/s/m").kind == "folder"
    assert ns.list("/data/s/m") == []
    assert paths(ns.walk("/data/s")) == ["/data/s/full/"]
    assert [(e.name, e.path, e.size) for e in ns.list("/data/s/full")] == [("", "/data/s/full/", 7)]


def test_f5_folder_paths(ns: Namespace):
    ns.write("/data/s/p//q", b"1")
    ns.write("/data/s//r", b"2")
    assert paths(ns.list("/data/s")) == ["/data/s//", "/data/s/in", "/data/s/p"]
    assert [entry.name for entry in ns.list("/data/s")] == ["", "in", "p"]
    assert paths(ns.list("/data/s/p")) == ["/data/s/p//"]
    assert paths(ns.list("/data/s/p//")) == ["/data/s/p//q"]
    assert paths(ns.list("/data/s//")) == ["/data/s//r"]


def test_f6_order(ns: Namespace):
    names = ["Z", "a", "a.b", "a0", "in/k", "in/o", "é", "日", "😀"]
    for name in reversed(names):
        ns.write(f"/data/s/{name}", b"")
    ns.write("/data/s/in/n/y", b"")
    walked = paths(ns.walk("/"))
    assert walked == sorted(walked, key=str.encode)
    assert len(walked) == len(names) + 1
    listed = [entry.name for entry in ns.list("/data/s")]
    assert listed == sorted(listed, key=str.encode)


def test_f7_walks_stream(world: tuple[Namespace, References]):
    ns, references = world
    store = ns.resolve("/data/s/x").store
    for number in range(1000):
        store.put(f"a/{number:04}", b"")
    references.requests()
    walk = ns.walk("/data")
    assert next(walk).path == "/data/s/a/0000"
    assert references.requests() == [("list", "")]
    assert len(list(walk)) == 999
    assert references.stores.keys() == {"ref://one/", "ref://one", "ref://two"} - {"ref://one/"}


def test_r1_ranges(ns: Namespace):
    for path in ("/data/s/k", "/data/s/in/n/k"):
        for known in (False, True):
            ns.write(path, b"0123456789")
            if known:
                ns.stat(path)
            assert bytes(ns.read(path, 2, 5)) == b"234"
            assert bytes(ns.read(path, 8, 99)) == b"89"
            assert bytes(ns.read(path, 10)) == b""
            with pytest.raises(InputError):
                ns.read(path, 11)


def test_r2_one_read_is_of_one_version(ns: Namespace, tmp_path: Path):
    ns.write("/data/s/k", b"old")
    ns.stat("/data/s/k")
    ns.resolve("/data/s/k").store.put("k", b"newer!")
    assert bytes(ns.read("/data/s/k")) == b"newer!"


def test_r3_a_handle_is_of_one_version(ns: Namespace):
    old, new = b"o" * 1_000_000, b"n" * 1_000_000
    for replace in (lambda: ns.write("/data/s/k", new), lambda: ns.delete("/data/s/k")):
        ns.write("/data/s/k", old)
        with ns.open("/data/s/k") as handle:
            assert handle.read(1000) == old[:1000]
            replace()
            handle.seek(900_000)
            with pytest.raises((ChangedError, NotFoundError)):
                handle.read(1000)
        ns.write("/data/s/k", old)
        with ns.open("/data/s/k") as handle:
            assert handle.seek(0, os.SEEK_END) == len(old)
            replace()
            handle.seek(0)
            with pytest.raises((ChangedError, NotFoundError)):
                handle.read(1000)


def test_r4_opening_what_is_missing(ns: Namespace):
    with pytest.raises(NotFoundError):
        ns.open("/data/s/missing")


def test_r5_seeking(world: tuple[Namespace, References]):
    ns, references = world
    ns.write("/data/s/k", b"0123456789")
    with ns.open("/data/s/k") as handle:
        references.requests()
        assert handle.seek(100) == 100
        assert handle.seek(4) == 4
        assert references.requests() == []
        assert handle.read(2) == b"45"
        handle.seek(50)
        assert handle.read() == b""
        with pytest.raises((InputError, ValueError)):
            handle.seek(-1)


def test_w1_write_replaces_whole(ns: Namespace):
    ns.write("/data/s/k", b"a" * 100)
    entry = ns.write("/data/s/k", b"b")
    assert (entry.path, entry.size) == ("/data/s/k", 1)
    assert bytes(ns.read("/data/s/k")) == b"b"


def test_w2_conditions(ns: Namespace, tmp_path: Path):
    ns.attach("/disk", f"file://{tmp_path}")
    ns.attach("/memory", f"memory://{tmp_path.name}-w2")
    for root in ("/data/s", "/disk", "/memory"):
        first = ns.write(f"{root}/k", b"1", create=True)
        with pytest.raises(AlreadyExistsError):
            ns.write(f"{root}/k", b"2", create=True)
        ns.write(f"{root}/k", b"three", if_match=first.version)
        with pytest.raises(ChangedError):
            ns.write(f"{root}/k", b"4", if_match=first.version)
        assert bytes(ns.read(f"{root}/k")) == b"three"


def test_w3_files_are_published_when_closed(ns: Namespace):
    for mode, text in (("wb", b"text"), ("w", "text")):
        with ns.open(f"/data/s/{mode}", mode) as handle:
            handle.write(text)
            assert not ns.exists(f"/data/s/{mode}")
        assert bytes(ns.read(f"/data/s/{mode}")) == b"text"
        with pytest.raises(ZeroDivisionError), ns.open(f"/data/s/{mode}-failed", mode) as handle:
            handle.write(text[: 4 // (len(text) - 4)])
        assert not ns.exists(f"/data/s/{mode}-failed")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        ns.open("/data/s/lost", "wb").write(b"text")
        gc.collect()
    assert not ns.exists("/data/s/lost")


def test_w4_exclusive(ns: Namespace):
    with ns.open("/data/s/k", "xb") as handle:
        handle.write(b"1")
    with pytest.raises(AlreadyExistsError):
        ns.open("/data/s/k", "x")
    late = ns.open("/data/s/raced", "xb")
    late.write(b"late")
    ns.write("/data/s/raced", b"early")
    with pytest.raises(AlreadyExistsError):
        late.close()
    assert bytes(ns.read("/data/s/raced")) == b"early"


def test_w5_copy(world: tuple[Namespace, References]):
    ns, references = world
    ns.write("/data/s/k", b"1")
    references.requests()
    ns.copy("/data/s/k", "/data/s/same")
    assert references.requests()[0] == ("copy", "same")
    ns.copy("/data/s/k", "/data/s/in/n/other")
    assert bytes(ns.read("/data/s/in/n/other")) == b"1"
    with pytest.raises(InputError):
        ns.copy("/data/s/k", "ref://one/k")
    with pytest.raises(NotFoundError):
        ns.copy("/data/s/missing", "/data/s/in/n/z")


def test_w5_copy_is_pinned(world: tuple[Namespace, References]):
    ns, references = world
    ns.write("/data/s/big", os.urandom(20_000_000))
    store = references.stores["ref://one"]
    get = store.get

    def overwritten_meanwhile(key: str, start: int = 0, *rest: object, **more: object) -> object:
        if start:
            store.put(key, b"x" * 20_000_000)
        return get(key, start, *rest, **more)  # type: ignore[arg-type]

    store.get = overwritten_meanwhile  # type: ignore[method-assign,assignment]
    with pytest.raises(ChangedError):
        ns.copy("/data/s/big", "/data/s/in/n/big")
    assert not ns.exists("/data/s/in/n/big")


def test_w6_delete(ns: Namespace):
    ns.attach("/ro", "ref://ro", read_only=True)
    ns.write("/data/s/f/k", b"")
    ns.delete("/data/s/f")
    ns.delete("/data/s/missing")
    assert ns.exists("/data/s/f/k")
    for refused in ("/ro/k", "/no/such/folder", "", "/data/s"):
        with pytest.raises((ReadOnlyError, NotFoundError, InputError)):
            ns.delete(["/data/s/f/k", refused])
    assert ns.exists("/data/s/f/k")


def test_w7_recursive_delete(world: tuple[Namespace, References]):
    ns, references = world
    for key in ("in", "in/", "in/a", "in/n/hidden", "inn"):
        ns.write(f"ref://one/{key}", b"")
    ns.write("/data/s/in/n/y", b"")
    ns.attach("/data/s/in/n/ro", "ref://ro", read_only=True)
    for path in ("/data", "/data/s/in"):
        with pytest.raises(ReadOnlyError):
            ns.delete(path, recursive=True)
    assert ns.exists("/data/s/in/n/y")
    ns.detach("/data/s/in/n/ro")
    ns.delete("/data/s/in", recursive=True)
    assert set(references.stores["ref://one"].objects) == {"in/n/hidden", "inn"}
    assert references.stores["ref://two"].objects == {}


def test_c1_trusted_for_a_while():
    with namespace(mounts={"/s": "ref://s"}) as (ns, references):
        ns.write("/s/f/k", b"1")
        first = ns.list("/s/f")
        references.requests()
        assert ns.list("/s/f") == first
        assert ns.stat("/s/f/k") == first[0]
        assert references.requests() == []
        references.stores["ref://s"].put("f/k", b"22")
        assert ns.stat("/s/f/k").size == 1
        assert ns.stat("/s/f/k", refresh=True).size == 2
        assert ns.list("/s/f", refresh=True)[0].size == 2
        references.stores["ref://s"].put("f/k", b"333")
        ns.refresh()
        assert ns.stat("/s/f/k").size == 3
    with namespace(mounts={"/s": "ref://s"}, ttl=0) as (ns, references):
        ns.write("/s/k", b"1")
        ns.list("/s")
        references.requests()
        ns.list("/s")
        assert references.requests() == [("list_folder", "")]


def test_c2_absence_is_never_remembered(world: tuple[Namespace, References]):
    ns, references = world
    ns.list("/data/s")
    assert not ns.exists("/data/s/k")
    with pytest.raises(NotFoundError):
        ns.read("/data/s/k")
    references.stores["ref://one"].put("k", b"1")
    assert ns.exists("/data/s/k")
    assert bytes(ns.read("/data/s/k")) == ns.open("/data/s/k").read() == b"1"


def test_c3_own_writes_show_at_once(ns: Namespace):
    ns.attach("/alias", "ref://one")
    ns.list("/data/s")
    ns.list("/alias")
    ns.list("ref://one")
    ns.write("/data/s/f/k", b"1")
    for path in ("/data/s", "/alias", "ref://one"):
        assert "f" in [entry.name for entry in ns.list(path)]
        assert ns.stat(f"{path}/f/k").size == 1
    ns.write("ref://one/f/k", b"22")
    assert ns.stat("/alias/f/k").size == 2
    ns.delete("/alias/f/k")
    for path in ("/data/s", "/alias", "ref://one"):
        assert "f" not in [entry.name for entry in ns.list(path)]
        assert not ns.exists(f"{path}/f/k")


def test_c4_an_old_version_does_no_harm(world: tuple[Namespace, References]):
    ns, references = world
    ns.write("/data/s/k", b"1")
    for content in (b"22", b"1"):
        ns.stat("/data/s/k")
        references.stores["ref://one"].put("k", content)
        assert bytes(ns.read("/data/s/k")) == content
        references.stores["ref://one"].put("k", content * 3)
        assert ns.open("/data/s/k").read() == content * 3


def _in_child(ns: Namespace, path: str, answers: multiprocessing.SimpleQueue[object]) -> None:
    with ns.open(path) as handle:
        answers.put((bytes(ns.read(path)), handle.read(), [e.path for e in ns.list("/disk")]))


@pytest.fixture
def fs(ns: Namespace) -> HeadraceFileSystem:
    """Files of which the first two are patterns for others."""
    for name in ("run[1].pt", "lr=[0.1]/a", "lr=[0.1]/b/c", "run1.pt", "lr=0/a", "lr=1/a"):
        ns.write(f"/data/s/{name}", name.encode())
    return HeadraceFileSystem.over(ns)


def removed(fs: HeadraceFileSystem, call: Callable[[], object]) -> set[str]:
    before = set(fs.find("/data/s"))
    call()
    return {name.removeprefix("/data/s/") for name in before - set(fs.find("/data/s"))}


def test_n1_a_name_is_that_name_alone(fs: HeadraceFileSystem, tmp_path: Path):
    assert fs.cat("/data/s/run[1].pt") == b"run[1].pt"
    assert fs.cat(["/data/s/run[1].pt"]) == {"/data/s/run[1].pt": b"run[1].pt"}
    for name in ("got[1]", "got1"):
        fs.get("/data/s/run[1].pt" if name == "got[1]" else "/data/s/run1.pt", str(tmp_path / name))
    fs.put(str(tmp_path / "got[1]"), "/data/s/new")
    fs.cp("/data/s/lr=[0.1]/", "/data/s/deep", recursive=True)
    assert fs.cat("/data/s/new") == b"run[1].pt"
    assert fs.find("/data/s/deep") == ["/data/s/deep/a", "/data/s/deep/b/c"]
    assert removed(fs, lambda: fs.rm_file("/data/s/run[1].pt")) == {"run[1].pt"}
    assert removed(fs, lambda: fs.rm("/data/s/lr=[0.1]", recursive=True)) == {"lr=[0.1]/a", "lr=[0.1]/b/c"}


def test_n2_what_deletes_takes_no_pattern(fs: HeadraceFileSystem):
    assert removed(fs, lambda: fs.mv("/data/s/run[1].pt", "/data/s/new")) == {"run[1].pt"}
    for call in (fs.rm, fs.rm_file, lambda name: fs.mv(name, "/data/s/other")):
        with pytest.raises(FileNotFoundError):
            call("/data/s/run[1].pt")
    assert removed(fs, lambda: fs.rm(fs.glob("/data/s/run[1].pt"))) == {"run1.pt"}


def test_n3_where_patterns_are_taken(fs: HeadraceFileSystem):
    assert fs.glob("/data/s/run[1].pt") == ["/data/s/run1.pt"]
    assert fs.expand_path("/data/s/run[1].pt") == ["/data/s/run[1].pt"]
    assert fs.expand_path("/data/s/run[0-9].pt") == ["/data/s/run1.pt"]
    fs.cp("/data/s/run[0-9].pt", "/data/s/new/")
    assert fs.find("/data/s/new") == ["/data/s/new/run1.pt"]
    assert fs.expand_path("/data/s/run[0-9].pt", assume_literal=True) == ["/data/s/run[0-9].pt"]
    for call in (fs.cat, lambda name, **told: fs.cp(name, "/data/s/other", **told)):
        with pytest.raises(FileNotFoundError):
            call("/data/s/run[0-9].pt", assume_literal=True)


def test_n4_mv_deletes_what_it_has_copied(fs: HeadraceFileSystem):
    fs.pipe("/data/s/lr=[0.1]/d", b"")
    shallow = removed(fs, lambda: fs.mv("/data/s/lr=[0.1]", "/data/s/new", recursive=True, maxdepth=1))
    assert shallow == {"lr=[0.1]/a", "lr=[0.1]/d"}
    with pytest.raises(IsADirectoryError):
        fs.mv("/data/s/lr=0", "/data/s/other")
    with pytest.raises(IsADirectoryError):
        fs.mv(["/data/s/lr=0"], ["/data/s/other"], recursive=True)
    with pytest.raises(OSError, match="into itself"):
        fs.mv("/data/s/lr=0", "/data/s/lr=0/in", recursive=True)
    assert fs.cat("/data/s/lr=0/a") == b"lr=0/a"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_c5_children(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    ns = Namespace.load()
    ns.attach("/disk", f"file://{tmp_path}/data")
    ns.write("/disk/k", b"content")
    assert bytes(ns.read("/disk/k")) == b"content"
    assert pickle.loads(pickle.dumps(ns)).mounts() == ns.mounts()
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(ns, "/disk/k", answers))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get() == (b"content", b"content", ["/disk/k"])
