"""Uploads whose writer was killed: the next writer of this node throws them away, `rm --uploads` does by age."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.store import Store, open_store
from headrace.store.backends import register as register_module
from headrace.store.backends.register import Begun, Register
from headrace.store.embedded import EmbeddedS3
from tests.integration.cli_kit import Shell, s3_shell, shell  # noqa: F401

pytestmark = pytest.mark.server

BEGIN = """
import os, sys, time
from headrace.store import open_store
from headrace.store.backends import register
from headrace.store.embedded import EmbeddedS3
url, options, mode = sys.argv[1], eval(sys.stdin.readline()), sys.argv[2]
from headrace.store import StoreOptions
if mode == "untold":
    register.Register.named = lambda self, number, id_: None
store = open_store(url, StoreOptions(**options))
for name in ("a", "b c/é"):
    assembly = store.assemble(name)
    assembly.part(1, 0, bytes(6 << 20))
if mode == "forked" and os.fork():
    time.sleep(600)
done = store.assemble("done")
done.part(1, 0, b"x")
done.complete()
print(os.getpid(), flush=True)
time.sleep(600)
"""
PUT = """
import sys
from headrace.store import StoreOptions, open_store
store = open_store(sys.argv[1], StoreOptions(**eval(sys.stdin.readline())))
store.put("small", b"x")
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of those who are started here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/headrace/uploads"


@pytest.fixture
def store(seaweedfs: EmbeddedS3) -> Iterator[Store]:
    seaweedfs.create_bucket("uploads-left")
    opened = open_store(f"s3://uploads-left/{time.monotonic_ns()}", seaweedfs.options())
    yield opened
    opened.close()


def told(server: EmbeddedS3) -> str:
    import dataclasses

    return repr({**dataclasses.asdict(server.options()), "extra": ()})


def begun(server: EmbeddedS3, store: Store, mode: str) -> subprocess.Popen[str]:
    """A writer in the middle of two uploads, that has ended a third."""
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", BEGIN, store.url, mode], stdin=pipe, stdout=pipe, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(told(server) + "\n")
    child.stdin.flush()
    child.last = int(child.stdout.readline())  # type: ignore[attr-defined]
    return child


