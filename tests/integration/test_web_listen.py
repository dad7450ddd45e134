"""Files that are sounds, or packed, on their pages: a player that plays, and nothing is given as what it is not."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest
from playwright.sync_api import Page, expect
from pyarrow import feather

from headrace.testing.servers import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.unit.web.test_previews_packed import sound
from tests.web_rig import LOOKS, Served, check, look

pytestmark = pytest.mark.server
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
AT = "/files/sounds/of it"
PAGES = ("tone.wav", "rows.csv.gz", "rows.feather", "page.mp3", "bomb.gz")


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("listen"))
    rows = io.BytesIO()
    feather.write_feather(pa.table({HOSTILE: [HOSTILE] * 50}), rows)
    lines = gzip.compress(b"x," + json.dumps(HOSTILE).encode() + b"\n1,2\n")
    for name, data in (
        ("tone.wav", sound("wav")), ("rows.csv.gz", lines), ("rows.feather", rows.getvalue()),
        ("page.mp3", HOSTILE.encode()), ("bomb.gz", gzip.compress(bytes(64 << 20)) * 16),
    ):  # fmt: skip
        made.store().put(f"sounds/of it/{name}", data)
    made.headrace("attach", "/sounds", f"s3://{made.bucket}/sounds")
    yield made
    made.close()


@pytest.mark.parametrize(("width", "colours"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_each_is_shown_and_accessible(blank: Page, web: Served, name: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(f"{web.url}{AT}/{name}")
    assert web.twin(f"{AT}/{name}")["file"]["preview"]  # type: ignore[index]
    check(blank)


def test_a_sound_of_the_namespace_is_played(page: Page, web: Served) -> None:
    page.goto(f"{web.url}{AT}/tone.wav")
    expect(page.get_by_text("8,000 Hz")).to_be_visible()
    player = page.locator("audio")
    assert player.evaluate(
        "one => new Promise((good, bad) => { one.onloadedmetadata = () => good(one.duration); one.onerror = bad;"
        " one.load(); one.preload = 'metadata' })"
    ) == pytest.approx(3.0)


def test_only_sounds_are_given_as_such_and_sealed(web: Served) -> None:
    answer = web.get("/listen/sounds/of it/tone.wav", range="bytes=0-99")
    assert (answer.status_code, answer.headers["content-type"], len(answer.content)) == (206, "audio/wav", 100)
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    for path, status in (
        ("sounds/of it/page.mp3", 415), ("sounds/of it/none.wav", 404), ("sounds/of it/", 400), ("etc/passwd", 404),
        ("sounds/%2e%2e/x", 400),
    ):  # fmt: skip
        assert web.get(f"/listen/{path}").status_code == status, path
    assert httpx.get(f"{web.url}/listen/sounds/of it/tone.wav").status_code == 401
