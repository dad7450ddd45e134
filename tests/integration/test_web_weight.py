"""What a page weighs on the wire and in the server, and what it says that it cost the bucket."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, expect

import headrace
from headrace.base.settings import PriceSettings
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.servers import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for
from tests.web_rig import Served, axe_findings, served

pytestmark = pytest.mark.server
UPLOT = Path(headrace.__file__).parent / "web" / "static" / "uplot" / "uPlot.js"
JOB = """
    import os
    import headrace as hr
    for step in range(2000):
        hr.log({"loss": 2.0 - step / 1000, "lr": 0.1}, step=step)
    for number in range(5000):
        print(f"step {number}: loss {1 / (1 + number):.6f}, so many samples a second")
    with open(os.path.join(os.environ["HEADRACE_OUTPUTS"], "long.txt"), "w") as file:
        file.write("all the same " * 10_000)
"""
MOST_WEIGHT = 120_000
MOST_MEMORY = 110e6
"""Bytes of the server's own, libraries that other programs use too left out."""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("weight"))
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    script = made.script(JOB)
    for name in ("good", "other"):
        made.headrace("run", "--id", name, "--", "python", script)
    Image.new("RGB", (600, 400), (9, 99, 9)).save(made.work / "green.png")
    made.headrace("cp", "green.png", f"s3://{made.bucket}/pictures/green.png")
    made.headrace("attach", "/pictures", f"s3://{made.bucket}/pictures")
    yield made
    made.close()


def static(web: Served) -> str:
    """The folder of scripts and styles, as a page names it."""
    return web.get("/runs").text.partition('data-static="')[2].partition('"')[0]


def raw(web: Served, path: str, method: str = "GET", **headers: str) -> tuple[httpx.Response, bytes]:
    """The answer and its bytes as they came, still packed."""
    told = {"authorization": f"Bearer {web.token}", "accept-encoding": "identity", **headers}
    with httpx.stream(method, web.url + path, headers=told, timeout=30) as answer:
        return answer, b"".join(answer.iter_raw())


# on the wire


def test_the_first_load_is_light(web: Served, context: BrowserContext) -> None:
    page = context.new_page()
    client = context.new_cdp_session(page)
    client.send("Network.enable")
    sizes: list[float] = []
    client.on("Network.loadingFinished", lambda one: sizes.append(one["encodedDataLength"]))
    page.goto(f"{web.url}/runs/good?token={web.token}", wait_until="networkidle")
    light = sum(sizes)
    if UPLOT.is_file():
        page.locator(".plot").first.hover()
        page.wait_for_selector(".uplot")
        page.wait_for_load_state("networkidle")
    assert 10_000 < light < 60_000
    assert sum(sizes) < MOST_WEIGHT
    before = len(sizes)
    page.goto(f"{web.url}/runs/other", wait_until="networkidle")
    assert sum(sizes[before:]) < light / 2, "scripts and styles are kept by the browser"


@pytest.mark.parametrize("path", ["/runs/good", "/api/v1/runs/good/log", "/compare?run=good&run=other",
                                  "/api/v1/openapi.json"])  # fmt: skip
