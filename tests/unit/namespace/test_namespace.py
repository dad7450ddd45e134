"""What the semantics page leaves to the code: requests made, memory bounds, settings files, sizes, imports."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headrace
from headrace.base.errors import DeniedError, InputError, NotFoundError, SettingError
from headrace.base.settings import Settings
from headrace.namespace import Namespace, remove_mount, write_mount
from headrace.namespace.metadata import Metadata
from headrace.namespace.writer import Spool
from headrace.store import Folder, ObjectInfo
from tests.memory_kit import peak_kib
from tests.unit.namespace.reference import References, namespace


def test_reading_costs_one_request() -> None:
    with namespace(mounts={"/s": "ref://s"}) as (ns, references):
        ns.write("/s/k", b"123")
        references.requests()
        ns.read("/s/k")
        assert references.requests() == [("get", "k")]
        ns.list("/s")
        references.requests()
        ns.open("/s/k").read()
        assert references.requests() == [("get", "k")]


def test_a_million_keys_stream() -> None:
    """So many that holding all of them would take ten times what may be held."""
    with namespace(mounts={"/s": "ref://s"}) as (ns, references):

        def pages(prefix: str = "", **_: object) -> object:
            for page in range(1000):
                yield [ObjectInfo(f"{page:04}/{i:04}", 1) for i in range(1000)]

        store = ns.resolve("/s/k").store
        store.list = pages  # type: ignore[method-assign,assignment]
        before = peak_kib(anew=True)
        assert sum(entry.size for entry in ns.walk("/s")) == 1_000_000
        assert peak_kib() - before < 30_000
        assert references.requests() == []


def test_metadata_expires_and_is_bounded() -> None:
    now = 0.0
    known = Metadata(10, most=100, clock=lambda: now)
    info = ObjectInfo("f/k", 1, "e")
    known.keep(info)
    assert known.info("f/k") == (info, True)
    now = 11.0
    assert known.info("f/k") == (info, False)
    for number in range(1000):
        known.keep(ObjectInfo(f"{number}", 1))
        known.keep_folder(f"{number}/", Folder((), tuple(ObjectInfo(f"{number}/{i}", 1) for i in range(10))))
    alive = [n for n in range(1000) if known.folder(f"{n}/") is not None]
    assert alive == list(range(990, 1000))
    assert len([n for n in range(1000) if known.info(str(n))]) == 100
    known.keep_folder("huge/", Folder((), tuple(ObjectInfo(f"huge/{i}", 1) for i in range(101))))
    assert known.folder("huge/") is None
    known.keep_folder("", Folder(("999/",), ()))
    known.forget("999/3")
    assert known.folder("") is None
    assert known.folder("999/") is None
    assert known.folder("998/") is not None


def test_mounts_in_a_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text('# mine\nhome = "s3://home/x" # the team\n\n[cache]\nsize = "1GB"\n')
    file.chmod(0o600)
    write_mount("/data/a b", "s3://bucket/p/", {"profile": "team", "region": None}, file, read_only=True)
    write_mount("/other/", "file:///", {}, file)
    settings = Settings.load(tmp_path, {})
    ns = Namespace.load(settings)
    assert [(m.path, m.url, m.read_only, dict(m.options)) for m in ns.mounts()] == [
        ("/data/a b", "s3://bucket/p", True, {"profile": "team"}),
        ("/other", "file://", False, {}),
    ]
    ns.attach("/third", "memory://m")
    ns.detach("/other")
    ns.save(file)
    assert {m.path for m in Namespace.load(Settings.load(tmp_path, {})).mounts()} == {"/data/a b", "/third"}
    text = file.read_text()
    assert "# mine" in text
    assert "# the team" in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for path in ("/third", "/data/a b"):
        remove_mount(path, file)
    assert Settings.load(tmp_path, {}).mounts == {}
    with pytest.raises(NotFoundError):
        remove_mount("/third", file)
    assert list(tmp_path.iterdir()) == [file]


def test_wrong_settings_files(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text("[mounts\n")
    with pytest.raises(SettingError) as caught:
        write_mount("/x", "memory://m", {}, file)
    assert caught.value.path == str(file)
    for table in ({}, {"url": 3}, {"url": "memory://m", "read_only": "yes"}, {"url": "s3://bucket", "regoin": "x"}):
        with pytest.raises(SettingError) as caught:
            Namespace(Settings(mounts={"/x": table}))
        assert caught.value.path == "/x"
        assert caught.value.hint
    for url in ("bucket/x", "s3://", "s3://key:secret@bucket/x"):
        with pytest.raises(InputError) as failure:
            Namespace().attach("/x", url)
        assert "secret" not in str(failure.value)


def test_a_folder_in_place_of_the_settings_file(tmp_path: Path) -> None:
    with pytest.raises(DeniedError):
        write_mount("/x", "memory://m", {}, tmp_path)


def test_the_spool_moves_to_disk() -> None:
    spool = Spool(memory=10)
    assert spool.write(b"12345678") == 8
    spool.file.seek(4)
    spool.write(b"abcdefgh")
    spool.file.seek(0)
    spool.write(b"X")
    assert bytes(spool.view()) == b"X234abcdefgh"
    view = spool.view()
    spool.close()
    assert bytes(view) == b"X234abcdefgh"
    assert bytes(Spool().view()) == b""


def test_many_threads_open_a_store_once() -> None:
    opened: list[str] = []
    references = References()

    def opener(url: str, *rest: object) -> object:
        opened.append(url)
        return references(url, *rest)  # type: ignore[arg-type]

    ns = Namespace(opener=opener)  # type: ignore[arg-type]
    ns.attach("/s", "ref://s")
    barrier = threading.Barrier(16)

    def work() -> None:
        barrier.wait()
        ns.resolve("/s/k")

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == ["ref://s"]


def test_errors_name_the_path_asked_for() -> None:
    with namespace(mounts={"/s": "ref://s"}) as (ns, _):
        for operation in (ns.stat, ns.open, ns.list):
            with pytest.raises(NotFoundError) as caught:
                operation("/s/missing")
            assert caught.value.path == "/s/missing"


def test_the_public_face() -> None:
    assert headrace.Namespace is Namespace
    assert headrace.errors.NotFoundError is NotFoundError
    assert {"Dataset", "Namespace", "Skip", "errors", "torch"} <= set(dir(headrace))
    with pytest.raises(AttributeError):
        headrace.nothing  # noqa: B018
    code = (
        "import sys; before = set(sys.modules); import headrace;"
        "print(*sorted(m for m in set(sys.modules) - before if not m.startswith(('headrace', '__'))))"
    )
    loaded = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False,
                            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})  # fmt: skip
    assert loaded.returncode == 0, loaded.stderr
    heavy = {"numpy", "obstore", "botocore", "torch", "pyarrow", "click", "rich", "fsspec"}
    assert not heavy & {name.partition(".")[0] for name in loaded.stdout.split()}


def test_own_writes_show_through_overlapping_stores(tmp_path: Path) -> None:
    with namespace(mounts={"/disk": f"file://{tmp_path}", "/inner": f"file://{tmp_path}/f"}) as (ns, _):
        for written, other in (("/disk/f/k", "/inner/k"), ("/inner/k", "/disk/f/k")):
            for size in (1, 2):
                ns.write(written, b"x" * size)
                assert ns.stat(other).size == size
            ns.delete(written)
            assert not ns.exists(other)


def test_a_path_of_this_machine_is_met_with_its_url(tmp_path: Path) -> None:
    """Where only what is attached counts."""
    ns = Namespace(local=False)
    ns.attach("/s", "memory://s")
    with pytest.raises(NotFoundError) as caught:
        ns.stat(str(tmp_path / "nothing"))
    assert "file://" not in str(caught.value.hint)
    with pytest.raises(NotFoundError) as caught:
        ns.stat(str(tmp_path))
    assert f"file://{tmp_path}" in str(caught.value.hint)
