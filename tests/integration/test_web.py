"""The page over the bucket: in a real browser, over a real store; what it shows, keeps current, and refuses."""

from __future__ import annotations

import io
import re
import signal
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import schemathesis
from PIL import Image
from playwright.sync_api import Page, expect

from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from headrace.web.guard import HEADER
from headrace.web.pages import PAGES as KNOWN
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for
from tests.web_rig import LOOKS, Served, check, look, served

pytestmark = pytest.mark.server
MEANT = (r"/picture/flowers/v1/[34]/",)
"""Pictures that are none, and are refused."""
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
JOB = f"""
    import os, sys
    import headrace as hr
    for step in range(1200):
        loss = float("nan") if step == 77 else 2.0 - step / 1000
        hr.log({{"loss": loss, "train/lr": 0.1, {HOSTILE!r}: step}}, step=step)
    for number in range(700):
        print(f"line {{number}}")
    print("\\x1b[31mred\\x1b[0m {HOSTILE} \\u202edesrever")
    with open(os.path.join(os.environ["HEADRACE_OUTPUTS"], "evil.html"), "w") as file:
        file.write("<script>window.hacked=1</script>")
    if len(sys.argv) > 1:
        raise ValueError("no such luck")
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    """A home with two runs that are over."""
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("web"), {"HEADRACE_CACHE_SIZE": "1GB"})
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    script = made.script(JOB)
    made.headrace("run", "--id", "good", "--name", "digits", "--set", "tags.team=vision", "--", "python", script)
    made.headrace("run", "--id", "bad", "--name", "broken", "--", "python", script, "fail", code=1)
    flowers(made.work / "flowers")
    made.headrace("cp", "-r", "flowers", f"s3://{made.bucket}/flowers")
    made.headrace("snapshot", f"s3://{made.bucket}/flowers", "--name", "flowers")
    made.headrace("attach", "/flowers", f"s3://{made.bucket}/flowers")
    made.headrace("models", "publish", "./flowers", "flowers")
    yield made
    made.close()


def flowers(folder: Path) -> None:
    """Seventy samples: pictures, text about them, and what nobody should trust."""
    folder.mkdir()
    for number in range(70):
        Image.new("RGB", (300, 200), (number, 255 - number, 0)).save(folder / f"{number:02}.png")
        (folder / f"{number:02}.txt").write_text(f"flower {number}")
    (folder / "01.txt").write_text(HOSTILE)
    (folder / "02.txt").write_bytes(b"")
    (folder / "03.png").write_bytes(bomb(30_000, 30_000))
    (folder / "04.png").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='window.hacked=1'/>")


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few kilobytes that wants gigabytes: W3C's PNG, 5.6."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1 << 20))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


PAGES = ("/runs", "/runs/good", "/runs/good/why", "/runs/good/log", "/runs/good/metrics", "/runs/good/machine",
         "/runs/good/files", "/runs/good/held", "/runs/good/code", "/runs/good/inputs", "/compare?run=good&run=bad",
         "/data", "/data/flowers/v1", "/data/flowers/v1?report=true", "/data/flowers/v1/samples?start=5",
         "/data/flowers/diff", "/files", "/files/flowers/", "/node")  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_every_page_is_accessible_and_fits(blank: Page, web: Served, path: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(web.url + path)
    check(blank)


def test_without_the_token_nothing_is_told(web: Served) -> None:
    for path in ("/", *PAGES, "/api/v1/runs", "/api/v1/openapi.json", "/raw/runs/good/outputs/evil.html"):
        assert httpx.get(web.url + path).status_code == 401
    assert httpx.get(f"{web.url}/?token=wrong").status_code == 401
    assert httpx.get(f"{web.url}/runs", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_token_leaves_the_url_and_becomes_a_cookie_that_no_script_reads(page: Page, web: Served) -> None:
    assert page.url == f"{web.url}/runs"
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.goto(f"{web.url}/runs/good/log?token={web.token}&stream=stderr")
    assert page.url == f"{web.url}/runs/good/log?stream=stderr"


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example", 421), ("evil.example:80", 421), ("", 421), ("127.0.0.1.evil.example", 421), ("localhost:1", 200),
     ("LOCALHOST", 200), ("[::1]:9", 200), ("127.0.0.1", 200)],
)  # fmt: skip
def test_only_names_of_this_machine_are_answered(web: Served, host: str, status: int) -> None:
    assert web.get("/runs", host=host).status_code == status


@pytest.mark.parametrize(
    ("origin", "header", "status"),
    [("", "", 403), ("", "1", 403), ("http://evil.example", "1", 403), ("ours", "", 403), ("ours", "1", 405)],
)
def test_what_another_site_posts_is_refused(web: Served, origin: str, header: str, status: int) -> None:
    told = {"authorization": f"Bearer {web.token}", "origin": web.url if origin == "ours" else origin, HEADER: header}
    assert httpx.post(f"{web.url}/runs", headers=told).status_code == status, "405: it is looked at, and does nothing"


def test_what_a_browser_may_do_with_a_page(web: Served) -> None:
    for path in (*PAGES, "/nothing", "/static/0.1.0/page.js"):
        headers = web.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert web.get("/runs").headers["cache-control"] == "no-store"


def test_bytes_of_the_bucket_are_kept_and_never_shown(page: Page, web: Served) -> None:
    answer = web.get("/raw/runs/good/outputs/evil.html")
    assert answer.text == "<script>window.hacked=1</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    page.goto(f"{web.url}/runs/good/files")
    with page.expect_download() as started:
        page.get_by_role("link", name="outputs/evil.html").click()
    assert started.value.suggested_filename == "evil.html"


@pytest.mark.parametrize(
    "name",
    [
        "%2e%2e/bad/run.json",
        "..%2Fbad%2Frun.json",
        "outputs/%2e%2e/%2e%2e/bad/run.json",
        "%2e/run.json",
        "/run.json",
        "",
    ],
)
def test_no_name_leads_out_of_a_run(web: Served, name: str) -> None:
    answer = web.get(f"/raw/runs/good/{name}")
    assert answer.status_code in (400, 404)
    assert "format" not in answer.text


def test_names_and_lines_are_text(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/runs/good/log")
    line = page.locator("#lines li").last.locator("span")
    expect(line).to_have_text(f"red {HOSTILE} \\u202edesrever")
    page.goto(f"{web.url}/runs/good/metrics")
    expect(page.get_by_text(HOSTILE)).to_be_visible()
    assert page.evaluate("window.hacked") is None


def test_the_list_is_searched_filtered_and_leads_to_a_run(page: Page, web: Served) -> None:
    assert {run["id"] for run in web.twin("/runs")["runs"]} == {"good", "bad"}  # pyright: ignore
    page.get_by_role("searchbox").fill("VISION")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "q=VISION" in page.url
    page.get_by_role("link", name="digits").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("digits")
    page.goto(f"{web.url}/runs?state=failed")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(f"{web.url}/runs?q=nobody")
    expect(page.get_by_text("No run is like that")).to_be_visible()


def test_the_list_tells_what_takes_reading_all_that_was_logged(web: Served) -> None:
    def told() -> bool:
        runs = {run["id"]: run for run in web.twin("/runs")["runs"]}  # pyright: ignore
        return runs["good"]["loss"] is not None and runs["bad"]["verdict"] == "failed"

    assert wait_for(told, 30)


def test_a_run_that_failed_shows_why_first(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/runs/bad")
    expect(page.locator(".verdict")).to_contain_text("failed")
    expect(page.locator("pre.log .bad").last).to_have_text("ValueError: no such luck")
    page.goto(f"{web.url}/runs/bad/log?stream=stderr")
    page.get_by_role("link", name=re.compile("Traceback")).click()
    assert page.url.endswith("#L0")


def test_any_line_of_a_log(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/runs/good/log?start=300&count=5")
    expect(page.locator("#lines li").first).to_contain_text("line 300")
    page.goto(f"{web.url}/runs/good/log")
    expect(page.locator("#lines li")).to_have_count(200)
    page.locator("#lines").evaluate("box => { box.scrollTop = 0 }")
    expect(page.locator("#L400")).to_be_attached()  # what comes before comes when one scrolls up to it
    page.get_by_role("searchbox").fill("LINE 69")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#lines li")).to_have_count(11)


def test_what_a_metric_shows(page: Page, web: Served) -> None:
    told = {one["name"]: one for one in web.twin("/runs/good/metrics?q=loss")["metrics"]}  # pyright: ignore
    drawn = told["loss"]["curve"]
    assert (told["loss"]["points"], sum(drawn["odd"])) == (1200, 1)
    assert len(drawn["x"]) <= 500
    assert (min(low for low in drawn["low"] if low is not None), max(drawn["high"])) == pytest.approx((0.801, 2.0))
    page.goto(f"{web.url}/runs/good/metrics")
    expect(page.get_by_text("1,200 of 1,200 points, all extremes shown").first).to_be_visible()
    expect(page.get_by_role("img", name="loss", exact=True).locator(".odd")).to_have_count(1)


def test_samples_are_shown_as_pictures_and_text(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data")
    page.get_by_role("link", name="flowers@v1").click()
    page.get_by_role("link", name="Look at its samples").click()
    expect(page.locator(".grid li")).to_have_count(60)
    expect(page.locator("#S1")).to_contain_text(HOSTILE)
    picture = page.get_by_role("img", name="png of 00")
    assert picture.evaluate("one => one.decode().then(() => [one.naturalWidth, one.naturalHeight])") == [160, 107]
    page.get_by_role("link", name="after →").click()
    expect(page.locator(".grid li")).to_have_count(10)
    expect(page.get_by_text("61 to 70 of 70")).to_be_visible()
    assert page.evaluate("window.hacked") is None


def test_pictures_are_made_here(web: Served) -> None:
    answer = web.get("/picture/flowers/v1/0/png")
    assert answer.headers["content-type"] == "image/jpeg"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    with Image.open(io.BytesIO(answer.content)) as made:
        assert (made.format, made.size) == ("JPEG", (160, 107))


@pytest.mark.parametrize(
    ("place", "part", "status"),
    [(3, "png", 415), (4, "png", 415), (0, "txt", 415), (0, "nothing", 404), (70, "png", 404), (0, "__key__", 404)],
    ids=["a bomb", "SVG under another name", "text", "no part", "no sample", "the key"],
)
def test_what_is_no_picture_is_refused(web: Served, place: int, part: str, status: int) -> None:
    answer = web.get(f"/picture/flowers/v1/{place}/{part}")
    assert answer.status_code == status
    assert "svg" not in answer.headers["content-type"]


def test_what_is_suspicious_in_a_snapshot(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/flowers/v1")
    page.get_by_role("link", name="Look through all 140 objects").click()
    expect(page.get_by_text("1 objects are empty")).to_be_visible()
    expect(page.get_by_text("such as 02.txt")).to_be_visible()


def test_two_runs_side_by_side(page: Page, web: Served) -> None:
    boxes = page.get_by_role("checkbox")
    expect(page.get_by_role("button", name="Compare selected")).to_be_disabled()
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("button", name="Compare selected").click()
    expect(page.get_by_role("row", name="job command")).to_contain_text("fail")
    expect(page.get_by_role("img", name="loss", exact=True).locator("polyline")).to_have_count(2)


def test_everything_by_keys(page: Page, web: Served) -> None:
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("search")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("digits?")
    expect(page.get_by_role("searchbox")).to_have_value("digits?")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")
    page.keyboard.press("3")
    page.wait_for_url("**/log")
    before = page.evaluate("getComputedStyle(document.body).color")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).color") != before
    page.keyboard.press("r")
    page.wait_for_url("**/runs")
    assert page.evaluate("getComputedStyle(document.body).color") != before, "the colours stay"


def test_a_run_under_way_is_followed(page: Page, web: Served, rig: RunsRig) -> None:
    script = rig.script(
        """
        import os, sys, time
        import headrace as hr
        for step in range(10000):
            print(f"at {step}", flush=True)
            hr.log({"loss": 1 / (step + 1)}, step=step)
            time.sleep(0.5)
        """,
        "long.py",
    )
    running = rig.start("run", "--id", "live", "--", "python", script)
    assert wait_for(lambda: web.get("/api/v1/runs/live/log").json().get("total", 0) > 0, 30)
    page.goto(f"{web.url}/runs/live/log")
    shown = page.locator("#lines li").count()
    expect(page.locator(f"#L{shown + 8}")).to_be_visible(timeout=30_000)
    page.goto(f"{web.url}/runs/live")
    expect(page.get_by_role("heading", level=1)).to_contain_text("running")
    running.send_signal(signal.SIGTERM)
    running.wait(60)
    expect(page.locator(".life")).to_contain_text("stopped", timeout=30_000)


def test_fifty_viewers_cost_the_bucket_what_one_does(seaweedfs: EmbeddedS3, rig: RunsRig) -> None:
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as between:
        other = RunsRig(seaweedfs, rig.scratch / "fifty", {}, rig.bucket)
        other.variables = {"AWS_ENDPOINT_URL_S3": between.endpoint, "AWS_ENDPOINT_URL": between.endpoint}

        def asked(viewers: int) -> list[str]:
            with served(other) as web, ThreadPoolExecutor(viewers) as pool:
                before = len(between.seen)
                assert {one.status_code for one in pool.map(web.get, ["/runs/good"] * viewers)} == {200}
                return sorted(seen.path for seen in between.seen[before:] if "/runs/good/" in seen.path)

        assert asked(50) == asked(1)


def test_a_store_that_is_away_is_told(seaweedfs: EmbeddedS3, rig: RunsRig, page: Page) -> None:
    """And what was known is shown."""
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as between:
        other = RunsRig(seaweedfs, rig.scratch / "away", {}, rig.bucket)
        other.variables = {"AWS_ENDPOINT_URL_S3": between.endpoint, "AWS_ENDPOINT_URL": between.endpoint}
        with served(other) as web:
            assert web.get("/runs").status_code == 200
            between.plan = Plan([Fault(Kind.ARCHIVED, operations=frozenset({"get", "list", "head"}))])
            page.goto(web.entry)
            assert wait_for(lambda: "The store does not answer" in web.get("/runs").text, 30)
            page.goto(f"{web.url}/runs")
            expect(page.get_by_role("status")).to_contain_text("The store does not answer")
            expect(page.locator("tbody tr")).to_have_count(len(rig.ids()))
            between.plan = Plan()


def test_what_cannot_be_shown_says_what_to_do(web: Served) -> None:
    for path, status, hint in (
        ("/runs/none", 404, "headrace runs lists them"), ("/runs/%2e%2e", 400, "letters, digits"),
        ("/nothing", 404, "/runs"), ("/runs?count=many", 400, "count"), ("/runs/good/log?stream=nope", 400, "stream"),
        ("/compare", 400, "choose them"),
    ):  # fmt: skip
        for before in ("", "/api/v1"):
            answer = web.get(before + path)
            assert answer.status_code == status, path
            assert hint in answer.text
            assert "Traceback" not in answer.text
    assert web.get("/api/v1/runs/none").json()["code"] == "not-found"


def test_the_api_is_as_described(web: Served) -> None:
    """Anything that the description allows is asked for, and each answer is what it says."""
    headers = {"authorization": f"Bearer {web.token}"}
    schema = schemathesis.openapi.from_url(f"{web.url}/api/v1/openapi.json", headers=headers)
    operations = [one for found in schema.get_all_operations() if (one := found.ok()).method == "get"]
    assert len(operations) == len(KNOWN)
    for operation in operations:
        query = {"run": "good,bad"} if operation.path.endswith("/compare") else {}
        version = "1" if "/models/" in operation.path else "v1"
        places = {"run": "good", "name": "flowers", "version": version, "path": "flowers/", "step": "0"}
        case = operation.Case(path_parameters=places, query=query)
        answer = case.call(headers=headers)
        case.validate_response(answer, headers=headers)
        assert answer.status_code == 200, (case.path, answer.text)


def test_a_proxy_may_put_a_path_before_all(rig: RunsRig) -> None:
    with served(rig, "--base", "/user/ann/headrace", "--hosts", "hub.example") as web:
        local = web.url.removesuffix("/user/ann/headrace")
        told = {"authorization": f"Bearer {web.token}", "host": "hub.example"}
        text = httpx.get(f"{local}/runs/good", headers=told).text
        links = re.findall(r'(?:href|src|action)="(/[^"]*)"', text)
        assert links
        assert all(link.startswith("/user/ann/headrace/") for link in links)
        moved = httpx.get(f"{local}/?token={web.token}", headers={"host": "hub.example"})
        assert moved.headers["location"] == "/user/ann/headrace/"
        assert "Path=/user/ann/headrace" in moved.headers["set-cookie"]


def test_it_ends_at_once(rig: RunsRig) -> None:
    with served(rig) as web:
        assert web.get("/runs/good").status_code == 200
        web.process.send_signal(signal.SIGINT)
        assert web.process.wait(10) == 0
