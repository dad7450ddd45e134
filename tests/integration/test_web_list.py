"""The list of runs: what is done with several at once, what leads to it, and how it looks with nothing in it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from headrace.testing.servers import EmbeddedS3
from headrace.tracking.record import Lease, RunRecord, Status, new_id, now
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for
from tests.web_rig import LOOKS, Console, Served, check, look, served

pytestmark = pytest.mark.server
SERVED = ("--allow", "stop,rerun,tag,delete-runs")
HOSTILE = "<img src=x onerror=window.hacked=1>"
REFUSED = r"status of 4\d\d .*/act/runs/"


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("list"))
    made.headrace("run", "--id", "real", "--", "true")
    (made.work / "sub").mkdir()
    made.headrace("run", "--id", "rootless", "--no-code", "--set", "folder=sub", "--", "true")
    (made.work / "sub").rmdir()
    yield made
    made.close()


def recorded(
    rig: RunsRig, name: str, state: str = "finished", tags: dict[str, str] | None = None, run: str = ""
) -> str:
    """A run as its runner records it, without one. Its id is made of a time, so that it is found at once."""
    moment, run = now(), run or new_id(name)
    spec = {"tags": tags or {}}
    record = RunRecord(run, f"{HOSTILE} {name}", moment, ("python", "train.py"), "/nowhere", "host", "ann", "0", spec)
    starting, last = Status(0, "starting", moment), Status(1, state, moment)
    lease = Lease(1, state, moment, 1, "host", last=json.loads(last.as_json()))
    for name, data in (
        ("run.json", record), (f"status/{starting.name}", starting), (f"status/{last.name}", last),
        ("lease.json", lease),
    ):  # fmt: skip
        rig.store().put(f"home/runs/{run}/{name}", data.as_json())
    return run


def choose(page: Page, web: Served, *runs: str) -> None:
    assert wait_for(lambda: {one["id"] for one in web.twin("/runs")["runs"]} >= {*runs}, 90)  # type: ignore[union-attr]
    page.goto(f"{web.url}/runs")
    for run in runs:
        page.get_by_role("checkbox", name=f"Select {run}").check()


def named(dialog: Locator) -> list[str]:
    return [one.get_attribute("data-run") or "" for one in dialog.locator("[data-chosen] li").all()]


def test_runs_are_deleted_by_keys_alone_and_what_fails_is_said_of_each(
    page: Page, rig: RunsRig, web: Served, console: Console
) -> None:
    console.mean(REFUSED)
    old, alive, kept = recorded(rig, "old"), recorded(rig, "alive", "running"), recorded(rig, "kept")
    opener = page.get_by_role("button", name="Delete selected")
    expect(opener).to_be_disabled()
    choose(page, web, old, alive)
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete the selected runs?")
    assert sorted(named(dialog)) == sorted((alive, old))
    expect(dialog.locator("li", has_text=old)).to_contain_text(HOSTILE)
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()
    assert rig.names(old)
    page.keyboard.press("Enter")
    does = dialog.get_by_role("button", name="Delete them")
    for _ in range(3):
        page.keyboard.press("Tab")
        if does.evaluate("one => one === document.activeElement"):
            break
    expect(does).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("1 of 2 failed")
    expect(dialog.locator(f'[data-run="{alive}"]')).to_contain_text("is not over")
    expect(dialog.locator(f'[data-run="{old}"]')).to_contain_text(f"{old} is deleted")
    assert (rig.names(old), bool(rig.names(alive)), bool(rig.names(kept))) == ([], True, True)
    page.keyboard.press("Escape")
    expect(page.locator(f'[data-id="{old}"]')).to_have_count(0, timeout=20_000)
    assert page.evaluate("window.hacked") is None


def test_only_what_failed_is_sent_again(page: Page, rig: RunsRig, web: Served, console: Console) -> None:
    console.mean(REFUSED)
    first, late = recorded(rig, "first"), recorded(rig, "late", "running")
    choose(page, web, first, late)
    page.get_by_role("button", name="Delete selected").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Delete them").click()
    expect(dialog.get_by_role("alert")).to_contain_text("1 of 2 failed")
    recorded(rig, "late", run=late)
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if "/act/" in one.url else None)
    dialog.get_by_role("button", name="Delete them").click()
    expect(page.locator(".done")).to_contain_text(f"{first} is deleted")
    expect(page.locator(".done")).to_contain_text(f"{late} is deleted")
    assert [url.rpartition("/act")[2] for url in asked] == [f"/runs/{late}/delete"]


def test_runs_get_tags_and_lose_some_and_keep_all_others(page: Page, rig: RunsRig, web: Served) -> None:
    one, two = recorded(rig, "one", tags={"team": "vision", "x": "1"}), recorded(rig, "two")
    rig.headrace("runs", "note", one, "worth a look")
    choose(page, web, one, two)
    page.get_by_role("button", name="Tag selected").click()
    dialog = page.get_by_role("dialog", name="Tag the selected runs")
    dialog.get_by_label("Tags, one a line").fill("best\nlr = 0.1\n-team\n")
    dialog.get_by_role("button", name="Tag them").click()
    expect(page.locator(".done")).to_contain_text(f"{one} is tagged")
    expect(page.locator(".done")).to_contain_text(f"{two} is tagged")
    told = rig.json("runs", "show", one)
    assert (told["tags"], told["note"]) == ({"best": "", "lr": "0.1", "x": "1"}, "worth a look")
    assert rig.json("runs", "show", two)["tags"] == {"best": "", "lr": "0.1"}
    page.goto(f"{web.url}/runs?tag=best")
    expect(page.locator("tbody tr")).to_have_count(2)


def test_runs_are_ordered_to_stop_and_those_that_are_over_say_so(page: Page, rig: RunsRig, web: Served) -> None:
    goes, over = recorded(rig, "goes", "running"), recorded(rig, "over")
    choose(page, web, goes, over)
    page.get_by_role("button", name="Stop selected").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop them").click()
    expect(page.locator(".done")).to_contain_text(f"{goes} is ordered to stop")
    expect(page.locator(".done")).to_contain_text(f"{over} was over already: finished")
    assert (rig.read(goes, "orders/stop.json") is None, rig.read(over, "orders/stop.json")) == (False, None)


def test_runs_are_run_again_each_for_itself(page: Page, rig: RunsRig, web: Served, console: Console) -> None:
    console.mean(REFUSED)
    choose(page, web, "real", "rootless")
    page.get_by_role("button", name="Run again selected").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Run them again").click()
    expect(dialog.locator("[data-run=real].good")).to_contain_text("has begun", timeout=60_000)
    expect(dialog.locator("[data-run=rootless].bad")).to_contain_text("no such folder", timeout=60_000)
    again = [one for one in rig.ids() if "-true-" in one]
    assert wait_for(lambda: all(rig.states(one)[-1] == "finished" for one in again), 60)
    assert len(again) == 1


def test_only_what_was_allowed_has_a_button(rig: RunsRig) -> None:
    with served(rig, "--allow", "tag") as web:
        text = web.get("/runs").text
        assert [one for one in ("stop", "rerun", "tag", "delete") if f'data-opens="chosen-{one}"' in text] == ["tag"]


@pytest.mark.parametrize(("width", "colours"), LOOKS)
@pytest.mark.parametrize("name", ["", "Stop", "Run again", "Tag", "Delete"])
def test_it_is_accessible_with_its_dialogs(blank: Page, web: Served, name: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(f"{web.url}/runs")
    if name:
        blank.get_by_role("checkbox").first.check()
        blank.get_by_role("button", name=f"{name} selected").click()
        expect(blank.get_by_role("dialog")).to_be_visible()
    check(blank)


@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_an_empty_home_says_how_to_fill_it(
    page: Page, seaweedfs: EmbeddedS3, rig: RunsRig, width: int, colours: str
) -> None:
    with served(RunsRig(seaweedfs, rig.scratch / f"empty-{width}")) as web:
        look(page, width, colours)
        page.goto(web.entry)
        expect(page.get_by_text("No runs yet")).to_be_visible()
        expect(page.get_by_role("searchbox")).to_be_visible()
        check(page)


@pytest.mark.parametrize("base", ["", "/user/ann/headrace"])
@pytest.mark.parametrize(
    ("asked", "leads"),
    [("/runs/", "/runs"), ("/runs/?state=failed&q=a%20b", "/runs?state=failed&q=a%20b"), ("/runs/real/", "/runs/real"),
     ("/api/v1/runs/", "/api/v1/runs"), ("//evil.example/", "/evil.example"), ("/%2Fevil.example/", "/%2Fevil.example"),
     ("/\\evil.example/", "/%5Cevil.example")],
)  # fmt: skip
def test_a_slash_too_many_leads_below_the_base(slashed: dict[str, Served], base: str, asked: str, leads: str) -> None:
    web = slashed[base]
    local = web.url.removesuffix(base)
    with httpx.Client(headers={"authorization": f"Bearer {web.token}"}) as client:
        answer = client.send(httpx.Request("GET", httpx.URL(local, raw_path=asked.encode()), headers=client.headers))
        assert (answer.status_code, answer.headers["location"]) == (307, base + leads)
    assert httpx.get(f"{local}/runs/").status_code == 401


@pytest.fixture(scope="module")
def slashed(rig: RunsRig) -> Iterator[dict[str, Served]]:
    with served(rig) as plain, served(rig, "--base", "/user/ann/headrace") as behind:
        yield {"": plain, "/user/ann/headrace": behind}
