"""Files and the node in a real browser: listings by pages, any name, what files are; and what nobody gets to see."""

from __future__ import annotations

import io
import json
import shutil
import signal
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import schemathesis
from PIL import Image
from playwright.sync_api import Page, expect

from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from headrace.web.world import LISTING_S
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for
from tests.web_rig import LOOKS, Served, check, look, served

pytestmark = pytest.mark.server
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
ODD = ["100%.txt", "a b#c?d=e&f.txt", "größe 😀.txt", "evil\u202etxt.exe", f"{HOSTILE.replace('/', '')}.txt", "+plus+"]
BACK = "back\\slash"
"""SeaweedFS does not tell it from ``back/slash``."""
SIDE = 250
"""Names of the large folder, and as many more that begin like a folder in it."""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    """A bucket that is attached, as is a folder, read-only."""
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("files"))
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    folder = made.work / "bucket"
    some_files(folder / "some")
    made.headrace("cp", "-r", "bucket", f"s3://{made.bucket}/all")
    (folder / "some" / BACK).write_text(f"this is {BACK}")
    store = made.store()
    for number in range(SIDE):
        store.put(f"all/large/img-{number:04}", b"x")
        store.put(f"all/large/z{number:04}", b"x")
    store.put("all/large/img/inside", b"x")
    made.headrace("attach", "/data/bucket", f"s3://{made.bucket}/all")
    made.headrace("attach", "/local", f"file://{folder}", "--read-only")
    yield made
    made.close()


