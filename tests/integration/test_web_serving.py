"""Servers of models on the page: which answer on this node, with which version, and why one does not serve."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from playwright.sync_api import Page, expect

from headrace.serving.live import Live, LiveModel, Note
from tests.serving_rig import WIDTH, Asked, ServingRig, request, until
from tests.web_rig import LOOKS, Served, check, look

HOSTILE = "<img src=x onerror=window.hacked=1>"
TOKEN = "a-token-that-no-page-shows"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> ServingRig:
    return ServingRig(tmp_path_factory.mktemp("web-serving"), variables={"HEADRACE_SERVE_TOKEN": TOKEN})


@pytest.fixture(scope="module")
def foreign(rig: ServingRig) -> Iterator[Live]:
    """A server of another home."""
    note = Note(rig.own["HEADRACE_CACHE_DIR"])
    lin = LiveModel("lin", f"lin@{HOSTILE}", (), HOSTILE, unloaded=False)
    live = Live("http://127.0.0.1:1", None, 7, 1, 0, False, "2026-11-28T07:00:00Z", "s3://else/", "other", (lin,))
    note.write(live)
    yield live
    note.close()


@pytest.fixture(scope="module")
def server(rig: ServingRig, web: Served, foreign: Live) -> Iterator[Asked]:
    """``headrace serve`` of two processes, which has answered once from version 1, and refused version 2."""
    rig.point("lin@prod", rig.linear(1.0))
    bad = rig.linear(2.0, warmup=[request([1.0] * WIDTH), request([1.0], HOSTILE)])
    with rig.command("lin@prod", "--processes", "2") as asked:
        assert asked.predict([[1.0] * WIDTH]) == [[4, 4]]
        rig.point("lin@prod", bad)
        until(lambda: any(one["reason"] for server in of_lin(web) for one in server["models"][0]["versions"]))
        yield asked


def on_node(web: Served) -> list[dict[str, Any]]:
    found: Any = web.twin("/node")
    return found["look"]["servers"]


def of_lin(web: Served) -> list[dict[str, Any]]:
    found: Any = web.twin("/models/lin")
    return found["servers"]


def folder(rig: ServingRig) -> str:
    return os.path.join(rig.own["HEADRACE_CACHE_DIR"], "serving", "servers")


def test_pages_are_accessible_and_fit(blank: Page, web: Served, server: Asked) -> None:
    until(lambda: len(on_node(web)) == 2)
    for path in ("/node", "/models/lin"):
        for width, colours in LOOKS:
            look(blank, width, colours)
            blank.goto(web.url + path)
            expect(blank.get_by_role("region", name="Servers of models")).to_contain_text(server.url)
            check(blank)


def test_the_page_of_a_model_says_what_answers_and_why_another_version_does_not(
    page: Page, web: Served, server: Asked
) -> None:
    page.goto(f"{web.url}/models/lin")
    shown = page.get_by_role("region", name="Servers of models").get_by_role("listitem")
    expect(shown.first).to_contain_text("lin@2 does not serve: ")
    expect(shown.first).to_contain_text("warmup.jsonl, line 2")
    expect(shown.last).to_contain_text("lin@1 answers for prod")
    shown.last.get_by_role("link").click()
    page.wait_for_url("**/models/lin/1")


def test_the_node_says_which_servers_there_are(page: Page, web: Served, server: Asked) -> None:
    page.goto(f"{web.url}/node")
    shown = page.get_by_role("region", name="Servers of models")
    assert server.process is not None
    for text in (server.url, str(server.process.pid), "2 of 2 processes", "lin@prod", "does not serve"):
        expect(shown).to_contain_text(text, timeout=30_000)  # a look is shown for ten seconds


def test_the_same_as_data_and_as_described(web: Served, server: Asked) -> None:
    until(lambda: of_lin(web)[0]["models"][0]["versions"][1]["requests"] == 1)
    (one,) = of_lin(web)
    assert (one["url"], one["processes"], one["answering"], one["ours"]) == (server.url, 2, 2, True)
    assert one["ready"], "the old version goes on"
    two, first = one["models"][0]["versions"]
    assert (two["number"], two["state"], two["wanted"], two["processes"]) == (2, "END", ["prod"], 0)
    assert (first["number"], first["state"], first["labels"], first["processes"]) == (1, "AVAILABLE", ["prod"], 2)
    headers = {"authorization": f"Bearer {web.token}"}
    schema = schemathesis.openapi.from_url(f"{web.url}/api/v1/openapi.json", headers=headers)
    operations = {found.path: found for found in (one.ok() for one in schema.get_all_operations())}
    for path, places in (("/api/v1/node", {}), ("/api/v1/models/{name}", {"name": "lin"})):
        case = operations[path].Case(path_parameters=places)
        case.validate_response(case.call(headers=headers), headers=headers)


def test_no_token_is_told(web: Served, rig: ServingRig, server: Asked) -> None:
    until(lambda: len(on_node(web)) == 2)
    assert server.process is not None
    names = (one for one in os.listdir(folder(rig)) if one.startswith(f"{server.process.pid}-"))
    (name,) = (one for one in names if one.endswith(".json"))
    with open(os.path.join(folder(rig), name)) as file:
        told = file.read()
    for text in (told, web.get("/node").text, web.get("/api/v1/node").text, web.get("/models/lin").text):
        assert server.url in text
        assert TOKEN not in text


def test_a_server_of_another_home_is_told_of_the_node_and_not_of_the_model(
    page: Page, web: Served, foreign: Live, server: Asked
) -> None:
    until(lambda: len(on_node(web)) == 2)
    assert {one["url"]: one["ours"] for one in on_node(web)} == {foreign.url: False, server.url: True}
    page.goto(f"{web.url}/node")
    shown = page.get_by_role("region", name="Servers of models").get_by_role("row").nth(1)
    for text in ("of s3://else/", "not ready", "0 of 1 processes", HOSTILE, "none yet"):
        expect(shown).to_contain_text(text)
    assert page.evaluate("window.hacked") is None
    assert [one["url"] for one in of_lin(web)] == [server.url]


def test_a_server_that_ended_is_not_shown(web: Served, server: Asked, rig: ServingRig) -> None:
    assert server.process is not None
    server.process.terminate()
    assert server.process.wait(30) == 0
    assert not [name for name in os.listdir(folder(rig)) if name.startswith(f"{server.process.pid}-")]
    until(lambda: of_lin(web) == [])
