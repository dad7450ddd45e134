"""JupyterLab over the namespace: in a real browser, over a real store; what it shows, and what it refuses."""

from __future__ import annotations

import base64
import io
import json
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from headrace.base.ports import reserve_port
from headrace.testing.servers import EmbeddedS3
from headrace.web.guard import HEADER
from tests import jupyter_kit
from tests.jupyter_kit import Lab, lab, plain_lab, run
from tests.runs_rig import COMMAND, RunsRig
from tests.sync_rig import wait_for
from tests.web_rig import served

pytestmark = pytest.mark.server
NOTEBOOK: dict[str, Any] = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Of the bucket"},
        {"cell_type": "code", "id": "b", "metadata": {}, "source": "6 * 7", "outputs": [], "execution_count": 1},
    ],
    "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    """A bucket with a folder to look at, attached at ``/data``; a file in the working folder; a home without runs."""
    scratch = tmp_path_factory.mktemp("jupyter")
    made = RunsRig(seaweedfs, scratch, jupyter_kit.variables(scratch))
    shown = made.scratch / "shown"
    (shown / "deep").mkdir(parents=True)
    (shown / "notes.txt").write_text("words of the bucket\n")
    (shown / "deep/one.txt").write_text("1")
    (shown / ".hidden").write_text("2")
    (shown / "book.ipynb").write_text(json.dumps(NOTEBOOK))
    Image.new("RGB", (60, 40), (200, 30, 30)).save(shown / "red.png")
    (made.work / "local.txt").write_text("of this machine")
    made.headrace("attach", "/data", f"s3://{made.bucket}/data")
    made.headrace("cp", "-r", str(shown), "/data/shown")
    yield made
    made.close()


@pytest.fixture(scope="module")
def jupyter(rig: RunsRig) -> Iterator[Lab]:
    with lab(rig) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def _patience() -> Iterator[None]:
    """JupyterLab takes its time where others work, too."""
    expect.set_options(timeout=30_000)
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture
def page(chromium: Browser, jupyter: Lab) -> Iterator[Page]:
    """JupyterLab says much against itself on its console, which is its own affair."""
    context = chromium.new_context()
    made = context.new_page()
    settings = {"raw": '{"display_columns": ["size", "last_modified"]}'}
    assert jupyter.ask("PUT", "/lab/api/settings/jupyter-fs:plugin", settings).status_code == 204
    made.goto(f"{jupyter.entry}&reset")  # nothing is open that another test has opened
    yield made
    context.close()


def in_bucket(rig: RunsRig) -> dict[str, bytes]:
    """All that is there to look at, and to change."""
    keys = [info.key for prefix in ("data/", "own/") for found in rig.store().list(prefix) for info in found]
    return {key: bytes(rig.store().get(key).data) for key in keys}


# looking


def test_a_browser_opens_a_folder_of_the_bucket_and_what_is_in_it(page: Page) -> None:
    page.get_by_role("tab", name="headrace").click()
    side = page.locator(".jp-tree-finder-sidebar")
    for folder in ("data/", "shown/"):
        side.locator(".rt-group-name", has_text=folder).dblclick()
    rows = side.locator("tbody tr")
    expect(rows.filter(has_text="deep/")).to_contain_text(re.compile("second|minute"))  # how long ago
    expect(rows.filter(has_text="notes.txt")).to_contain_text(re.compile("second|minute"))
    expect(side.locator("tbody")).not_to_contain_text(".hidden")

    def open_file(name: str) -> None:
        side.locator(".rt-group-name", has_text=name).dblclick()

    open_file("notes.txt")
    expect(page.locator(".jp-FileEditor")).to_contain_text("words of the bucket")
    open_file("red.png")
    expect(page.locator(".jp-ImageViewer img")).to_have_js_property("naturalWidth", 60)
    open_file("book.ipynb")
    book = page.locator(".jp-NotebookPanel")
    expect(book.get_by_role("heading", name="Of the bucket")).to_be_visible()
    expect(book.get_by_text("notebook is read-only")).to_be_visible()


def test_what_is_typed_into_a_file_is_not_saved(page: Page, rig: RunsRig) -> None:
    before = in_bucket(rig)
    page.get_by_role("tab", name="headrace").click()
    side = page.locator(".jp-tree-finder-sidebar")
    for name in ("data/", "shown/", "notes.txt"):
        side.locator(".rt-group-name", has_text=name).dblclick()
    page.locator(".jp-FileEditor .cm-content").press_sequentially("more")
    page.keyboard.press("Control+s")
    expect(page.get_by_text(re.compile("notes.txt is read-only"))).to_be_visible()
    side.locator(".rt-group-name", has_text="notes.txt").click(button="right")
    expect(page.get_by_role("menuitem", name="Delete")).to_have_attribute("aria-disabled", "true")
    assert in_bucket(rig) == before


def test_the_working_folder_is_beside_it(page: Page) -> None:
    page.get_by_role("tab", name=re.compile("File Browser")).click()
    expect(page.locator(".jp-FileBrowser")).to_contain_text("local.txt")


def test_times_are_those_of_the_store_and_never_1970(jupyter: Lab) -> None:
    models = [jupyter.model(path) for path in ("", "data", "data/shown", "data/shown/deep")]
    models += [one for model in list(models) for one in model["content"]]
    now = datetime.now(UTC)
    for model in models:
        for kind in ("created", "last_modified"):
            then = datetime.fromisoformat(model[kind])
            assert abs((now - then).total_seconds()) < 3600, (model["path"], kind, then)
    assert {one["path"]: one["type"] for one in jupyter.model("data/shown")["content"]} == {
        "data/shown/book.ipynb": "notebook", "data/shown/deep": "directory", "data/shown/notes.txt": "file",
        "data/shown/red.png": "file",
    }  # fmt: skip


def test_contents_come_as_they_are_asked_for(jupyter: Lab) -> None:
    assert jupyter.model("data/shown/notes.txt")["content"] == "words of the bucket\n"
    as_bytes = jupyter.model("data/shown/notes.txt", "?format=base64")["content"]
    assert base64.b64decode(as_bytes) == b"words of the bucket\n"
    picture = jupyter.model("data/shown/red.png")
    assert (picture["format"], picture["mimetype"]) == ("base64", "image/png")
    with Image.open(io.BytesIO(base64.b64decode(picture["content"]))) as drawn:
        assert drawn.size == (60, 40)
    book = jupyter.model("data/shown/book.ipynb")
    assert (book["format"], book["content"]["cells"][1]["source"]) == ("json", "6 * 7")
    assert jupyter.model("data/shown/book.ipynb", "?type=file")["format"] == "text"
    assert jupyter.model("data/shown", "?content=0")["content"] is None
    answer = jupyter.ask("GET", f"/files/{jupyter.drive()}:data/shown/notes.txt")
    assert answer.text == "words of the bucket\n"


@pytest.mark.parametrize(
    ("path", "status"),
    [("data/none", 404), ("data/shown/.hidden", 404), ("none", 404), ("data/shown/notes.txt?type=directory", 404),
     ("data/shown?type=file", 400), ("data/shown/red.png?format=text", 400),
     ("data/shown/notes.txt?type=notebook", 400), ("data/%2e%2e/%2e%2e/etc/passwd", 404)],
)  # fmt: skip
def test_what_is_not_there_or_of_another_kind_is_said(jupyter: Lab, path: str, status: int) -> None:
    answer = jupyter.ask("GET", jupyter.at(path))
    assert answer.status_code == status, answer.text
    assert "Unhandled" not in answer.text


# refusing

FILE = {"type": "file", "format": "text", "content": "overwritten"}
COPY = {"copy_from": "{drive}:data/shown/notes.txt"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "data/shown/notes.txt", FILE),
        ("PUT", "data/shown/new.txt", FILE),
        ("PUT", "data/shown/book.ipynb", {"type": "notebook", "content": NOTEBOOK}),
        ("PUT", "data/shown/folder", {"type": "directory"}),
        ("PATCH", "data/shown/notes.txt", {"path": "{drive}:data/shown/other.txt"}),
        ("DELETE", "data/shown/notes.txt", None),
        ("DELETE", "data/shown", None),
        ("POST", "data/shown", {"type": "file", "ext": ".txt"}),
        ("POST", "data/shown", COPY),
    ],
    ids=["save", "upload", "save a notebook", "new folder", "rename", "delete", "delete a folder", "new", "copy"],
)
def test_nothing_is_changed_and_why_is_said(
    rig: RunsRig, jupyter: Lab, method: str, path: str, body: dict[str, Any] | None
) -> None:
    before = in_bucket(rig)
    drive = jupyter.drive()
    told = {name: one.format(drive=drive) if isinstance(one, str) else one for name, one in (body or {}).items()}
    answer = jupyter.ask(method, jupyter.at(path), told or None)
    assert answer.status_code == 403, answer.text
    assert "is read-only here: headrace jupyter --allow-writes" in answer.json()["message"]
    assert in_bucket(rig) == before


def test_a_drive_that_settings_of_the_browser_add_is_read_only_too(rig: RunsRig, jupyter: Lab) -> None:
    mine = {"name": "mine", "url": f"headrace://s3://{rig.bucket}/data", "type": "fsspec", "auth": "none"}
    body = {"resources": [mine], "options": {"_addServerside": True}}
    drives = {one["name"]: one["drive"] for one in jupyter.ask("POST", "/jupyterfs/resources", body).json()}
    assert jupyter.ask("GET", f"/api/contents/{drives['mine']}:shown/notes.txt").status_code == 200
    answer = jupyter.ask("DELETE", f"/api/contents/{drives['mine']}:shown/notes.txt")
    assert answer.status_code == 403, answer.text
    assert "data/shown/notes.txt" in in_bucket(rig)


# changing, where it is allowed, and as Jupyter's own settings say


def test_jupyter_s_settings_are_written_beside_what_is_there(rig: RunsRig) -> None:
    file = Path(rig.environment["JUPYTER_CONFIG_DIR"], "jupyter_server_config.json")
    file.parent.mkdir(exist_ok=True)
    theirs = {"name": "theirs", "url": "memory://", "type": "fsspec", "auth": "none"}
    before = {"ServerApp": {"quit_button": False}, "JupyterFs": {"resources": [theirs]}}
    file.write_text(json.dumps(before))
    file.chmod(0o600)  # Jupyter keeps a password's hash there
    for _ in range(2):
        told = json.loads(run(rig, f"s3://{rig.bucket}/data/shown/", "--write-config", "--json").stdout)
        assert told["path"] == str(file)
    text = file.read_text()
    found = json.loads(text)
    assert found["ServerApp"]["quit_button"] is False
    assert [one["url"] for one in found["JupyterFs"]["resources"]] == [
        "memory://", f"headrace://s3://{rig.bucket}/data/shown"
    ]  # fmt: skip
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert rig.server.secret_key not in text
    assert rig.server.access_key not in text
    file.write_text("{")
    refused = run(rig, "--write-config", code=2)
    assert "is no JSON" in refused.stderr
    assert file.read_text() == "{", "what cannot be read is not overwritten"
    file.unlink()


def test_files_are_changed_where_it_is_allowed(rig: RunsRig) -> None:
    """In a JupyterLab of the user's own, behind a hub's path, below a URL; its launcher has the page, too."""
    base = "/user/ann@example.org"
    rig.headrace("cp", "headrace.toml", f"s3://{rig.bucket}/own/first.toml")
    run(rig, f"s3://{rig.bucket}/own", "--allow-writes", "--write-config")
    with plain_lab(rig, reserve_port(), base, token="t" * 32) as own:

        def up() -> bool:
            with suppress(httpx.TransportError):
                return own.ask("GET", "/api/status").status_code == 200
            return False

        def change(method: str, path: str, body: Any = None) -> int:
            answer = own.ask(method, own.at(path), body)
            assert "Unhandled" not in answer.text
            return answer.status_code

        assert wait_for(up, 60)
        assert own.model("first.toml")["writable"]
        assert f'href="{base}/headrace/data"' in own.ask("GET", "/headrace/runs").text
        assert change("PUT", "mine/data/a.txt", FILE) == 201
        assert change("PUT", "mine/data/a.txt", {**FILE, "content": "é"}) == 200
        assert change("PUT", "mine/b.bin", {**FILE, "format": "base64", "content": "AAEC"}) == 201
        assert change("PUT", "mine/c.ipynb", {"type": "notebook", "content": NOTEBOOK}) == 201
        assert change("POST", "mine", {"copy_from": f"{own.drive()}:mine/b.bin"}) == 201
        assert change("PATCH", "mine/b.bin", {"path": f"{own.drive()}:mine/d.bin"}) == 200
        assert change("POST", "mine/c.ipynb/checkpoints") == 201
        for number, letter in ((1, "a"), (2, "b"), (-1, "c")):
            assert "own/mine/pieces" not in in_bucket(rig), "all of it or nothing"
            assert change("PUT", "mine/pieces", {**FILE, "content": letter, "chunk": number}) == 201
        assert in_bucket(rig)["own/mine/pieces"] == b"abc"
        expected = {"own/mine/data/a.txt": "é".encode(), "own/mine/d.bin": b"\0\1\2", "own/mine/b-Copy1.bin": b"\0\1\2"}
        found = in_bucket(rig)
        assert {name: found.get(name) for name in expected} == expected
        assert json.loads(found["own/mine/c.ipynb"])["cells"][1]["source"] == ["6 * 7"]
        assert "own/mine/b.bin" not in found
        refused = {
            ("DELETE", "mine"): (None, 400), ("PUT", "mine/new"): ({"type": "directory"}, 400),
            ("PUT", "mine/e.bin"): ({**FILE, "chunk": 2}, 409),
            ("PATCH", "mine/d.bin"): ({"path": f"{own.drive()}:mine/data/a.txt"}, 409),
            ("PATCH", "mine/data"): ({"path": f"{own.drive()}:mine/other"}, 400), ("DELETE", "mine/none"): (None, 404),
        }  # fmt: skip
        assert {asked: change(*asked, body) for asked, (body, _) in refused.items()} == {
            asked: status for asked, (_, status) in refused.items()
        }
        assert in_bucket(rig) == found
        for name in ("data/a.txt", "c.ipynb", "d.bin", "b-Copy1.bin", "pieces"):
            assert change("DELETE", f"mine/{name}") == 204
        assert not [name for name in in_bucket(rig) if name.startswith("own/mine/")]
        (page,) = [one for one in psutil.Process(own.process.pid).children() if "--socket" in one.cmdline()]
        socket = Path(page.cmdline()[page.cmdline().index("--socket") + 1])
        assert socket.exists()
        own.process.kill()
        assert wait_for(lambda: not socket.parent.exists()), "the page ends with a Jupyter that is killed"
    Path(rig.environment["JUPYTER_CONFIG_DIR"], "jupyter_server_config.json").unlink()


# the page in the launcher


def test_the_launcher_opens_the_page_and_nobody_pastes_a_token(page: Page, jupyter: Lab) -> None:
    with page.context.expect_page() as opened:
        page.locator(".jp-LauncherCard", has_text="headrace").click()
    shown = opened.value
    expect(shown.get_by_role("heading", level=1)).to_be_visible()
    assert shown.url == f"{jupyter.url}/headrace/runs"
    shown.get_by_role("link", name="Data").click()
    expect(shown).to_have_url(f"{jupyter.url}/headrace/data")
    assert "headrace" not in {one["name"].partition("-")[0] for one in page.context.cookies()}, (
        "no cookie of the page's"
    )
    shown.goto(f"{jupyter.url}/headrace")
    expect(shown).to_have_url(f"{jupyter.url}/headrace/")
    expect(shown.get_by_role("heading", level=1)).to_be_visible()


def test_nobody_else_reaches_the_page(jupyter: Lab) -> None:
    """Neither past Jupyter's token, nor past the page's, which no command line holds."""
    assert jupyter.ask("GET", "/headrace/runs").status_code == 200
    answer = httpx.get(f"{jupyter.url}/headrace/runs")
    assert (answer.status_code, "/login" in answer.headers["location"]) == (302, True)
    assert httpx.post(f"{jupyter.url}/headrace/runs").status_code == 403
    (web,) = [one for one in psutil.Process(jupyter.process.pid).children(recursive=True) if "web" in one.cmdline()]
    socket = Path(web.cmdline()[web.cmdline().index("--socket") + 1])
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    assert not [one for one in web.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    token = web.environ()["HEADRACE_WEB_TOKEN"]
    assert not [word for word in web.cmdline() if token in word]
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://page") as past:
        assert past.get("/runs").status_code == 401
        assert past.get("/runs", headers={"authorization": f"Bearer {token}"}).status_code == 200
        told = {"authorization": f"Bearer {token}", "origin": "http://evil.example", HEADER: "1"}
        assert past.post("/runs", headers=told).status_code == 403


def test_a_page_on_a_socket_is_this_user_s_alone(rig: RunsRig) -> None:
    folder = Path(rig.scratch, "s")
    rig.variables = {**rig.variables, "HEADRACE_WEB_TOKEN": "chosen-by-who-starts-it"}
    try:
        with served(rig, "--socket", str(folder / "page")) as web:
            assert (web.entry, web.url) == (f"unix:{folder}/page",) * 2, "the token is known already"
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not folder.exists()
        folder.mkdir(mode=0o755)
        refused = rig.headrace("web", "--socket", str(folder / "page"), code=4)
        assert "others may enter" in refused.stderr
        assert not list(folder.iterdir())
    finally:
        del rig.variables["HEADRACE_WEB_TOKEN"]  # type: ignore[attr-defined]


# its end


@pytest.mark.parametrize("folder", ["t", "t" * 80], ids=["a short folder", "one too long for sockets"])
def test_ctrl_c_leaves_nothing(rig: RunsRig, tmp_path: Path, folder: str) -> None:
    """With the page open, and a kernel that hears of nothing: it holds the interpreter's lock in native code."""
    temporary, begin = tmp_path / folder, tmp_path / "ipython/profile_default/startup"
    temporary.mkdir()
    begin.mkdir(parents=True)
    (begin / "deaf.py").write_text("import ctypes; open('deaf', 'w').close(); ctypes.PyDLL(None).sleep(600)")
    with lab(rig, "/data/shown", more={"TMPDIR": str(temporary), "IPYTHONDIR": str(tmp_path / "ipython")}) as made:
        assert made.model("notes.txt")["content"] == "words of the bucket\n"
        assert made.ask("POST", "/api/kernels", {"name": "python3"}).status_code == 201
        assert made.ask("GET", "/headrace/runs").status_code == 200
        assert wait_for((rig.work / "deaf").exists)
        (rig.work / "deaf").unlink()
        started = psutil.Process(made.process.pid).children(recursive=True)
        assert len(started) >= 4, "Jupyter, its watchdog, the kernel, the page"
        scratch = Path(started[0].environ()["HEADRACE_JUPYTER_FOLDER"])
        assert scratch.is_dir()
    assert wait_for(lambda: not [one for one in started if alive(one)])
    assert not scratch.exists()
    assert list(temporary.iterdir()) == []


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def test_shut_down_in_the_browser_it_ends(rig: RunsRig) -> None:
    with lab(rig) as made:
        made.ask("POST", "/api/shutdown")
        assert made.process.wait(30) == 0