def some_files(folder: Path) -> None:
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"number": np.arange(1000), HOSTILE: ["<b>bold</b>"] * 1000}), folder / "rows.parquet")
    (folder / "rows.csv").write_text("x,y\n" + "1,a\n" * 50)
    with tarfile.open(folder / "shard.tar", "w") as archive:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}{HOSTILE}")
            info.size = 5
            archive.addfile(info, io.BytesIO(b"bytes"))
    np.save(folder / "array.npy", np.zeros((3, 4), np.float32))
    np.savez(folder / "arrays.npz", a=np.zeros((3, 4)), b=np.zeros(7))
    header = json.dumps({"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    Image.new("RGB", (900, 300), (10, 200, 30)).save(folder / "picture.png")
    (folder / "text.txt").write_text(f"{HOSTILE}\n\x1b[31mred \u202edesrever\n" + "line\n" * 1000)
    (folder / "page.html").write_text("<script>window.hacked=1</script>")
    (folder / "bytes.bin").write_bytes(bytes(range(256)) * 1000)
    (folder / "damaged.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    (folder / "empty").write_bytes(b"")
    for name in ODD:
        (folder / name).write_text(f"this is {name}")


SOME = "/files/data/bucket/some/"
PAGES = ("/files", "/files/data/", SOME, "/files/data/bucket/large/", f"{SOME}rows.parquet", f"{SOME}shard.tar",
         f"{SOME}model.safetensors", f"{SOME}picture.png", f"{SOME}text.txt", f"{SOME}damaged.parquet",
         "/node")  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_every_page_is_accessible_and_fits(blank: Page, web: Served, path: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(web.url + path)
    check(blank)


def test_what_is_attached_leads_to_files(page: Page, web: Served, rig: RunsRig) -> None:
    page.keyboard.press("f")
    page.wait_for_url("**/files")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").first).to_contain_text(f"s3://{rig.bucket}/all")
    expect(page.locator("tbody tr").last).to_contain_text("read-only")
    page.get_by_role("link", name="/data/bucket").click()
    page.get_by_role("link", name="some/").click()
    page.get_by_role("link", name="rows.csv").click()
    expect(page.get_by_role("heading", level=2)).to_have_text("CSV")
    page.get_by_label("Where this is").get_by_role("link", name="data", exact=True).click()
    page.wait_for_url("**/files/data/")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("/data/bucket/some/array.npy")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("3 × 4")


def test_a_large_folder_comes_by_pages_and_each_name_once(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/files/data/bucket/large/")
    names: list[str] = []
    while True:
        names += page.locator("td.name a").all_inner_texts()
        if not page.get_by_role("link", name="after →").count():
            break
        expect(page.get_by_text("200 names")).to_contain_text("others follow")
        page.get_by_role("link", name="after →").click()
    wanted = [f"img-{number:04}" for number in range(SIDE)] + [f"z{number:04}" for number in range(SIDE)] + ["img/"]
    assert sorted(names) == sorted(wanted)
    page.get_by_label("Names behind").fill("z0240")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("td.name a").first).to_have_text("z0241")
    expect(page.get_by_text("9 names behind z0240")).to_be_visible()


def test_a_page_costs_one_listing_and_fifty_viewers_what_one_does(seaweedfs: EmbeddedS3, rig: RunsRig) -> None:
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as between:
        other = RunsRig(seaweedfs, rig.scratch / "counted", {}, rig.bucket)
        other.variables = {"AWS_ENDPOINT_URL_S3": between.endpoint, "AWS_ENDPOINT_URL": between.endpoint}
        shutil.copy(rig.work / "headrace.toml", other.work)

        def asked(path: str, viewers: int) -> tuple[list[tuple[str, str]], int]:
            """What the store was asked, and how often the page may have asked anew meanwhile."""
            with served(other) as web, ThreadPoolExecutor(viewers) as pool:
                before, began = len(between.seen), time.monotonic()
                assert {one.status_code for one in pool.map(web.get, [path] * viewers)} == {200}
                times = 1 + int((time.monotonic() - began) // LISTING_S)
                return sorted((seen.operation, seen.path.partition("?")[0]) for seen in between.seen[before:]), times

        one, _ = asked(SOME, 1)
        assert len(one) == 1
        many, times = asked(SOME, 20)
        assert set(many) == set(one)
        assert len(many) <= times
        file, _ = asked(f"{SOME}rows.parquet", 1)
        many, times = asked(f"{SOME}rows.parquet", 20)
        assert set(many) == set(file)
        assert len(many) <= len(file) * times
        assert len(file) <= 6
        node, _ = asked("/node", 1)
        many, times = asked("/node", 20)
        assert set(many) == set(node)
        assert len(many) <= len(node) * times


@pytest.mark.parametrize(
    ("place", "name"), [("local", BACK), *((place, name) for place in ("data/bucket", "local") for name in ODD)]
)
def test_any_name_leads_to_its_file(page: Page, web: Served, name: str, place: str) -> None:
    page.goto(f"{web.url}/files/{place}/some/")
    shown = name.replace("\u202e", "\\u202e")
    page.get_by_role("link", name=shown, exact=True).click()
    expect(page.locator("pre")).to_have_text(f"this is {shown}")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").click()
    assert Path(started.value.path()).read_text() == f"this is {name}"
    expect(page.locator("footer code").first).to_contain_text("headrace cat")
    assert page.evaluate("window.hacked") is None


def test_what_a_file_holds(page: Page, web: Served) -> None:
    def look(name: str) -> None:
        page.goto(f"{web.url}{SOME}{name}")

    look("rows.parquet")
    expect(page.get_by_text("The first 20 of 1,000 rows.")).to_be_visible()
    expect(page.locator(".cells th").last).to_contain_text(HOSTILE)
    expect(page.locator(".cells td").last).to_have_text("<b>bold</b>")
    look("shard.tar")
    expect(page.locator(".cells tbody tr")).to_have_count(3)
    look("arrays.npz")
    expect(page.locator(".cells tbody tr").first).to_contain_text("3 × 4")
    look("model.safetensors")
    expect(page.locator(".cells tbody tr").first).to_contain_text("2 × 3")
    look("picture.png")
    size = page.locator("img.preview").evaluate("one => one.decode().then(() => [one.naturalWidth, one.naturalHeight])")
    assert size == [720, 240]
    look("text.txt")
    expect(page.get_by_text("The first 200 lines of 5")).to_be_visible()
    expect(page.locator("pre")).to_contain_text(f"{HOSTILE}\n\\x1b[31mred \\u202edesrever")
    look("damaged.parquet")
    expect(page.get_by_text("as Parquet it cannot be")).to_be_visible()
    look("empty")
    expect(page.get_by_text("It is empty.")).to_be_visible()
    assert page.evaluate("window.hacked") is None


def test_no_byte_of_a_picture_comes_to_the_browser(web: Served) -> None:
    answer = web.get("/preview/data/bucket/some/picture.png")
    assert (answer.headers["content-type"], answer.content[:3]) == ("image/jpeg", b"\xff\xd8\xff")
    assert web.get("/preview/data/bucket/some/page.html").status_code == 415


def test_bytes_are_kept_and_never_shown(web: Served) -> None:
    answer = web.get("/raw/files/data/bucket/some/page.html")
    assert answer.text == "<script>window.hacked=1</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("wanted", "status", "span"),
    [("bytes=5-9", 206, (5, 10)), ("bytes=255990-", 206, (255990, 256000)), ("bytes=-10", 206, (255990, 256000)),
     ("bytes=0-999999", 206, (0, 256000)), ("bytes=256000-", 416, None), ("bytes=0-1,4-5", 200, (0, 256000)),
     ("lines=1-2", 200, (0, 256000)), ("bytes=9-5", 200, (0, 256000)), ("bytes=-0", 416, None)],
)  # fmt: skip
def test_ranges(web: Served, wanted: str, status: int, span: tuple[int, int] | None) -> None:
    whole = bytes(range(256)) * 1000
    answer = web.get("/raw/files/data/bucket/some/bytes.bin", range=wanted)
    assert answer.status_code == status
    assert answer.content == (b"" if span is None else whole[slice(*span)])
    tag = answer.headers["etag"]
    for given, wants in ((tag, status), ('"another"', 200)):
        told = {"range": wanted, "if-range": given}
        assert web.get("/raw/files/data/bucket/some/bytes.bin", **told).status_code == wants
    authorised = {"authorization": f"Bearer {web.token}"}
    head = httpx.head(f"{web.url}/raw/files/data/bucket/some/bytes.bin", headers=authorised)
    assert (head.headers["content-length"], head.content) == ("256000", b"")


@pytest.mark.parametrize(
    "path",
    ["/data/bucket/some/%2e%2e/%2e%2e/home/runs", "/data/bucket/../bucket/some/text.txt", "/data/./bucket/",
     "/etc/passwd", "/etc/", "/file:///etc/passwd", "/http://127.0.0.1/", "/%00"],
)  # fmt: skip
def test_no_path_leads_out_of_what_is_attached(web: Served, path: str) -> None:
    for before in ("/files", "/raw/files", "/preview", "/api/v1/files"):
        connection = HTTPConnection(web.url.removeprefix("http://"))  # which sends a path as it stands
        connection.request("GET", before + path, headers={"authorization": f"Bearer {web.token}"})
        answer = connection.getresponse()
        told = answer.read()
        assert answer.status in (400, 404), path
        assert b"root:" not in told
        assert b"leads elsewhere" in told or "/." not in path.replace("%2e", ".")
        connection.close()


@pytest.mark.parametrize(
    "path", ["file:///etc/passwd", "/etc/passwd", "http://127.0.0.1/", "s3://other/", "../../etc/passwd", "~"]
)
def test_nor_one_that_is_typed(web: Served, path: str) -> None:
    assert web.get(f"/files?path={path}").status_code in (400, 404)


def test_what_is_not_there_is_said(web: Served) -> None:
    for path in ("/data/bucket/none", "/data/bucket/none/", "/none/", "/data/bucket/some/text.txt/"):
        answer = web.get(f"/api/v1/files{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found"), path
    assert web.get("/files?count=many").status_code == 400


def test_a_store_that_hangs_is_told_and_the_page_answers(seaweedfs: EmbeddedS3, rig: RunsRig, page: Page) -> None:
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as between:
        other = RunsRig(seaweedfs, rig.scratch / "hanging", {}, rig.bucket)
        other.variables = {"AWS_ENDPOINT_URL_S3": between.endpoint, "AWS_ENDPOINT_URL": between.endpoint}
        shutil.copy(rig.work / "headrace.toml", other.work)
        between.plan = Plan([Fault(Kind.STALL, operations=frozenset({"head"}), delay_s=30)])
        with served(other) as web:
            page.goto(web.entry)
            page.goto(f"{web.url}/node")
            expect(page.locator("tbody tr").first).to_contain_text("no answer within 3 s")
            expect(page.locator("tbody tr").last).to_contain_text("us")


def test_the_node_tells_what_runs_have_claimed_and_send(page: Page, web: Served, rig: RunsRig) -> None:
    page.goto(f"{web.url}/node")
    expect(page.get_by_text("No run has a GPU or a CPU for itself.")).to_be_visible()
    script = rig.script("import time\nprint('here', flush=True)\ntime.sleep(600)", "long.py")
    rig.variables = {**rig.variables, "CUDA_VISIBLE_DEVICES": "0,1"}
    running = rig.start("run", "--id", "live", "--set", "resources.gpus=1", "--", "python", script)
    try:
        expect(page.locator("main")).to_contain_text("gpu-0 live", timeout=60_000)
        expect(page.get_by_role("region", name="Being sent")).to_contain_text("under way")
        page.get_by_role("region", name="Being sent").get_by_role("link", name="live").click()
        page.wait_for_url("**/runs/live")
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(60)
    assert wait_for(lambda: web.twin("/node")["look"]["claims"] == [], 30)  # pyright: ignore


def test_the_node_tells_of_its_cache(page: Page, web: Served, rig: RunsRig) -> None:
    page.goto(f"{web.url}/node")
    expect(page.locator("main")).to_contain_text(f"{rig.scratch}/cache")
    expect(page.locator("main")).to_contain_text("of 1 GB")
    expect(page.get_by_text("Nothing is mounted.")).to_be_visible()


def test_the_api_is_as_described(web: Served) -> None:
    headers = {"authorization": f"Bearer {web.token}"}
    schema = schemathesis.openapi.from_url(f"{web.url}/api/v1/openapi.json", headers=headers)
    operations = {one.path: one for one in (found.ok() for found in schema.get_all_operations())}
    for path in ("", "data/bucket/some/rows.parquet", "data/bucket/large/"):
        where = "/api/v1/files/{path}" if path else "/api/v1/files"
        case = operations[where].Case(path_parameters={"path": path} if path else {})
        answer = case.call(headers=headers)
        assert answer.status_code == 200
        case.validate_response(answer, headers=headers)
    node = operations["/api/v1/node"].Case()
    node.validate_response(node.call(headers=headers), headers=headers)
