"""What a run was made of and given, against what it was made from and what is there now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from headrace.store.embedded import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.web_rig import Served, check, look, served

pytestmark = pytest.mark.server
JOB = """
    import headrace as hr
    for step in range(3):
        hr.log({'acc': step, 'loss': 1, 'zeta': 2}, step=step)
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("record"), {"HEADRACE_CACHE_SIZE": "1GB"})
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    data = made.work / "data"
    data.mkdir()
    for number in range(5):
        (data / f"{number}.txt").write_text(f"text {number}")
    made.headrace("cp", "-r", "data", f"s3://{made.bucket}/data")
    script = made.script(JOB)
    source = f"inputs.train.source=s3://{made.bucket}/data"
    made.headrace("run", "--id", "first", "--set", source, "--", "python", script)
    made.headrace("rerun", "--id", "again", "--set", "grace=3s", "first")
    yield made
    made.close()


def settled(web: Served, path: str, wanted: str) -> Any:
    """The twin once what is done behind the page is there."""
    until = time.monotonic() + 60
    while True:
        told: Any = web.twin(path)
        if wanted == "differences" and told["differences"] is not None:
            return told
        if wanted == "gone" and all(one["underway"] is None for one in told["inputs"]):
            return told
        assert time.monotonic() < until, told


def test_what_is_not_as_in_the_run_that_it_was_made_from(web: Served) -> None:
    assert web.twin("/runs/first/code?diff=true")["differences"] is None, "it was made from none"
    told = settled(web, "/runs/again/code?diff=true", "differences")
    assert told["parent"] == "first"
    found = {(one["part"], one["name"]): (one["before"], one["after"]) for one in told["differences"]}
    assert found["job", "grace"][1] == "3.0", found
    assert not any(part in ("metric", "result", "place") for part, _ in found)


def test_whether_what_it_was_given_is_still_there(rig: RunsRig, web: Served) -> None:
    assert [one["gone"] for one in web.twin("/runs/first/inputs")["inputs"]] == [None]  # type: ignore[misc, index]
    (one,) = settled(web, "/runs/first/inputs?check=true", "gone")["inputs"]
    assert (one["gone"], one["problem"]) == (0, None)
    (rig.work / "other.txt").write_text("quite another text")
    rig.headrace("cp", "other.txt", f"s3://{rig.bucket}/data/2.txt")
    rig.headrace("rm", f"s3://{rig.bucket}/data/3.txt")
    with served(rig) as later:
        (one,) = settled(later, "/runs/first/inputs?check=true", "gone")["inputs"]
        assert (one["gone"], sorted(one["examples"])) == (2, ["2.txt", "3.txt"])


def test_starred_metrics_come_first(web: Served, page: Page) -> None:
    look(page, 320, "dark")
    page.goto(f"{web.url}/runs/first/metrics")
    expect(page.locator("figcaption").first).to_contain_text("loss")
    page.get_by_role("link", name="zeta first").click()
    expect(page.locator("figcaption").first).to_contain_text("zeta")
    assert "star=zeta" in page.url
    for path in ("/runs/first/metrics?star=zeta", "/runs/again/code?diff=true", "/runs/first/inputs?check=true"):
        page.goto(web.url + path)
        check(page)
    page.goto(f"{web.url}/runs/first/metrics?star=zeta")
    page.get_by_role("link", name="zeta no longer first").click()
    expect(page.locator("figcaption").first).to_contain_text("loss")
