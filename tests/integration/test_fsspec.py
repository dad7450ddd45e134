"""fsspec's own abstract suite on ``headrace://``, over memory, a disk and a real S3 server; and libraries on top."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.tests.abstract as abstract
import pandas
import pyarrow.dataset
import pytest

from headrace.base.errors import HeadraceError
from headrace.namespace.filesystem import HeadraceFileSystem
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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path_factory.mktemp("weed")) as running:
        running.create_bucket("bucket")
        yield running


@pytest.mark.server
class TestSeaweed(_Suite):
    @pytest.fixture
    def fs(self, server: EmbeddedS3) -> Iterator[HeadraceFileSystem]:
        options = {
            "endpoint": server.endpoint,
            "access_key_id": server.access_key,
            "secret_access_key": server.secret_key,
            "region": "us-east-1",
        }
        with namespace() as (ns, _):
            ns.attach("/data", f"s3://bucket/{next(_number)}", **options)
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
