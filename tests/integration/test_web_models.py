"""Models on the page: from a model to its run and back, accessible, and as data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from headrace.store.embedded import EmbeddedS3
from tests import models_kit
from tests.runs_rig import RunsRig
from tests.web_rig import LOOKS, Served, check, look

pytestmark = pytest.mark.server
HOSTILE = "<img src=x onerror=window.hacked=1>"
JOB = f"""
    import headrace as hr, os
    hr.log({{"accuracy": 0.98, "loss": 0.1, {HOSTILE!r}: 1, "zeta": 2}}, step=1)
    folder = os.environ["HEADRACE_OUTPUTS"] + "/checkpoints/1"
    os.makedirs(folder)
    open(folder + "/weights.bin", "w").write("weights")
    open(folder + "/COMMITTED", "w").close()
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("web-models"), {"HEADRACE_CACHE_SIZE": "1GB"})
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    models_kit.onnx_model(made.work / "net.onnx")
    made.headrace("run", "--id", "one", "--", "python", made.script(JOB))
    made.headrace(
        "models", "publish", "one", "digits", "--alias", "staging", "--note", HOSTILE, "--if", "accuracy > 0.9"
    )
    made.headrace("models", "publish", "net.onnx", "digits", "--alias", "prod")
    yield made
    made.close()


PAGES = ("/models", "/models/digits", "/models/digits/1", "/models/digits/prod", "/runs/one", "/models?q=none")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_every_page_is_accessible_and_fits(blank: Page, web: Served, path: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(web.url + path)
    check(blank)


def test_from_a_run_to_its_model_and_back(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/runs/one")
    page.get_by_role("link", name="digits@1").click()
    expect(page.get_by_role("heading", name="digits@1 staging")).to_be_visible()
    expect(page.get_by_text("accuracy > 0.9")).to_be_visible()
    page.get_by_role("link", name="All versions of digits").click()
    page.get_by_role("link", name="prod=2").click()
    expect(page.get_by_role("cell", name="batch × 4").first).to_be_visible()
    page.goto(f"{web.url}/models/digits/1")
    page.get_by_role("link", name="one", exact=True).click()
    assert page.url == f"{web.url}/runs/one"


def test_the_same_as_data(web: Served) -> None:
    (model,) = web.twin("/models")["models"]  # type: ignore[misc]
    assert (model["name"], model["newest"], model["aliases"]) == ("digits", 2, {"prod": 2, "staging": 1})
    told = web.twin("/models/digits")
    assert [(one["number"], one["run"]) for one in told["versions"]] == [(2, None), (1, "one")]  # type: ignore[union-attr]
    assert [one["alias"] for one in told["changes"]] == ["prod", "staging"]  # type: ignore[union-attr]
    one = web.twin("/models/digits/staging")
    assert one["totals"]["accuracy"]["last"] == 0.98  # type: ignore[index]
    assert [file["path"] for file in one["files"]] == ["weights.bin"]  # type: ignore[union-attr]
    assert web.twin("/models/digits/latest")["entry"] == "model.onnx"
    assert web.twin("/runs/one")["models"] == ["digits@1"]
    for path, status in (("/models/none", 404), ("/models/digits/9", 404), ("/models/digits/none", 404),
                         ("/models/.x", 400), ("/models/digits/v7", 400)):  # fmt: skip
        assert web.get(f"/api/v1{path}").status_code == status, path
    described = web.twin("/openapi.json")
    assert {"/api/v1/models", "/api/v1/models/{name}", "/api/v1/models/{name}/{version}"} <= set(described["paths"])  # type: ignore[arg-type]
