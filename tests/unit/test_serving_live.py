"""What servers of models tell of themselves on their node: whose files are believed, and what is left of the dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.serving import Options, Route
from headrace.serving.live import Live, Note, all_live
from headrace.serving.telling import together
from tests.children import running

ABOUT = Live("http://127.0.0.1:8501", None, 7, 2, 0, False, "2026-11-28T07:00:00Z", "s3://bucket/home", "mark", ())
ANOTHER = """
import sys
from headrace.serving.live import Live, Note
note = Note(sys.argv[1])
note.write(Live("http://127.0.0.1:1", None, 1, 1, 1, True, "", "", "", ()))
print("told", flush=True)
sys.stdin.read()
"""


def folder(cache: Path) -> Path:
    return cache / "serving" / "servers"


def test_what_is_told_is_found_until_its_end_and_nothing_is_left(tmp_path: Path) -> None:
    assert all_live(str(tmp_path)) == []
    one, other = Note(str(tmp_path)), Note(str(tmp_path))
    later = replace(ABOUT, url="http://127.0.0.1:8502", grpc="127.0.0.1:8503")
    other.write(later)
    one.write(ABOUT)
    assert all_live(str(tmp_path)) == [ABOUT, later]
    for ready in (True, False, True):
        one.write(replace(ABOUT, ready=ready))
        assert all_live(str(tmp_path)) == [replace(ABOUT, ready=ready), later]
    one.close()
    one.close()
    assert all_live(str(tmp_path)) == [later]
    other.close()
    assert os.listdir(folder(tmp_path)) == []


def test_the_room_on_the_disk_is_taken_once(tmp_path: Path) -> None:
    """A full disk is what it may have to tell, while a version that is fetched waits for every block."""
    note, files = Note(str(tmp_path)), []
    for ready in (True, False, True, False):
        note.write(replace(ABOUT, ready=ready))
        (path,) = folder(tmp_path).glob("*.json")
        files.append(path.stat().st_ino)
        assert len(os.listdir(folder(tmp_path))) == 2
    assert files[:2] == files[2:]
    assert files[0] != files[1], "nobody reads what is half written"
    note.close()
    assert os.listdir(folder(tmp_path)) == []


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    note = Note(str(tmp_path / "cache"))
    note.write(ABOUT)
    for path in (folder(tmp_path / "cache"), *folder(tmp_path / "cache").iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path
    note.close()


def test_what_a_killed_server_has_left_is_not_believed_and_goes(tmp_path: Path) -> None:
    note = Note(str(tmp_path))
    note.write(ABOUT)
    command = [sys.executable, "-c", ANOTHER, str(tmp_path)]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "told\n"
        assert [one.url for one in all_live(str(tmp_path))] == ["http://127.0.0.1:1", ABOUT.url]
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        assert any(name.startswith(f"{process.pid}-") for name in os.listdir(folder(tmp_path)))
    assert all_live(str(tmp_path)) == [ABOUT]
    assert {name.partition("-")[0] for name in os.listdir(folder(tmp_path))} == {str(os.getpid())}
    note.write(replace(ABOUT, ready=True))  # whoever looked has taken nothing from it
    assert all_live(str(tmp_path)) == [replace(ABOUT, ready=True)]
    note.close()


def test_a_file_that_nobody_understands_stays_and_is_not_shown(tmp_path: Path) -> None:
    """As a server of another version of headrace may write it."""
    note = Note(str(tmp_path))
    note.write(ABOUT)
    (path,) = folder(tmp_path).glob("*.json")
    path.write_text('{"url": 7}')
    assert all_live(str(tmp_path)) == []
    assert path.exists()
    note.close()


def test_processes_that_are_apart_are_told_as_one() -> None:
    options = Options((Route.parse("lin@prod=90,lin@next=10"), Route.parse("other")), processes=2)
    ahead = model([version(3, "AVAILABLE", ["prod"], ["prod"], 10, 1), version(2, "UNLOADING", [], [], 0, 0)])
    behind = model([version(3, "END", [], ["prod"], 0, 0, "out of memory"),
                    version(2, "AVAILABLE", ["prod"], [], 5, 0)], problem="the store is away")  # fmt: skip
    told = together(ABOUT, options, [ahead, "it failed", behind])
    assert (told.answering, told.ready) == (2, False)
    lin, other = told.models
    assert (lin.route, lin.problem) == ("lin@prod=90,lin@next=10", "the store is away")
    assert (other.route, other.versions) == ("other", ())
    three, two = lin.versions
    assert (three.number, three.state, three.processes, three.reason) == (3, "AVAILABLE", 1, "out of memory")
    assert (three.requests, three.failures, three.wanted) == (10, 1, ("prod",))
    assert (two.number, two.state, two.processes, two.labels) == (2, "AVAILABLE", 1, ("prod",))
    assert together(ABOUT, options, [{**ahead, "ready": True}, {**behind, "ready": True}]).ready
    assert not together(ABOUT, options, [{**ahead, "ready": True}]).ready, "one of two processes says nothing"


@pytest.mark.parametrize("text", ["digits", "digits@7", "digits@prod", "digits@prod=90,digits@next=10",
                                  "digits@prod,digits@next=shadow", "digits@prod=0.1,digits@next=0.9"])  # fmt: skip
def test_a_route_is_told_as_it_was_given(text: str) -> None:
    assert Route.parse(text).text == text


def model(versions: list[dict[str, Any]], problem: str = "") -> dict[str, Any]:
    lin = {"versions": versions, "problem": problem, "unloaded": False}
    return {"ready": False, "models": {"lin": lin, "other": {"versions": [], "problem": "", "unloaded": False}}}


def version(
    number: int, state: str, labels: list[str], wanted: list[str], requests: int, failures: int, reason: str = ""
) -> dict[str, Any]:
    return {"number": number, "state": state, "labels": labels, "wanted": wanted, "requests": requests,
            "failures": failures, "reason": reason}  # fmt: skip