# before its start


def test_what_cannot_be_shown_is_said_before_anything_starts(rig: RunsRig) -> None:
    assert "no such file or folder" in run(rig, "/data/none", code=3).stderr
    assert "is a file" in run(rig, "/data/shown/notes.txt", code=2).stderr


def test_without_jupyter_it_says_what_to_install(rig: RunsRig) -> None:
    """In an environment that sees only what headrace itself needs: of the libraries named, some are missing."""
    if subprocess.run([sys.executable, "-c", "import jupyterlab"], capture_output=True, check=False).returncode == 0:
        pytest.skip("JupyterLab is installed here")
    refused = run(rig, python=[*COMMAND, "jupyter"], code=2)
    assert "jupyterlab" in refused.stderr
    assert "hint: pip install 'headrace[jupyter]'" in refused.stderr


def test_jupyter_fs_alone_shows_folders_of_today(rig: RunsRig) -> None:
    """As whoever adds ``headrace://`` to jupyter-fs by hand has it."""
    script = """
        import json
        from jupyterfs.manager import FSSpecManager
        manager = FSSpecManager.create("headrace:///", read_only=True)
        for path in ("", "data", "data/shown"):
            found = manager.get(path)
            print(json.dumps([[one["last_modified"], one["created"]] for one in [found, *found["content"]]]))
        try:
            manager.delete_file("/data/shown/notes.txt")
        except PermissionError as error:
            print(json.dumps(str(error)))
    """
    rig.script(script, "alone.py")
    ended = run(rig, "alone.py", python=[jupyter_kit.PYTHON])
    *times, refused = map(json.loads, ended.stdout.splitlines())
    assert "is read-only" in refused
    assert len(times) == 3
    assert {datetime.fromisoformat(text).year for some in times for pair in some for text in pair} <= {
        datetime.now().year, datetime.now().year - 1  # noqa: DTZ005
    }  # fmt: skip
    assert "data/shown/notes.txt" in in_bucket(rig)
