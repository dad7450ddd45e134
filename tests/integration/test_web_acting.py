"""What can be done from the page, where it is allowed: by a browser, by a script, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from playwright.sync_api import Page, expect

from headrace.testing.servers import EmbeddedS3
from headrace.web.guard import HEADER
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for
from tests.web_rig import LOOKS, Console, Served, check, look, served

pytestmark = pytest.mark.server
SERVED = ("--allow", "stop,rerun,tag,delete-runs")
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


def act(web: Served, path: str, told: object = None, **headers: str) -> httpx.Response:
    """As the page's script asks."""
    given = {"authorization": f"Bearer {web.token}", "origin": web.url, HEADER: "1", **headers}
    return httpx.post(f"{web.url}/act{path}", headers=given, json={} if told is None else told, timeout=60)


def running(rig: RunsRig, web: Served, run: str) -> None:
    """A run that goes on until it is told to stop."""
    rig.start("run", "--id", run, "--", "python", "long.py")
    assert wait_for(lambda: web.get(f"/api/v1/runs/{run}").json().get("tail"), 60)


NEEDS = {"stop": "stop", "rerun": "rerun", "tag": "tag", "delete": "delete-runs"}


def test_nothing_may_be_done_unless_it_was_allowed(rig: RunsRig) -> None:
    with served(rig) as web:
        for path in ("/runs/good", "/runs"):
            assert "data-act" not in web.get(path).text
            assert "act.js" not in web.get(path).text
        for name, needs in NEEDS.items():
            answer = act(web, f"/runs/good/{name}")
            assert (answer.status_code, answer.json()["code"]) == (403, "denied")
            assert f"headrace web --allow {needs}" in answer.json()["hint"]
    assert rig.json("runs", "show", "good")["tags"] == {"team": "vision"}


def test_only_what_was_allowed_has_a_button(rig: RunsRig) -> None:
    with served(rig, "--allow", "tag") as web:
        text = web.get("/runs/good").text
        assert [name for name in ("stop", "rerun", "tag", "delete") if f'data-opens="{name}"' in text] == ["tag"]
        assert act(web, "/runs/good/delete").status_code == 403
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