def write(server: EmbeddedS3, store: Store) -> None:
    """By another process."""
    done = subprocess.run([sys.executable, "-c", PUT, store.url], input=told(server) + "\n", text=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("mode", ["told", "untold", "forked"])
def test_the_next_writer_throws_away_what_a_killed_one_had_begun(
    seaweedfs: EmbeddedS3, store: Store, state: Path, mode: str
) -> None:
    child = begun(seaweedfs, store, mode)
    try:
        assert {one.key for one in store.unfinished()} == {"a", "b c/é"}
        write(seaweedfs, store)
        assert len(store.unfinished()) == 2, "it lives"
    finally:
        os.kill(child.last, signal.SIGKILL)  # type: ignore[attr-defined]
        child.kill()
        child.wait()
    write(seaweedfs, store)
    assert store.unfinished() == []
    assert {one.key for page in store.list() for one in page} == {"done", "small"}
    assert os.listdir(state) == []


def test_another_bucket_s_writer_leaves_them(seaweedfs: EmbeddedS3, store: Store, state: Path) -> None:
    child = begun(seaweedfs, store, "told")
    child.kill()
    child.wait()
    seaweedfs.create_bucket("uploads-elsewhere")
    elsewhere = open_store("s3://uploads-elsewhere", seaweedfs.options())
    write(seaweedfs, elsewhere)
    assert len(store.unfinished()) == 2
    write(seaweedfs, store)
    assert store.unfinished() == []
    assert os.listdir(state) == []
    elsewhere.close()


def test_a_state_folder_that_cannot_be_used_stops_nobody(
    seaweedfs: EmbeddedS3, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    child = begun(seaweedfs, store, "told")
    child.kill()
    child.wait()
    assert bytes(store.get("done").data) == b"x"


def test_rm_uploads_and_doctor_find_them_by_age(
    s3_shell: Shell,  # noqa: F811
    seaweedfs: EmbeddedS3,
    store: Store,
    state: Path,
) -> None:
    child = begun(seaweedfs, store, "told")
    child.kill()
    child.wait()
    for left in state.iterdir():
        left.unlink()  # as after a crash of the machine, or on another node
    young = s3_shell.run("rm", "--uploads", store.url)
    assert (young.out, young.err) == ("", "0 uploads thrown away\n")
    listed = s3_shell.run("rm", "--uploads", "-n", "--older-than", "0s", store.url)
    assert {line.split(", begun")[0] for line in listed.out.splitlines()} == {f"{store.url}/a", f"{store.url}/b c/é"}
    assert len(store.unfinished()) == 2
    for neighbour in ("b", "b ", "b c/", "b c/é/below"):
        told = s3_shell.run("rm", "--uploads", "-n", "--older-than", "0s", f"{store.url}/{neighbour}")
        assert told.out.count("begun") == (neighbour == "b c/"), neighbour
    s3_shell.run("rm", "--uploads", "--older-than", "0s", f"{store.url}/b c")
    assert [one.key for one in store.unfinished()] == ["a"]
    findings = json.loads(s3_shell.run("doctor", "--write", "--seconds", "1", "--json", store.url).out)
    [found] = [one for one in findings if one["id"] == "uploads"]
    assert found["status"] == "ok", "it is too young to be a stray"


def test_the_register_forgets_what_ended_and_what_is_cut_short(tmp_path: Path) -> None:
    living = Register(str(tmp_path))
    living.begin("b", "its own", 1.0)
    [own] = tmp_path.iterdir()
    machine = own.name.partition("-")[0]
    elsewhere = tmp_path / f"{machine[::-1]}0-1-elsewhere"
    elsewhere.write_text('{"n": 1, "bucket": "b", "key": "of another machine", "at": 1.0}\n')
    dead = tmp_path / f"{machine}-1-dead"
    lines = [
        '{"n": 1, "bucket": "b", "key": "ended", "at": 1.0}', '{"n": 1, "id": "x"}', '{"n": 1, "over": true}',
        '{"n": 2, "bucket": "b", "key": "told", "at": 2.0}', '{"n": 2, "id": "y"}',
        '{"n": 3, "bucket": "c", "key": "elsewhere", "at": 3.0}', "nonsense", '{"n": 9, "id": "nobody"}',
        '{"n": 4, "bucket": "b", "key": "untold", "at": 4.0}', '{"n": 4, "i',
    ]  # fmt: skip
    dead.write_text("\n".join(lines))
    register, seen = Register(str(tmp_path)), []
    register.hand_over("b", lambda one: bool(seen.append(one)))  # none can be thrown away yet
    assert seen == [Begun("b", "told", 2.0, "y"), Begun("b", "untold", 4.0, None)]
    register.hand_over("b", lambda one: one.key == "told")
    again: list[Begun] = []
    register.hand_over("b", lambda one: again.append(one) or True)  # type: ignore[func-returns-value]
    assert again == [Begun("b", "untold", 4.0, None)]
    register.hand_over("c", lambda _: True)
    assert sorted(os.listdir(tmp_path)) == sorted([own.name, elsewhere.name])


def test_a_long_life_does_not_make_a_long_file(tmp_path: Path) -> None:
    register = Register(str(tmp_path))
    for number in range(3000):
        at = register.begin("b", f"key {number}", 1.0)
        register.named(at, "id" * 20)
        register.end(at)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 100_000
    register.close()
    assert os.listdir(tmp_path) == []


def test_a_fork_while_somebody_begins_one_can_begin_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module._shared, "register", Register(str(tmp_path)))
    mine = register_module.register()
    mine.begin("b", "the parent's", 1.0)
    with mine._lock, register_module._shared.lock:  # as another thread may hold them
        pid = os.fork()
        if pid == 0:
            register_module._shared.register = Register(str(tmp_path))
            os._exit(0 if register_module.register().begin("b", "the child's", 1.0) == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    left: list[Begun] = []
    mine.hand_over("b", lambda one: left.append(one) or True)  # type: ignore[func-returns-value]
    assert [one.key for one in left] == ["the child's"]
