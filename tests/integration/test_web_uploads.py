"""Files that are uploaded and deleted from the page, where that is allowed: going on, refusing, and leaving nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from headrace.base.errors import NotFoundError
from headrace.testing.servers import EmbeddedS3
from headrace.web.guard import HEADER
from tests.runs_rig import RunsRig
from tests.web_rig import LOOKS, Console, Served, check, look, served

pytestmark = pytest.mark.server
SERVED = ("--allow", "write")
PIECE = 8 << 20


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("uploads"))
    made.headrace("attach", "/data", f"s3://{made.bucket}/all")
    made.headrace("attach", "/kept", f"s3://{made.bucket}/all", "--read-only")
    (made.work / "here").mkdir()
    made.headrace("attach", "/here", f"file://{made.work / 'here'}")
    made.store().put("all/there/first", b"first")
    yield made
    made.close()


def act(web: Served, path: str, told: Any = None, content: bytes | None = None, **query: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {web.token}", "origin": web.url, HEADER: "1"}
    given = {"json": {} if told is None else told} if content is None else {"content": content}
    return httpx.post(f"{web.url}/act{path}", headers=headers, params=query, timeout=60, **given)  # pyright: ignore


def begin(web: Served, name: str, size: int, folder: str = "/data/there/", **more: Any) -> httpx.Response:
    return act(web, "/uploads", {"folder": folder, "name": name, "size": size, **more})


def sent(rig: RunsRig, key: str) -> bytes | None:
    try:
        return bytes(rig.store().get(f"all/{key}").data)
    except NotFoundError:
        return None


def choose(page: Page, *files: Path) -> None:
    page.get_by_label("Files", exact=True).set_input_files(files)
    page.get_by_role("button", name="Upload").click()


@pytest.mark.parametrize(("width", "colours"), LOOKS)
@pytest.mark.parametrize("path", ["/files/data/there/", "/files/data/there/first", "/files/kept/there/"])
def test_what_may_be_written_is_accessible(blank: Page, web: Served, path: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(web.url + path)
    check(blank)


def test_nothing_is_written_unless_that_was_allowed(rig: RunsRig) -> None:
    with served(rig, "--allow", "stop") as web:
        for path in ("/files/data/there/", "/files/data/there/first"):
            text = web.get(path).text
            assert "upload.js" not in text
            assert 'data-act="' not in text
        for answer in (begin(web, "new", 1), act(web, "/delete", {"path": "/data/there/first"})):
            assert (answer.status_code, answer.json()["code"]) == (403, "denied")
            assert "--allow stop,write" in answer.json()["hint"]
    assert sent(rig, "there/first") == b"first"


def test_nor_where_a_store_is_read_only(page: Page, web: Served, rig: RunsRig) -> None:
    for path in ("/files/kept/there/", "/files/kept/there/first", "/files/"):
        page.goto(web.url + path)
        expect(page.get_by_role("button", name="Upload")).to_have_count(0)
        expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    deleted = act(web, "/delete", {"path": "/kept/there/first"})
    for answer in (begin(web, "new", 1, "/kept/"), begin(web, "new", 0, "/kept/"), deleted):
        assert (answer.status_code, answer.json()["code"]) == (403, "read-only")
    assert sent(rig, "there/first") == b"first"


@pytest.mark.parametrize("place", ["data", "here"])
def test_files_are_uploaded_and_listed(page: Page, web: Served, rig: RunsRig, tmp_path: Path, place: str) -> None:
    files = {"large #1.bin": os.urandom(2 * PIECE + 5), "exact": os.urandom(PIECE), "empty": b"", "größe%.txt": b"text"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    page.goto(f"{web.url}/files/{place}/")
    choose(page, *(tmp_path / name for name in files))
    expect(page.locator(".done")).to_have_text("4 files are there.", timeout=60_000)
    for name, data in files.items():
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
        assert web.get(f"/raw/files/{place}/{quote(name)}").content == data
    if place == "data":
        assert sent(rig, "large #1.bin") == files["large #1.bin"]


def test_an_upload_that_was_broken_off_goes_on(
    page: Page, web: Served, rig: RunsRig, tmp_path: Path, console: Console
) -> None:
    """The page is closed after the second piece; the next one sends what is missing, and nothing else."""
    console.mean(r"ERR_FAILED .*/act/uploads/")
    data = os.urandom(3 * PIECE + 100)
    (tmp_path / "long").write_bytes(data)
    offsets: list[str] = []

    def cut_off(route: Route) -> None:
        if len(offsets) == 2:
            route.abort()
            return
        offsets.append(route.request.url.partition("offset=")[2])
        route.continue_()

    page.goto(f"{web.url}/files/data/there/")
    page.route("**/act/uploads/*", cut_off)
    choose(page, tmp_path / "long")
    expect(page.locator("#uploads")).to_contain_text("66 %", timeout=30_000)
    assert sent(rig, "there/long") is None, "nothing is seen before all of it is there"
    page.unroute("**/act/uploads/*")
    page.goto(f"{web.url}/files/data/there/")
    page.on("request", lambda asked: offsets.extend(asked.url.split("offset=")[1:]))
    choose(page, tmp_path / "long")
    expect(page.locator(".done")).to_have_text("long is there.", timeout=30_000)
    assert offsets == [str(number * PIECE) for number in range(4)]
    assert sent(rig, "there/long") == data


def test_what_is_there_is_replaced_only_if_that_is_said(
    page: Page, web: Served, rig: RunsRig, tmp_path: Path, console: Console
) -> None:
    console.mean(r"status of 4\d\d .*/act/uploads")
    rig.store().put("all/there/old", b"old")
    (tmp_path / "old").write_bytes(b"new")
    page.goto(f"{web.url}/files/data/there/")
    choose(page, tmp_path / "old")
    expect(page.locator("#uploads .bad")).to_contain_text("is there already")
    assert sent(rig, "there/old") == b"old"
    page.get_by_label("replace what has the same name").check()
    choose(page, tmp_path / "old")
    expect(page.locator(".done")).to_have_text("old is there.")
    assert sent(rig, "there/old") == b"new"


def test_who_was_quicker_is_not_overwritten(web: Served, rig: RunsRig) -> None:
    told = begin(web, "quick", 3).json()
    rig.store().put("all/there/quick", b"mine")
    answer = act(web, f"/uploads/{told['id']}", content=b"abc", offset=0)
    assert (answer.status_code, answer.json()["code"]) == (409, "already-exists")
    assert sent(rig, "there/quick") == b"mine"


def test_what_is_asked_wrongly_is_refused(web: Served, rig: RunsRig) -> None:
    for name, folder in (
        ("", "/data/"), ("a/b", "/data/"), ("..", "/data/"), ("x", "/data/../"), ("x", "data"), ("x", "/etc"),
    ):  # fmt: skip
        answer = begin(web, name, 1, folder)
        assert answer.status_code in (400, 404), (name, folder, answer.text)
    assert begin(web, "x", -1).status_code == 400
    assert begin(web, "x", 1 << 50).json()["hint"] == "headrace cp FILE PATH"
    told = begin(web, "wrong", PIECE + 1).json()
    where = f"/uploads/{told['id']}"
    for content, offset, status in ((b"x" * PIECE, 1, 409), (b"short", 0, 400), (b"x" * (PIECE + 1), 0, 400)):
        assert act(web, where, content=content, offset=offset).status_code == status
    assert act(web, "/uploads/unknown", content=b"x", offset=0).status_code == 404
    assert begin(web, "wrong", PIECE + 1).json()["id"] == told["id"]
    assert act(web, f"{where}/drop").status_code == 200
    assert act(web, where, content=b"x" * PIECE, offset=0).status_code == 404
    assert sent(rig, "there/wrong") is None


def test_a_file_is_deleted_by_keys_alone(page: Page, web: Served, rig: RunsRig) -> None:
    rig.store().put("all/there/evil <b>", b"gone soon")
    page.goto(f"{web.url}/files/data/there/evil%20%3Cb%3E")
    page.get_by_role("button", name="Delete", exact=True).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete /data/there/evil <b>?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    assert sent(rig, "there/evil <b>") is not None
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("button", name="Delete it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".done")).to_have_text("/data/there/evil <b> is deleted.")
    page.wait_for_url("**/files/data/there/")
    expect(page.get_by_role("link", name="evil <b>")).to_have_count(0)
    assert sent(rig, "there/evil <b>") is None


def test_only_what_was_looked_at_is_deleted(web: Served, rig: RunsRig) -> None:
    rig.store().put("all/there/moving", b"one")
    version = web.twin("/files/data/there/moving")["file"]["version"]  # pyright: ignore
    rig.store().put("all/there/moving", b"another")
    answer = act(web, "/delete", {"path": "/data/there/moving", "version": version})
    assert (answer.status_code, answer.json()["code"]) == (409, "changed")
    for path, status in (
        ("/data/there", 400), ("/data/there/", 400), ("/data/none", 404), ("/etc/passwd", 404), ("/data/../x", 400),
    ):  # fmt: skip
        assert act(web, "/delete", {"path": path}).status_code == status, path
    assert sent(rig, "there/moving") == b"another"


def test_what_is_under_way_is_thrown_away_at_the_end(rig: RunsRig) -> None:
    with served(rig, "--allow", "write") as web:
        told = begin(web, "half", 2 * PIECE).json()
        assert act(web, f"/uploads/{told['id']}", content=bytes(PIECE), offset=0).json()["offset"] == PIECE
        assert [one.key for one in rig.store().unfinished("all/there/half")] == ["all/there/half"]
        web.process.send_signal(signal.SIGINT)
        assert web.process.wait(20) == 0
    assert list(rig.store().unfinished("all/there/half")) == []
    assert sent(rig, "there/half") is None
