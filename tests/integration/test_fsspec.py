"""fsspec's own abstract suite on ``headrace://``, over memory, a disk and a real S3 server; and libraries on top."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import posixpath
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import pandas
import pyarrow.dataset
import pytest

from headrace.base.errors import ArchivedError, HeadraceError
from headrace.mount import errno_of
from headrace.namespace.filesystem import HeadraceFileSystem, _os_errors
from headrace.store.embedded import EmbeddedS3
from tests.unit.namespace.reference import namespace

_number = itertools.count()


class _Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs_join(self) -> Any:
        return posixpath.join

    @pytest.fixture
    def fs_path(self) -> str:
        return "/data/suite"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class _Suite(
    _Fixtures,
    abstract.AbstractCopyTests,
    abstract.AbstractGetTests,
    abstract.AbstractPutTests,
    abstract.AbstractPipeTests,
    abstract.AbstractOpenTests,
):
    pass


class TestMemory(_Suite):
    @pytest.fixture
    def fs(self) -> Iterator[HeadraceFileSystem]:
        with namespace(mounts={"/data": f"memory://fsspec-{next(_number)}"}) as (ns, _):
            yield HeadraceFileSystem.over(ns)


class TestReference(_Suite):
    """Literal keys, as S3 has them, and a mount point inside the folder under test."""

    @pytest.fixture
    def fs(self) -> Iterator[HeadraceFileSystem]:
        with namespace(mounts={"/": "ref://outer", "/data/suite": "ref://inner"}) as (ns, _):
            yield HeadraceFileSystem.over(ns)


class TestFile(_Suite):
    @pytest.fixture
    def fs(self, tmp_path: Path) -> Iterator[HeadraceFileSystem]:
        with namespace(mounts={"/data": f"file://{tmp_path}/store"}) as (ns, _):
            yield HeadraceFileSystem.over(ns)


@pytest.mark.server
class TestSeaweed(_Suite):
    @pytest.fixture
    def fs(self, seaweedfs: EmbeddedS3) -> Iterator[HeadraceFileSystem]:
        options = {
            "endpoint": seaweedfs.endpoint,
            "access_key_id": seaweedfs.access_key,
            "secret_access_key": seaweedfs.secret_key,
            "region": "us-east-1",
        }
        with namespace() as (ns, _):
            ns.attach("/data", f"{seaweedfs.create_bucket('fsspec')}/{next(_number)}", **options)
            yield HeadraceFileSystem.over(ns)


@pytest.fixture
def fs() -> Iterator[HeadraceFileSystem]:
    with namespace(mounts={"/data": f"memory://fsspec-{next(_number)}", "/ref": "ref://x"}) as (ns, _):
        ns.attach("/ro", "memory://fsspec-ro", read_only=True)
        yield HeadraceFileSystem.over(ns)


def test_errors_are_os_errors(fs: HeadraceFileSystem) -> None:
    for wanted, operation in (
        (FileNotFoundError, lambda: fs.open("/data/missing")),
        (FileNotFoundError, lambda: fs.rm("/data/missing")),
        (FileNotFoundError, lambda: fs.cat("/data/missing")),
        (FileNotFoundError, lambda: fs.ls("/data/missing")),
        (PermissionError, lambda: fs.pipe("/ro/k", b"")),
        (OSError, lambda: fs.pipe("/data/a//b", b"")),
    ):
        with pytest.raises(wanted) as caught:
            operation()
        assert isinstance(caught.value.__cause__, HeadraceError) or wanted is FileNotFoundError


def test_text_and_transactions(fs: HeadraceFileSystem) -> None:
    with fs.open("/data/t", "w") as handle:
        handle.write("é")
    assert fs.cat("/data/t") == "é".encode()
    with fs.transaction:
        with fs.open("/data/later", "wb") as handle:
            handle.write(b"1")
        assert not fs.exists("/data/later")
    assert fs.cat("/data/later") == b"1"
    with pytest.raises(ZeroDivisionError):
        _fail_in_transaction(fs)
    assert not fs.exists("/data/never")
    assert fs.cat_file("/data/later", start=-1) == b"1"
    with fs.open("/data/z.gz", "wb", compression="gzip") as handle:
        handle.write(b"zipped")
    with fs.open("/data/z.gz", "rb", compression="infer") as handle:
        assert handle.read() == b"zipped"
    with pytest.raises(ZeroDivisionError):
        _fail_in_file(fs.open("/data/half.gz", "wt", compression="infer"))
    assert not fs.exists("/data/half.gz")
    with pytest.raises(IsADirectoryError):
        fs.rm("/data")


def _fail_in_file(file: Any) -> None:
    with file:
        file.write("half")
        raise ZeroDivisionError


def _fail_in_transaction(fs: HeadraceFileSystem) -> None:
    with fs.transaction:
        with fs.open("/data/never", "wb") as handle:
            handle.write(b"1")
        raise ZeroDivisionError


def test_glob_find_du(fs: HeadraceFileSystem) -> None:
    for name in ("a/1.png", "a/2.png", "a/2.txt", "b/3.png"):
        fs.pipe(f"/data/{name}", b"12")
    assert fs.glob("/data/*/*.png") == ["/data/a/1.png", "/data/a/2.png", "/data/b/3.png"]
    assert fs.find("/data/a") == ["/data/a/1.png", "/data/a/2.png", "/data/a/2.txt"]
    assert fs.du("/data") == 8
    assert [folder for folder, _, _ in fs.walk("/data")] == ["/data", "/data/a", "/data/b"]
    assert fs.find("/data/none") == []


ODD = ("run[1].pt", "run1.pt", "lr=[0.1]/a", "lr=[0.1]/c", "lr=[0.1]/deep/b", "lr=[0.1]0/a", "lr=0/a", "lr=1/a")
ODD += ("what?", "whats", "all*")


@pytest.fixture
def odd(fs: HeadraceFileSystem) -> HeadraceFileSystem:
    """Names of which each looks like a pattern for another, in ``/data``."""
    for name in ODD:
        fs.pipe(f"/data/{name}", name.encode())
    return fs


@pytest.mark.parametrize(
    ("call", "gone"),
    [
        (lambda fs: fs.rm_file("/data/run[1].pt"), {"run[1].pt"}),
        (lambda fs: fs.rm("/data/what?"), {"what?"}),
        (lambda fs: fs.rm(["/data/what?", "/data/all*"]), {"what?", "all*"}),
        (
            lambda fs: fs.rm("headrace:///data/lr=[0.1]/", recursive=True),
            {"lr=[0.1]/a", "lr=[0.1]/c", "lr=[0.1]/deep/b"},
        ),
        (lambda fs: fs.rm("/data/lr=[0.1]", recursive=True, maxdepth=1), {"lr=[0.1]/a", "lr=[0.1]/c"}),
        (lambda fs: fs.delete("/data/all*"), {"all*"}),
        (lambda fs: fs.rm(fs.glob("/data/run[1].pt")), {"run1.pt"}),
        (lambda fs: fs.rm(fs.glob("/data/none*")), set()),
    ],
)
def test_what_is_removed_is_what_is_named(odd: HeadraceFileSystem, call: Callable[[Any], None], gone: set[str]) -> None:
    call(odd)
    assert names(odd) == set(ODD) - gone


@pytest.mark.parametrize(
    ("call", "gone", "come"),
    [
        (lambda fs: fs.mv("/data/run[1].pt", "/data/new"), {"run[1].pt"}, {"new"}),
        (lambda fs: fs.mv("/data/run[1].pt", "/data/lr=0"), {"run[1].pt"}, {"lr=0/run[1].pt"}),
        (lambda fs: fs.mv("/data/what?", "/data/new[1]/"), {"what?"}, {"new[1]/what?"}),
        (lambda fs: fs.mv(["/data/what?", "/data/all*"], "/data/new"), {"what?", "all*"}, {"new/what?", "new/all*"}),
        (lambda fs: fs.mv(["/data/what?"], ["/data/[new]"]), {"what?"}, {"[new]"}),
        (
            lambda fs: fs.mv("/data/lr=[0.1]", "/data/new", recursive=True),
            {"lr=[0.1]/a", "lr=[0.1]/c", "lr=[0.1]/deep/b"},
            {"new/a", "new/c", "new/deep/b"},
        ),
        (
            lambda fs: fs.mv("/data/lr=[0.1]", "/data/new", recursive=True, maxdepth=1),
            {"lr=[0.1]/a", "lr=[0.1]/c"},
            {"new/a", "new/c"},
        ),
        (lambda fs: fs.mv("/data/all*", "headrace:///data/all*/"), set(), set()),
        (lambda fs: fs.cp("/data/run[1].pt", "/data/new"), set(), {"new"}),
        (lambda fs: fs.cp("/data/lr=[0.1]/", "/data/lr=0", recursive=True), set(), {"lr=0/c", "lr=0/deep/b"}),
        (lambda fs: fs.cp("/data/lr=[0.1]", "/data/new", recursive=True, maxdepth=1), set(), {"new/a", "new/c"}),
        (lambda fs: fs.cp(["/data/what?", "/data/lr=[2]*/a"], "/data/new"), set(), {"new/what?"}),
        (lambda fs: fs.cp("/data/run[1-9].pt", "/data/new"), set(), {"new/run1.pt"}),
    ],
)
def test_what_is_copied_and_moved_is_what_is_named(
    odd: HeadraceFileSystem, call: Callable[[Any], None], gone: set[str], come: set[str]
) -> None:
    call(odd)
    assert names(odd) == set(ODD) - gone | come
    assert all(odd.cat(f"/data/{one}").decode().endswith(one.rpartition("/")[2]) for one in come if "new" not in one)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda fs: fs.rm("/data/what[s]"), FileNotFoundError),
        (lambda fs: fs.rm(["/data/whats", "/data/what[s]"]), FileNotFoundError),
        (lambda fs: fs.rm(["/data/whats", "/data/lr=[0.1]"]), IsADirectoryError),
        (lambda fs: fs.rm_file("/data/lr=[0.1]"), IsADirectoryError),
        (lambda fs: fs.mv("/data/what[s]", "/data/new"), FileNotFoundError),
        (lambda fs: fs.mv("/data/what[s]", "/data/new", recursive=True), FileNotFoundError),
        (lambda fs: fs.mv("/data/lr=[0.1]", "/data/new"), IsADirectoryError),
        (lambda fs: fs.mv(["/data/lr=[0.1]"], ["/data/new"], recursive=True), IsADirectoryError),
        (lambda fs: fs.mv("/data/lr=[0.1]", "/data/lr=[0.1]/new", recursive=True), OSError),
        (lambda fs: fs.mv("/data", "/data/new", recursive=True), OSError),
        (lambda fs: fs.mv("/", "/data/new", recursive=True), OSError),
        (lambda fs: fs.mv("/data/lr=[0.1]/", "/data/lr=[0.1]/deep", recursive=True), OSError),
        (lambda fs: fs.mv(["/data/what?", "/data/whats"], ["/data/whats", "/data/new"]), OSError),
        (lambda fs: fs.cp("/data/what[s]", "/data/new", assume_literal=True), FileNotFoundError),
        (lambda fs: fs.cat("/data/what[s]", assume_literal=True), FileNotFoundError),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    odd: HeadraceFileSystem, call: Callable[[Any], None], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(odd)
    assert names(odd) == set(ODD)


def test_names_that_look_like_patterns_come_and_go(odd: HeadraceFileSystem, tmp_path: Path) -> None:
    assert odd.cat("/data/run[1].pt") == b"run[1].pt"
    assert odd.cat(["/data/run[1].pt", "/data/what?"]) == {"/data/run[1].pt": b"run[1].pt", "/data/what?": b"what?"}
    assert odd.cat("/data/lr=[0.1]", recursive=True, on_error="omit").keys() == {
        "/data/lr=[0.1]/a", "/data/lr=[0.1]/c", "/data/lr=[0.1]/deep/b"
    }  # fmt: skip
    assert odd.glob("/data/run[1].pt") == ["/data/run1.pt"]
    assert odd.expand_path("/data/run[1].pt") == ["/data/run[1].pt"]
    assert odd.info("/data/run[1].pt")["name"] == "/data/run[1].pt"
    assert not odd.exists("/data/what[s]")
    odd.get("/data/run[1].pt", str(tmp_path / "got[1]"))
    assert (tmp_path / "got[1]").read_bytes() == b"run[1].pt"
    odd.get("/data/lr=[0.1]", f"{tmp_path}/tree", recursive=True)
    assert (tmp_path / "tree/deep/b").read_bytes() == b"lr=[0.1]/deep/b"
    (tmp_path / "got1").write_text("another")
    odd.put(str(tmp_path / "got[1]"), "/data/put[1]")
    odd.put(tmp_path / "got[1]", "/data/lr=0")
    assert odd.cat("/data/put[1]") == odd.cat("/data/lr=0/got[1]") == b"run[1].pt"


def test_what_is_fetched_stays_below_its_folder(fs: HeadraceFileSystem, tmp_path: Path) -> None:
    fs.pipe("/ref/a/../../out", b"1")
    with pytest.raises(ValueError, match="leads out"):
        fs.get("/ref/a", f"{tmp_path}/in/here", recursive=True)
    assert not (tmp_path / "out").exists()


def names(fs: HeadraceFileSystem) -> set[str]:
    return {name.removeprefix("/data/") for name in fs.find("/data")}


def test_pandas_and_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headrace.toml").write_text(f'[mounts."/tables"]\nurl = "file://{tmp_path}/tables"\n')
    table = pandas.DataFrame({"x": range(1000), "y": [str(i) for i in range(1000)]})
    table.to_parquet("headrace:///tables/t.parquet")
    table.to_csv("headrace:///tables/t.csv", index=False)
    assert pandas.read_parquet("headrace:///tables/t.parquet").equals(table)
    assert pandas.read_csv("headrace:///tables/t.csv")["x"].sum() == table["x"].sum()
    system, path = fsspec.core.url_to_fs("headrace:///tables/t.parquet")
    assert pyarrow.dataset.dataset(path, filesystem=system).count_rows() == 1000
    fsspec.filesystem("headrace").namespace.close()
    HeadraceFileSystem.clear_instance_cache()


@pytest.mark.parametrize("kind", ["blockcache", "filecache", "simplecache"])
def test_fsspec_s_own_caches_lie_over_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    monkeypatch.chdir(tmp_path)
    data = bytes(range(256)) * 1000
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a.bin").write_bytes(data)
    (tmp_path / "headrace.toml").write_text(f'[mounts."/d"]\nurl = "file://{tmp_path}/store"\n')
    options = {kind: {"cache_storage": str(tmp_path / kind)}}
    for _ in range(2):
        with fsspec.open(f"{kind}::headrace:///d/a.bin", "rb", **options) as file:
            assert file.read(10) == data[:10]
            file.seek(200_000)
            assert file.read() == data[200_000:]


@pytest.mark.parametrize("cache", ["readahead", "bytes", "all", "none"])
def test_a_cache_of_fsspec_s_that_is_named_is_used(fs: HeadraceFileSystem, cache: str) -> None:
    data = bytes(range(256)) * 100
    fs.pipe("/data/cached", data)
    with fs.open("/data/cached", "rb", block_size=1000, cache_type=cache) as file:
        assert (file.read(5), file.seek(20_000), file.read()) == (data[:5], 20_000, data[20_000:])


def test_urls_are_taken_as_everywhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    (tmp_path / "a[1]").mkdir()
    (tmp_path / "a[1]/x.bin").write_bytes(b"bytes")
    system, url = fsspec.filesystem("headrace"), f"file://{tmp_path}"
    name = f"{url}/a[1]/x.bin"
    assert system.cat_file(name) == b"bytes"
    assert system.info(name)["name"] == name
    assert system.find(url) == [name]
    assert system.glob(f"{url}/*/*.bin") == [name]
    assert system.ls(f"{url}/a[1]", detail=False) == [name]
    assert [found[2] for found in system.walk(url)] == [[], ["x.bin"]]
    assert system.unstrip_protocol(name) == f"headrace://{name}"
    with fsspec.open(f"headrace://{name}", "rb") as file:
        assert file.read() == b"bytes"
    system.pipe_file(f"{url}/new", b"1")
    system.mv(f"{url}/new", f"{url}/moved")
    system.rm(f"{url}/a[1]", recursive=True)
    assert system.find(url) == [f"{url}/moved"]
    assert system.find(str(tmp_path)) == [str(tmp_path / "moved")], "as it was asked for"


def test_when_a_file_was_made_is_when_it_was_written(fs: HeadraceFileSystem) -> None:
    fs.pipe("/data/dated", b"1")
    assert fs.created("/data/dated") == fs.modified("/data/dated")


@pytest.mark.server
@pytest.mark.parametrize("server", ["seaweedfs", "rgw"])
def test_a_signed_url_is_read_without_keys(request: pytest.FixtureRequest, server: str) -> None:
    running = request.getfixturevalue(server)
    url = running.create_bucket("signed-urls") or "s3://signed-urls"
    options = {name: value for name, value in dataclasses.asdict(running.options()).items() if value is not None}
    del options["extra"]
    with namespace(mounts={}) as (ns, _):
        ns.attach("/data", url, **options)
        system = HeadraceFileSystem.over(ns)
        for name in ("plain", "a b/é+&=.bin", "x%20y"):
            system.pipe_file(f"/data/{name}", name.encode())
            signed = system.sign(f"/data/{name}", expiration=60)
            with urllib.request.urlopen(signed) as answer:
                assert answer.read() == name.encode()
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(signed[:-3] + ("AAA" if not signed.endswith("AAA") else "BBB"))


def test_where_there_are_no_signed_urls_it_says_so(fs: HeadraceFileSystem) -> None:
    with pytest.raises(OSError, match="no URLs") as refused:
        fs.sign("/data/x")
    assert refused.value.errno == errno.ENOTSUP


def test_an_archived_object_is_one_that_may_not_be_read() -> None:
    with pytest.raises(PermissionError) as refused, _os_errors():
        raise ArchivedError("the object is archived", path="/data/x")
    assert refused.value.errno == errno_of(ArchivedError("the object is archived")) == errno.EACCES
