"""Charts that are looked at closer: uPlot over the server's pictures, with values asked for anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import headrace
from headrace.store.embedded import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.web_rig import Served, axe_findings, served

pytestmark = pytest.mark.server
UPLOT = Path(headrace.__file__).parent / "web" / "static" / "uplot" / "uPlot.js"
JOB = """
    import os
    from headrace.tracking.log import flush, log

    for step in range(30_000):
        log({"loss": 1000.0 if step == 20_001 else 1 / (1 + step), "noise": step % 17}, step=step)
        if step % 10_000 == 0:
            flush()
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("charts"), {"HEADRACE_CACHE_SIZE": "1GB"})
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    made.headrace("run", "--id", "long", "--", "python", made.script(JOB))
    yield made
    made.close()


@pytest.fixture(scope="module")
def web(rig: RunsRig) -> Iterator[Served]:
    if not UPLOT.is_file():
        pytest.skip("uPlot is not there: python hatch_build.py brings it")
    with served(rig) as made:
        yield made


def test_the_library_comes_once_somebody_looks_closer(page: Page, web: Served) -> None:
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    page.goto(f"{web.url}/runs/long/metrics")
    expect(page.locator("svg.chart")).to_have_count(2)
    assert not any("uPlot" in url for url in asked)
    page.locator(".plot").first.hover()
    expect(page.locator(".uplot")).to_have_count(1)
    assert any("uPlot.js" in url for url in asked)
    assert axe_findings(page) == []


def test_a_span_that_is_dragged_over_is_shown_point_by_point(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/runs/long/metrics?q=loss")
    page.locator(".plot").hover()
    area = page.locator(".u-over")
    box = area.bounding_box()
    assert box is not None
    with page.expect_response(lambda one: "/api/v1/" in one.url and "since=" in one.url) as answer:
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 50, steps=4)
        page.mouse.up()
    (metric,) = answer.value.json()["metrics"]
    curve = metric["curve"]
    assert (min(curve["x"]) >= 17_000, max(curve["x"]) <= 22_000) == (True, True)
    assert max(value for value in curve["high"] if value is not None) == 1000.0, "the one peak is there"
    assert metric["points"] == 30_000
    expect(page.locator("#said")).to_contain_text("from ")


def test_by_keys(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/runs/long/metrics?q=loss")
    page.locator(".plot").focus()
    expect(page.locator(".uplot")).to_have_count(1)
    page.locator(".uplot").focus()
    with page.expect_response(lambda one: "since=" in one.url) as closer:
        page.keyboard.press("+")
    assert min(closer.value.json()["metrics"][0]["curve"]["x"]) > 5_000
    with page.expect_response(lambda one: "/api/v1/" in one.url and "since=" not in one.url) as all_of_it:
        page.keyboard.press("-")
    assert min(all_of_it.value.json()["metrics"][0]["curve"]["x"]) < 100


def test_a_closer_look_says_every_point(web: Served) -> None:
    told = web.twin("/runs/long/metrics?q=loss&since=20000&until=20003")
    (metric,) = told["metrics"]  # type: ignore[misc]
    assert metric["curve"]["x"] == [20000, 20001, 20002, 20003]  # type: ignore[index]
    assert metric["curve"]["last"][1] == 1000.0  # type: ignore[index]
