"""From a step to its samples: what the loop of a run had, as the page finds it again from the bucket alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from headrace.store.embedded import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.web_rig import Served, check, served

pytestmark = pytest.mark.server
SCRIPT = """
    import json, os, sys
    from headrace.tracking.log import flush
    import headrace as hr

    what, batch, epochs, rank, ranks, first = sys.argv[1], *map(int, sys.argv[2:])
    data = hr.Dataset.open(what).shuffle(seed=5).shard(rank, ranks).batch(batch)
    seen, step = {}, first
    with data.loader() as loader:
        for _ in range(epochs):
            for got in loader:
                hr.log({"loss": 1 / (1 + step)}, step=step)
                seen[step] = [str(key) for key in got["__key__"]]
                step += 1
                if step % 7 == 0:
                    flush()  # as a second would
    with open(os.path.join(os.environ["HEADRACE_OUTPUTS"], "seen.json"), "w") as file:
        json.dump(seen, file)
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("steps"), {"HEADRACE_CACHE_SIZE": "1GB"})
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    folder = made.work / "flowers"
    folder.mkdir()
    for number in range(30):
        Image.new("RGB", (40, 30), (number, 255 - number, 0)).save(folder / f"{number:02}.png")
        (folder / f"{number:02}.txt").write_text(f"flower {number}")
    made.headrace("cp", "-r", "flowers", f"s3://{made.bucket}/flowers")
    made.headrace("snapshot", f"s3://{made.bucket}/flowers", "--name", "flowers")
    script = made.script(SCRIPT)

    def ran(name: str, *words: str) -> None:
        made.headrace("run", "--id", name, "--", "python", script, *words)

    ran("plain", "flowers@v1", "4", "3", "0", "1", "1")
    ran("striped", "flowers@v1", "5", "2", "1", "3", "0")
    ran("loose", f"s3://{made.bucket}/flowers", "4", "1", "0", "1", "1")
    yield made
    made.close()


def seen(rig: RunsRig, run: str) -> dict[int, list[str]]:
    data = rig.read(run, "outputs/seen.json")
    assert data is not None
    return {int(step): keys for step, keys in json.loads(data).items()}


@pytest.mark.parametrize(("run", "rank"), [("plain", 0), ("striped", 0), ("loose", 0)])
def test_every_step_shows_the_samples_that_the_loop_had(rig: RunsRig, web: Served, run: str, rank: int) -> None:
    steps = seen(rig, run)
    for step, keys in steps.items():
        twin: Any = web.twin(f"/runs/{run}/step/{step}?rank={rank}")
        (batch,) = twin["batches"]
        assert batch["problem"] is None
        assert [sample["key"] for sample in batch["samples"]] == keys, step
        assert batch["exact"], step
        assert batch["total"] == len(keys)
    assert twin["last"] == max(steps)


def test_what_is_not_known_is_said(rig: RunsRig, web: Served) -> None:
    beyond: Any = web.twin("/runs/plain/step/4000")
    assert (beyond["batches"], beyond["last"]) == ([], max(seen(rig, "plain")))
    assert web.get("/api/v1/runs/plain/step/none").status_code == 400


def test_data_that_changed_since_is_not_taken_for_what_was_seen(rig: RunsRig, web: Served) -> None:
    (rig.work / "more.txt").write_text("another")
    rig.headrace("cp", "more.txt", f"s3://{rig.bucket}/flowers/00.note")
    cache = rig.variables["HEADRACE_CACHE_DIR"]
    try:
        rig.variables["HEADRACE_CACHE_DIR"] = f"{cache}-of-another-node"  # this one trusts its listing for a while
        with served(rig) as later:
            (batch,) = later.twin("/runs/loose/step/2")["batches"]  # type: ignore[misc]
            assert "holds other samples than the run saw" in batch["problem"]  # type: ignore[index]
            (pinned,) = later.twin("/runs/plain/step/2")["batches"]  # type: ignore[misc]
            assert pinned["problem"] is None  # type: ignore[index]
    finally:
        rig.variables["HEADRACE_CACHE_DIR"] = cache
        rig.headrace("rm", f"s3://{rig.bucket}/flowers/00.note")


def test_from_a_metric_to_pictures(rig: RunsRig, web: Served, page: Page) -> None:
    page.goto(f"{web.url}/runs/plain/metrics")
    page.get_by_label("Samples at step").fill("3")
    page.get_by_role("button", name="Look").click()
    expect(page.get_by_role("heading", name="4 samples of flowers@v1")).to_be_visible()
    first = page.locator("ol.grid img").first
    expect(first).to_have_js_property("complete", value=True)
    assert first.evaluate("one => one.naturalWidth") > 0
    for key in seen(rig, "plain")[3]:
        expect(page.get_by_text(key, exact=True)).to_be_visible()
    page.get_by_role("link", name="step 4 →").click()
    for key in seen(rig, "plain")[4]:
        expect(page.get_by_text(key, exact=True)).to_be_visible()
    check(page)