def test_pages_and_their_twins_are_packed_for_who_takes_it(web: Served, path: str) -> None:
    web.get(path)
    packed, data = raw(web, path, **{"accept-encoding": "br, gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(data)
    assert gzip.decompress(data).rstrip().endswith((b"</html>", b"}"))
    plain, whole = raw(web, path)
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert len(data) < len(whole) / 2
    assert "content-encoding" not in raw(web, path, **{"accept-encoding": "gzip;q=0, identity"})[0].headers
    assert raw(web, path, "HEAD", **{"accept-encoding": "gzip"})[1] == b""


def test_bytes_of_the_bucket_are_never_packed(web: Served) -> None:
    long = b"all the same " * 10_000
    for path in ("/raw/runs/good/outputs/long.txt", "/preview/pictures/green.png", "/raw/files/pictures/green.png"):
        answer, data = raw(web, path, **{"accept-encoding": "gzip"})
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
        assert int(answer.headers["content-length"]) == len(data)
    answer, data = raw(web, "/raw/runs/good/outputs/long.txt", **{"accept-encoding": "gzip", "range": "bytes=5-2004"})
    assert (answer.status_code, data) == (206, long[5:2005])


def test_scripts_are_kept_for_ever_and_named_by_their_content(web: Served) -> None:
    path, file = f"{static(web)}/page.js", UPLOT.parents[1] / "page.js"
    packed, data = raw(web, path, **{"accept-encoding": "gzip"})
    assert "immutable" in packed.headers["cache-control"]
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(data) == file.read_bytes()
    assert "javascript" in packed.headers["content-type"]
    plain, whole = raw(web, path)
    assert whole == file.read_bytes()
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert plain.headers["etag"] != packed.headers["etag"], "they are other bytes"
    for one in (plain, packed):
        again, nothing = raw(web, path, **{"accept-encoding": "gzip", "if-none-match": one.headers["etag"]})
        assert (again.status_code, nothing) == (304, b"")


def test_ranges_and_heads_of_scripts_are_of_the_file(web: Served) -> None:
    path, file = f"{static(web)}/style.css", UPLOT.parents[1] / "style.css"
    answer, data = raw(web, path, **{"accept-encoding": "gzip", "range": "bytes=10-29"})
    assert (answer.status_code, data) == (206, file.read_bytes()[10:30])
    assert "content-encoding" not in answer.headers
    packed = raw(web, path, **{"accept-encoding": "gzip"})[0]
    changed = {"accept-encoding": "gzip", "range": "bytes=10-29", "if-range": packed.headers["etag"]}
    assert raw(web, path, **changed)[1] == file.read_bytes(), "a range of what was packed is none of these"
    head, nothing = raw(web, path, "HEAD", **{"accept-encoding": "gzip"})
    assert (head.headers["content-length"], nothing) == (packed.headers["content-length"], b"")
    assert raw(web, f"{static(web)}/none.js")[0].status_code == 404


# in the server


def test_fifty_viewers_take_little_memory(rig: RunsRig) -> None:
    paths = ["/runs/good", "/runs/good/metrics", "/api/v1/runs/good/log", "/compare?run=good&run=other"]
    with served(rig) as web:

        def look(_: int) -> set[int]:
            with httpx.Client(headers={"authorization": f"Bearer {web.token}"}, timeout=60) as client:
                return {client.get(web.url + path).status_code for path in paths * 2}

        with ThreadPoolExecutor(50) as pool:
            assert set().union(*pool.map(look, range(50))) == {200}
        assert psutil.Process(web.process.pid).memory_full_info().uss < MOST_MEMORY


# what it cost


@dataclass
class Priced:
    """A page over a proxy that counts."""

    web: Served
    between: FaultServer

    def ask(self, path: str) -> tuple[dict[str, Any], dict[str, int]]:
        """What the JSON twin says that it cost, and what the bucket was asked meanwhile."""
        before = len(self.between.seen)
        cost = self.web.twin(path)["cost"]
        assert isinstance(cost, dict)
        return cost, dict(Counter(one.operation for one in self.between.seen[before:]))


@pytest.fixture
def priced(seaweedfs: EmbeddedS3, rig: RunsRig, tmp_path: Path) -> Iterator[Priced]:
    """With nothing in the node's cache."""
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as between:
        other = RunsRig(seaweedfs, tmp_path, {}, rig.bucket)
        other.variables = {
            "AWS_ENDPOINT_URL_S3": between.endpoint, "AWS_ENDPOINT_URL": between.endpoint, "HEADRACE_CACHE_SIZE": "1GB",
            "HEADRACE_CACHE_DIR": str(tmp_path / "cache"),
        }  # fmt: skip
        (other.work / "headrace.toml").write_bytes((rig.work / "headrace.toml").read_bytes())
        with served(other) as web:
            yield Priced(web, between)


def requests(cost: dict[str, Any]) -> dict[str, int]:
    return {kind: cost[kind] for kind in ("get", "head", "list", "put", "delete") if cost[kind]}


@pytest.mark.parametrize("path", ["/runs/good", "/runs/good/log", "/runs/good/metrics", "/runs/good/files",
                                  "/runs/good/code", "/files/pictures/green.png"])  # fmt: skip
def test_a_page_tells_what_it_asked_the_bucket(priced: Priced, path: str) -> None:
    cost, seen = priced.ask(path)
    assert seen
    assert requests(cost) == seen
    prices = PriceSettings()
    reads, writes = seen.get("get", 0) + seen.get("head", 0), seen.get("list", 0)
    assert cost["usd"] == pytest.approx((reads * prices.read + writes * prices.write) / 1000)
    assert cost["prices_set"] is cost["goes_on"] is False


def test_what_is_known_already_costs_nothing(priced: Priced) -> None:
    priced.ask("/runs/good/log")
    cost, seen = priced.ask("/runs/good/log?start=100")
    assert requests(cost) == seen
    assert "list" not in seen, "a run that is over is not looked at again"
    assert cost["usd"] < 1e-5


def test_work_behind_a_page_is_on_its_account_so_far(priced: Priced) -> None:
    """And on no later one's; when it is over it goes on no more."""
    before = len(priced.between.seen)
    cost, _ = priced.ask("/runs")
    assert cost["get"] >= 2, "how both runs stand, asked on threads of a pool"

    def seen_of(kind: str) -> int:
        return sum(one.operation == kind for one in priced.between.seen[before:])

    # A request that is on its way is on the account, and nobody has seen it yet.
    assert wait_for(lambda: all(count <= seen_of(kind) for kind, count in requests(cost).items()))
    assert wait_for(lambda: priced.web.twin("/runs")["complete"] is True, 30)
    cost, seen = priced.ask("/compare?run=good&run=other")
    assert wait_for(lambda: priced.web.twin("/compare?run=good&run=other")["underway"] is None, 30)
    cost, seen = priced.ask("/compare?run=good&run=other")
    assert requests(cost) == seen
    assert cost["goes_on"] is False


def test_two_at_once_pay_each_for_itself(priced: Priced) -> None:
    before = len(priced.between.seen)
    with ThreadPoolExecutor(2) as pool:
        costs = list(pool.map(lambda name: priced.web.twin(f"/runs/{name}")["cost"], ["good", "other"]))
    seen = Counter(one.operation for one in priced.between.seen[before:])
    told = Counter[str]()
    for one in costs:
        assert isinstance(one, dict)
        told.update(requests(one))
        assert one["get"] < seen["get"]
    assert told == seen


def test_the_footer_says_it(priced: Priced, context: BrowserContext) -> None:
    page = context.new_page()
    before = len(priced.between.seen)
    page.goto(f"{priced.web.url}/runs/good?token={priced.web.token}")
    seen = Counter(one.operation for one in priced.between.seen[before:])
    footer = page.locator("footer .cost")
    expect(footer).to_contain_text(f"{seen['get']} GET")
    expect(footer).to_contain_text("US$ 0.0000")
    expect(footer).to_contain_text("at example prices")
    assert axe_findings(page) == []
    page.set_viewport_size({"width": 320, "height": 800})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{priced.web.url}/runs/good/code")
    page.goto(f"{priced.web.url}/runs/good/code")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert axe_findings(page) == []