@pytest.mark.parametrize(("width", "colours"), LOOKS)
@pytest.mark.parametrize("name", ["", "Run again", "Tag", "Delete"])
def test_pages_with_buttons_are_accessible(blank: Page, web: Served, name: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(f"{web.url}/runs/good" if name else f"{web.url}/runs/good/held")
    if name:
        blank.get_by_role("button", name=name, exact=True).click()
        expect(blank.get_by_role("dialog")).to_be_visible()
        expect(blank.get_by_role("dialog").get_by_text("…", exact=True)).to_have_count(0)
    check(blank)


def test_a_run_is_run_again_and_the_page_goes_to_it(page: Page, rig: RunsRig, web: Served) -> None:
    page.goto(f"{web.url}/runs/good")
    page.get_by_role("button", name="Run again").click()
    dialog = page.get_by_role("dialog", name="Run good again?")
    expect(dialog).to_contain_text("python short.py")
    dialog.get_by_role("button", name="Run it again").click()
    expect(page.locator(".done")).to_contain_text("has begun", timeout=60_000)
    new = page.url.rpartition("/")[2]
    assert wait_for(lambda: rig.json("runs", "show", new)["state"] == "finished", 60)
    assert rig.json("runs", "show", new)["record"]["parent"] == {"run": "good", "as": "rerun"}
    page.goto(f"{web.url}/runs")
    expect(page.locator(f'[data-id="{new}"]')).to_be_visible()


def test_what_cannot_be_run_again_says_why(rig: RunsRig, web: Served) -> None:
    (rig.work / "sub").mkdir()
    rig.headrace("run", "--id", "rootless", "--no-code", "--set", "folder=sub", "--", "true")
    (rig.work / "sub").rmdir()
    answer = act(web, "/runs/rootless/rerun")
    told = answer.json()
    assert (answer.status_code, told["code"], told["path"]) == (404, "not-found", "rootless")
    assert "no such folder" in told["message"]
    assert "recorded no code" in told["hint"]


def test_tags_and_a_note_are_given_and_found(page: Page, rig: RunsRig, web: Served) -> None:
    page.goto(f"{web.url}/runs/good")
    page.get_by_role("button", name="Tag", exact=True).click()
    dialog = page.get_by_role("dialog", name="Tags and a note of good")
    expect(dialog.get_by_label("Tags")).to_have_value("team=vision\n")
    dialog.get_by_label("Tags").fill("best\nlr = 0.1\n")
    dialog.get_by_label("Note").fill("<b>worth</b> a look\nsecond line")
    dialog.get_by_role("button", name="Keep them").click()
    expect(page.locator(".done")).to_contain_text("tagged")
    expect(page.locator(".facts .tag")).to_have_text(["best", "lr=0.1"])
    expect(page.locator(".note")).to_have_text("<b>worth</b> a look\nsecond line")
    told = rig.json("runs", "show", "good")
    assert (told["tags"], told["note"]) == ({"best": "", "lr": "0.1"}, "<b>worth</b> a look\nsecond line")
    for query in ("tag=best", "tag=lr%3D0.1", "q=worth"):
        page.goto(f"{web.url}/runs?{query}")
        expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(f"{web.url}/runs?tag=team%3Dvision&q=good")
    expect(page.get_by_text("No run is like that")).to_be_visible()


def test_the_later_of_two_who_tag_is_told(page: Page, rig: RunsRig, web: Served, console: Console) -> None:
    console.mean(r"status of 409 .*/act/runs/good/tag")
    page.goto(f"{web.url}/runs/good")
    page.get_by_role("button", name="Tag", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Note").fill("mine")
    rig.headrace("runs", "note", "good", "theirs")
    dialog.get_by_role("button", name="Keep them").click()
    expect(dialog.get_by_role("alert")).to_contain_text("changed underneath")
    expect(dialog.get_by_label("Note")).to_have_value("mine")
    page.reload()
    expect(page.locator(".note")).to_have_text("theirs")
    assert rig.json("runs", "note", "good")["note"] == "theirs"


def test_who_else_tags_is_seen_by_a_page_that_was_open(rig: RunsRig, web: Served) -> None:
    assert web.get("/api/v1/runs").status_code == 200
    rig.headrace("runs", "tag", "good", "seen=later")

    def shown() -> set[str]:
        rows = web.twin("/runs?tag=seen%3Dlater")["runs"]
        return {row["id"] for row in rows} | {web.twin("/runs/good")["run"]["tags"].get("seen", "")}  # pyright: ignore

    assert wait_for(lambda: shown() == {"good", "later"}, 60)


def test_a_run_is_deleted_once_it_is_told_how_much_goes(page: Page, rig: RunsRig, web: Served) -> None:
    rig.headrace("run", "--id", "gone", "--", "python", "short.py")
    rig.headrace("runs", "tag", "gone", "old")
    objects = len(rig.names("gone"))
    page.goto(f"{web.url}/runs/gone")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog", name="Delete gone?")
    expect(dialog).to_contain_text(f"{objects} objects")
    expect(dialog.get_by_role("row", name="logs")).to_be_visible()
    dialog.get_by_role("button", name="Delete it").click()
    expect(page.locator(".done")).to_contain_text("gone is deleted")
    assert page.url == f"{web.url}/runs"
    expect(page.locator('[data-id="gone"]')).to_have_count(0)
    assert web.get("/runs/gone").status_code == 404
    assert rig.names("gone") == []
    assert all("gone" not in info.key for page in rig.store().list("home/runs/.notes/") for info in page)


def test_a_run_that_goes_on_is_not_deleted(rig: RunsRig, web: Served) -> None:
    running(rig, web, "alive")
    answer = act(web, "/runs/alive/delete")
    assert (answer.status_code, answer.json()["message"]) == (400, "is not over")
    assert "run.json" in rig.names("alive")
    assert act(web, "/runs/alive/stop", {"grace": 1}).status_code == 200
    assert wait_for(lambda: rig.json("runs", "show", "alive")["state"] == "stopped", 60)
    assert act(web, "/runs/alive/stop").json()["said"] == "alive was over already: stopped."


def test_acts_are_described(web: Served) -> None:
    paths = web.get("/api/v1/openapi.json").json()["paths"]
    acts = {path: told["post"] for path, told in paths.items() if path.startswith("/act/")}
    assert set(acts) >= {f"/act/runs/{{run}}/{name}" for name in NEEDS}
    tag = acts["/act/runs/{run}/tag"]
    body = tag["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"tags", "change", "note", "over"}
    assert [one["name"] for one in tag["parameters"]] == ["run", HEADER]


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [("tag", {"note": "as described"}, 200), ("stop", {}, 200), ("stop", {"grace": "x"}, 400), ("delete", {}, 404)],
)
def test_answers_are_as_described(web: Served, name: str, body: dict[str, object], status: int) -> None:
    headers = {"authorization": f"Bearer {web.token}", "origin": web.url, HEADER: "1"}
    schema = schemathesis.openapi.from_url(f"{web.url}/api/v1/openapi.json", headers=headers)
    operation = schema[f"/act/runs/{{run}}/{name}"]["POST"]
    run = "none" if status == 404 else "good"
    case = operation.Case(path_parameters={"run": run}, headers={HEADER: "1"}, body=body, media_type="application/json")
    answer = case.call(headers=headers)
    assert answer.status_code == status, answer.text
    case.validate_response(answer, headers=headers)

