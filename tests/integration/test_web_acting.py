"""What can be done from the page, where it is allowed: by a browser, by a script, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from headrace.testing.servers import EmbeddedS3
from headrace.web.guard import HEADER
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for
from tests.web_rig import Served, browser, served

pytestmark = pytest.mark.server
AXE = Path(__file__).parents[2] / ".tools/node_modules/axe-core/axe.min.js"
LONG = """
    import time
    print("here", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("acting"))
    made.script(LONG, "long.py")
    made.script("print('done')", "short.py")
    made.headrace("run", "--id", "good", "--set", "tags.team=vision", "--", "python", "short.py")
    yield made
    made.close()


@pytest.fixture(scope="module")
def web(rig: RunsRig) -> Iterator[Served]:
    with served(rig, "--allow", "stop,rerun,tag,delete-runs") as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.fixture
def page(chromium: Browser, web: Served) -> Iterator[Page]:
    """One that has brought its token."""
    context = chromium.new_context()
    made = context.new_page()
    wrong: list[str] = []
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.goto(web.entry)
    yield made
    context.close()
    assert wrong == []


def act(web: Served, path: str, told: object = None, **headers: str) -> httpx.Response:
    """As the page's script asks."""
    given = {"authorization": f"Bearer {web.token}", "origin": web.url, HEADER: "1", **headers}
    return httpx.post(f"{web.url}/act{path}", headers=given, json={} if told is None else told, timeout=60)


def running(rig: RunsRig, web: Served, run: str) -> None:
    """A run that goes on until it is told to stop."""
    rig.start("run", "--id", run, "--", "python", "long.py")
    assert wait_for(lambda: web.get(f"/api/v1/runs/{run}").json().get("tail"), 60)


def test_nothing_may_be_done_unless_it_was_allowed(rig: RunsRig) -> None:
    with served(rig) as web:
        for path in ("/runs/good", "/runs"):
            assert "data-act" not in web.get(path).text
            assert "act.js" not in web.get(path).text
        for name, needs in (("stop", "stop"),):
            answer = act(web, f"/runs/good/{name}")
            assert (answer.status_code, answer.json()["code"]) == (403, "denied")
            assert f"headrace web --allow {needs}" in answer.json()["hint"]


def test_only_what_was_allowed_has_a_button(rig: RunsRig) -> None:
    ended = rig.headrace("web", "--allow", "stop,stpo", code=2)
    assert "stpo" in ended.stderr
    assert "delete-runs" in ended.stderr


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"origin": "http://evil.example"}, 403), ({HEADER: "0"}, 403), ({"authorization": "Bearer wrong"}, 401)],
    ids=["another site", "no header of ours", "no token"],
)
def test_what_the_page_itself_did_not_ask_is_refused(web: Served, headers: dict[str, str], status: int) -> None:
    assert act(web, "/runs/good/stop", **headers).status_code == status


def test_what_is_asked_wrongly_says_so(web: Served) -> None:
    for path, told, status, hint in (
        ("/runs/none/stop", {}, 404, "headrace runs lists them"), ("/runs/good/stop", {"grce": 1}, 400, "grace"),
        ("/runs/good/stop", {"grace": "soon"}, 400, "grace"), ("/runs/good/stop", [], 400, "JSON object"),
        ("/runs/good/stop", {"grace": -1}, 400, "0 or more"), ("/runs/good/fly", {}, 404, ""),
    ):  # fmt: skip
        answer = act(web, path, told)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
        assert hint in answer.text
    assert act(web, "/runs/good/stop", {"grace": "1" * (2 << 20)}).status_code == 400


def test_a_run_is_stopped_by_keys_alone(page: Page, rig: RunsRig, web: Served) -> None:
    running(rig, web, "held")
    page.goto(f"{web.url}/runs/held")
    opener = page.get_by_role("button", name="Stop", exact=True)
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Stop held?")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(dialog.get_by_role("button", name="Stop it")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".done")).to_contain_text("held is ordered to stop")
    expect(page.get_by_role("heading", level=1)).to_contain_text("stopped", timeout=30_000)
    expect(opener).to_have_count(0)
    assert rig.states("held")[-1] == "stopped"
