"""Pages of data: classes that filter, what changed between versions, pictures that are kept, arrays and sounds."""

from __future__ import annotations

import io
import math
import re
import shutil
import struct
import tarfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from playwright.sync_api import BrowserContext, Page, expect

from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.web_rig import LOOKS, Console, Served, check, look, served

pytestmark = pytest.mark.server
HOSTILE = "<script>window.hacked=1</script>"
PETS = {"cat": 70, "dog": 40, "frog & toad": 3, "old": 2}
PAGES = ("/data/pets/v2/samples", "/data/pets/v2/samples?class=cat&start=60", "/data/pets/v2/samples?level=1",
         "/data/pets/diff", "/data/pets/diff?from=v1&to=v2&kind=added", "/data/pets/diff?from=v1&to=v2&kind=removed",
         "/data/pets/diff?to=v1", "/data/odd/v1/samples", "/data/pets/v2?report=true",
         "/data/shards/v1/samples", "/data/rows/v1/samples?column=label&class=1")  # fmt: skip


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    """A home with snapshots of pictures in folders, taken before and after some were changed."""
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("data"))
    made.variables = {"HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(made.scratch / "cache")}
    pets = made.work / "pets"
    for kind, count in PETS.items():
        for number in range(count):
            picture(pets / "train" / kind / f"{number:03}.png", (number, 2 * number, 99))
    (pets / "note.txt").write_text("of all")
    made.headrace("cp", "-r", "pets", f"s3://{made.bucket}/pets")
    made.headrace("snapshot", f"s3://{made.bucket}/pets", "--name", "pets")
    odd(made.work / "odd")
    made.headrace("cp", "-r", "odd", f"s3://{made.bucket}/odd")
    made.headrace("snapshot", f"s3://{made.bucket}/odd", "--name", "odd")
    shards(made.work / "shards")
    made.headrace("cp", "-r", "shards", f"s3://{made.bucket}/shards")
    made.headrace("snapshot", f"s3://{made.bucket}/shards", "--name", "shards")
    rows(made.work / "rows")
    made.headrace("cp", "-r", "rows", f"s3://{made.bucket}/rows")
    made.headrace("snapshot", f"s3://{made.bucket}/rows", "--name", "rows")
    yield made
    made.close()


@pytest.fixture(scope="module")
def web(rig: RunsRig) -> Iterator[Served]:
    """Somebody looks at the first version; then the store holds another, which is recorded as the second."""
    with served(rig) as made:
        # Of the first two cats there are small pictures now.
        assert made.get("/picture/pets/v1/1/png").status_code == 200
        assert made.get("/picture/pets/v1/2/png").status_code == 200
        rig.headrace("cache", "evict", "--all")
        assert made.get("/picture/pets/v1/3/png").status_code == 200  # and the third cat itself is in the node's cache
        cats = rig.work / "pets/train/cat"
        for number in range(5):
            picture(cats / f"{number:03}.png", (255, 0, number))
        shutil.rmtree(rig.work / "pets/train/old")
        picture(rig.work / "pets/train/owl/000.png", (1, 2, 3))
        (rig.work / "pets/note.txt").write_text(HOSTILE)
        rig.headrace("rm", "-r", f"s3://{rig.bucket}/pets/train/old")
        rig.headrace("cp", "-r", "pets", f"s3://{rig.bucket}/pets")
        rig.headrace("snapshot", f"s3://{rig.bucket}/pets", "--name", "pets")
        yield made


def picture(path: Path, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (300, 200), colour).save(path)


def odd(folder: Path) -> None:
    """Arrays, sounds, and what says it is one."""
    folder.mkdir()
    np.save(folder / "a.npy", np.linspace(-1, 1, 64 * 48, dtype=np.float32).reshape(64, 48))
    np.save(folder / "b.npy", np.arange(7))
    np.save(folder / "c.npy", np.asarray([object()], object), allow_pickle=True)
    (folder / "d.wav").write_bytes(tone(2.0))
    (folder / "e.mp3").write_text(HOSTILE)
    (folder / "f.mp3").write_bytes(b"ID3\x04\0\0\0\0\0\0" + HOSTILE.encode())
    (folder / "g.wav").write_bytes(tone(100.0, 48_000))


def shards(folder: Path) -> None:
    folder.mkdir()
    for number in range(2):
        with tarfile.open(folder / f"{number}.tar", "w") as tar:
            for sample in range(3):
                for name, data in ((f"{sample}.png", png((sample, 0, 0))), (f"{sample}.txt", b"in a shard")):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


def rows(folder: Path) -> None:
    folder.mkdir()
    images = [png((0, at, 0)) for at in range(5)]
    table = pa.table({"image": images, "label": [0, 1, 1, None, 1], "word": [HOSTILE] * 5})
    pq.write_table(table, folder / "a.parquet")


def png(colour: tuple[int, int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (300, 200), colour).save(out, "PNG")
    return out.getvalue()


def tone(seconds: float, rate: int = 8000) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        second = b"".join(struct.pack("<h", int(20_000 * math.sin(at / 5))) for at in range(rate))
        file.writeframes(second * int(seconds))
    return out.getvalue()


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_every_page_is_accessible_and_fits(blank: Page, web: Served, path: str, width: int, colours: str) -> None:
    look(blank, width, colours)
    blank.goto(web.url + path)
    check(blank)


def test_a_class_filters_the_grid(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/pets/v2/samples")
    classes = page.get_by_role("navigation", name="Classes")
    expect(classes.locator("ol li")).to_have_count(5)
    expect(classes.locator("ol li").first).to_contain_text("cat")
    expect(classes.locator("ol li").first).to_contain_text("70")
    classes.get_by_role("link", name="frog & toad").click()
    assert "class=frog" in page.url
    expect(page.locator(".grid li")).to_have_count(3)
    expect(page.locator(".grid li").first).to_contain_text("train/frog & toad/000")
    expect(page.get_by_text("1 to 3 of 3")).to_be_visible()
    picture = page.get_by_role("img", name="png of train/frog & toad/000")
    assert picture.evaluate("one => one.decode().then(() => [one.naturalWidth, one.naturalHeight])") == [160, 107]
    classes.get_by_role("link", name="(in no folder)").click()
    expect(page.locator(".grid li")).to_have_count(1)
    classes.get_by_role("link", name="All 115 samples").click()
    expect(page.locator(".grid li")).to_have_count(60)


def test_pages_of_a_class_hold_it_all(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/pets/v2/samples?class=cat")
    expect(page.locator(".grid li")).to_have_count(60)
    expect(page.locator(".gone")).to_have_count(0)  # nor is one that was not looked at yet taken for broken
    page.get_by_role("link", name="after →").click()
    expect(page.locator(".grid li")).to_have_count(10)
    expect(page.get_by_text("61 to 70 of 70")).to_be_visible()
    told = web.twin("/data/pets/v1/samples?class=dog&count=200")
    places = [one["place"] for one in told["samples"]]  # pyright: ignore
    assert places == list(range(71, 111)), "the note and the cats come before them"
    assert (told["total"], told["all"]) == (40, 116)


def test_classes_by_an_upper_folder(web: Served) -> None:
    told: Any = web.twin("/data/pets/v1/samples?level=1")
    assert told["classes"]["classes"] == [{"name": "train", "samples": 115}, {"name": ".", "samples": 1}]
    found: Any = web.twin("/data/pets/v1/samples?find=og")
    assert [one["name"] for one in found["classes"]["classes"]] == ["dog", "frog & toad"]
    assert web.twin("/data/pets/v1/samples?class=unicorn")["total"] == 0
    assert web.get("/data/pets/v1/samples?level=-1").status_code == 400


def test_what_changed_is_counted_and_shown_side_by_side(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/pets/v2")
    page.get_by_role("link", name="What changed since the version before").click()
    kinds = page.get_by_role("navigation", name="Kinds of changes")
    expect(kinds).to_contain_text("6 changed")
    expect(kinds).to_contain_text("108 the same")
    expect(page.locator(".grid li")).to_have_count(6)
    for name in ("000", "001", "002"):  # before: a small picture that was made when it was still there
        pair = page.locator(".grid li").filter(has_text=f"train/cat/{name}.png")
        expect(pair.get_by_role("img")).to_have_count(2)
        for one in pair.get_by_role("img").all():
            assert one.evaluate("one => one.decode().then(() => one.naturalWidth)") == 160
    kinds.get_by_role("link", name="1 added").click()
    expect(page.locator(".grid li")).to_contain_text("train/owl/000.png")
    kinds.get_by_role("link", name="2 removed").click()
    expect(page.locator(".grid li")).to_have_count(2)
    assert "kind=removed" in page.url


def test_a_version_that_is_gone_is_said_to_be(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/pets/diff?from=v1&to=v2")
    expect(page.get_by_text("3 of the versions below can no longer be had")).to_be_visible()
    fourth = page.locator(".grid li").filter(has_text="train/cat/003.png")
    expect(fourth).to_contain_text("the store no longer gives this version")
    expect(fourth.get_by_role("img")).to_have_count(1)
    note = page.locator(".grid li").filter(has_text="note.txt")
    expect(note).to_contain_text(HOSTILE)
    assert page.evaluate("window.hacked") is None


def test_the_same_two_versions_and_only_one(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/pets/diff?from=v2&to=v2")
    expect(page.get_by_text("They hold the same objects")).to_be_visible()
    page.goto(f"{web.url}/data/odd/diff")
    expect(page.get_by_text("There is no version before")).to_be_visible()
    told: Any = web.twin("/data/pets/diff?from=odd@v1&to=v1")
    assert told["counts"] == {"changed": 0, "added": 116, "removed": 7, "same": 0}
    assert web.get("/data/pets/diff?from=v9&to=v1").status_code == 404
    assert web.get("/data/pets/diff?kind=odd").status_code == 400


def test_arrays_are_pictures_or_told(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/odd/v1/samples")
    drawn = page.get_by_role("img", name="npy of a")
    assert drawn.evaluate("one => one.decode().then(() => [one.naturalWidth, one.naturalHeight])") == [48, 64]
    expect(page.locator("#S0")).to_contain_text("float32 64 × 48, -1 to 1")
    expect(page.locator("#S1")).to_contain_text("int64 7, 0 to 6")
    expect(page.locator("#S1").get_by_role("img")).to_have_count(0)
    expect(page.locator("#S2").get_by_role("img")).to_have_count(0)
    expect(page.get_by_role("navigation", name="Classes")).to_have_count(0)  # there are no folders
    assert web.get("/picture/odd/v1/2/npy").status_code == 415
    with Image.open(io.BytesIO(web.get("/picture/odd/v1/0/npy").content)) as made:
        grey = np.asarray(made.convert("L"), np.float64)
        assert (grey[0, 0], grey[-1, -1]) == pytest.approx((0, 255), abs=3)


def test_a_sound_is_played(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/odd/v1/samples")
    expect(page.locator("#S3")).to_contain_text("2 s, 8,000 Hz, 1 channel")
    player = page.get_by_label("wav of d")
    length = """one => new Promise((done, failed) => {
        one.addEventListener("loadedmetadata", () => done(one.duration));
        one.addEventListener("error", () => failed(new Error("cannot be played")));
        one.load(); one.preload = "metadata"; one.load();
    })"""
    assert player.evaluate(length) == 2
    assert page.get_by_label("wav of g").evaluate(length) == 100
    shown = page.get_by_role("img", name="waveform of wav of d")
    assert shown.evaluate("one => one.decode().then(() => [one.naturalWidth, one.naturalHeight])") == [160, 80]
    expect(page.locator("#S4 audio")).to_have_count(0)
    expect(page.locator("#S4")).to_contain_text(HOSTILE)


def test_sounds_come_in_stretches_and_sealed(web: Served) -> None:
    whole = web.get("/sound/odd/v1/3/wav")
    assert (whole.status_code, whole.headers["content-type"]) == (200, "audio/wav")
    assert whole.content == tone(2.0)
    some = web.get("/sound/odd/v1/3/wav", range="bytes=10-19")
    assert (some.status_code, some.content) == (206, tone(2.0)[10:20])
    assert some.headers["content-range"] == f"bytes 10-19/{len(tone(2.0))}"
    assert web.get("/sound/odd/v1/3/wav", range="bytes=-4").content == tone(2.0)[-4:]
    assert web.get("/sound/odd/v1/3/wav", range="bytes=99999999-").status_code == 416
    large = web.get("/sound/odd/v1/6/wav", range="bytes=0-")
    assert (large.status_code, len(large.content)) == (206, 4 << 20)
    for path in ("/sound/odd/v1/3/wav", "/sound/odd/v1/5/mp3"):
        headers = web.get(path).headers
        assert headers["content-type"].startswith("audio/")
        assert headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/sound/odd/v1/4/mp3", "/sound/odd/v1/0/npy", "/sound/pets/v1/20/png"])
def test_what_is_no_sound_is_refused(web: Served, path: str) -> None:
    answer = web.get(path)
    assert answer.status_code == 415
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_picture_is_asked_for_once(web: Served) -> None:
    digest = web.twin("/data/pets/v1/samples?count=1")["of"]
    answer = web.get(f"/picture/pets/v1/10/png?of={digest}")
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    again = web.get("/picture/pets/v1/10/png", **{"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["cache-control"] == "private, no-cache"
    other = web.get(f"/picture/pets/v1/10/png?of={'0' * 16}")
    assert other.headers["cache-control"] == "private, no-cache"
    assert web.get("/picture/pets/v1/11/png").headers["etag"] != answer.headers["etag"]


def test_a_picture_that_was_made_asks_no_store(seaweedfs: EmbeddedS3, rig: RunsRig) -> None:
    """Nor does it another server of this node; and what is kept may be deleted at any time."""
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as between:
        other = RunsRig(seaweedfs, rig.scratch / "kept", {}, rig.bucket)
        cache = other.scratch / "cache"
        other.variables = {
            "AWS_ENDPOINT_URL_S3": between.endpoint, "AWS_ENDPOINT_URL": between.endpoint,
            "HEADRACE_CACHE_SIZE": "1GB", "HEADRACE_CACHE_DIR": str(cache),
        }  # fmt: skip

        def asked(web: Served) -> list[str]:
            before = len(between.seen)
            made.append(web.get("/picture/pets/v2/50/png").content)
            return [one.path for one in between.seen[before:] if "/pets/train" in one.path]

        made: list[bytes] = []
        with served(other) as web:
            assert len(asked(web)) == 1
            assert asked(web) == []
        shutil.rmtree(cache / "v1/objects")  # what the node's cache holds of the store: only small pictures are left
        with served(other) as web:
            assert asked(web) == []
            for file in (cache / "web").glob("pictures-*"):
                file.unlink()
            assert web.get("/picture/pets/v2/51/png").status_code == 200
            assert web.get("/picture/pets/v2/51/png").status_code == 200
        (cache / "web/pictures-1.sqlite").write_bytes(b"no database")
        with served(other) as web:
            asked(web)
            assert asked(web) == []
        assert len(set(made)) == 1


def test_what_is_suspicious_comes_by_itself(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/pets/v1?report=true")
    expect(page.get_by_role("heading", name="Suffixes")).to_be_visible(timeout=30_000)
    expect(page.get_by_text(re.compile("objects are copies of others"))).to_be_visible()


def test_what_takes_long_is_done_behind_the_page(seaweedfs: EmbeddedS3, rig: RunsRig, context: BrowserContext) -> None:
    """It says so at once, and goes on by itself."""
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as between:
        other = RunsRig(seaweedfs, rig.scratch / "slow", {}, rig.bucket)
        other.variables = {"AWS_ENDPOINT_URL_S3": between.endpoint, "AWS_ENDPOINT_URL": between.endpoint}
        other.variables |= {"HEADRACE_CACHE_DIR": str(other.scratch / "cache")}
        with served(other) as web:
            between.plan = Plan([Fault(Kind.LATENCY, key="*manifest.parquet", delay_s=5)])
            page = context.new_page()
            page.goto(web.entry)
            page.goto(f"{web.url}/data/pets/v2/samples")
            expect(page.get_by_role("status")).to_contain_text("The index of pets@v2 is being built on this node")
            expect(page.locator(".grid")).to_have_count(0)
            expect(page.locator(".grid li")).to_have_count(60, timeout=30_000)
            page.goto(f"{web.url}/data/pets/diff?from=v1&to=v2")
            expect(page.get_by_role("status")).to_contain_text("pets@v1 and pets@v2 are being compared")
            expect(page.locator(".grid li")).to_have_count(6, timeout=30_000)


def test_without_the_token_no_sound_and_no_picture(web: Served) -> None:
    for path in (*PAGES, "/picture/pets/v1/1/png", "/sound/odd/v1/3/wav", "/picture/pets/v1/object/0"):
        assert httpx.get(web.url + path).status_code == 401


def test_objects_by_their_rows(web: Served) -> None:
    assert web.get("/picture/pets/v1/object/7").headers["content-type"] == "image/jpeg"
    assert web.get("/picture/pets/v1/object/0").status_code == 409, "the note was changed"
    assert web.get("/picture/pets/v1/object/9999").status_code == 404


def test_a_picture_that_cannot_be_had_gives_way_to_words(
    context: BrowserContext, web: Served, console: Console
) -> None:
    console.mean(r"status of 409 .*/picture/pets/v1/")
    page = context.new_page()
    page.goto(web.entry)
    page.goto(f"{web.url}/data/pets/v1/samples?class=cat&count=6")
    expect(page.locator(".gone")).to_have_count(2)
    expect(page.locator(".gone").first).to_contain_text("png of train/cat/003: cannot be shown")
    page.locator(".gone").first.get_by_role("link", name="why").click()
    expect(page.get_by_text("cat/003.png")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "part", "count", "words"), [("shards", "png", 6, "in a shard"), ("rows", "image", 5, HOSTILE)]
)
def test_samples_of_shards_and_tables(page: Page, web: Served, name: str, part: str, count: int, words: str) -> None:
    page.goto(f"{web.url}/data/{name}/v1/samples")
    expect(page.locator(".grid li")).to_have_count(count)
    expect(page.locator(".grid li").last).to_contain_text(words)
    for one in page.locator(".grid img").all():
        one.scroll_into_view_if_needed()
        assert one.evaluate("one => one.decode().then(() => one.naturalWidth)") == 160
    assert web.get(f"/picture/{name}/v1/0/{part}").headers["content-type"] == "image/jpeg"
    answer = web.get(f"/data/{name}/v1/samples?class=x")
    assert (answer.status_code, "nothing tells its classes" in answer.text) == (400, True)
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize(
    ("path", "status"),
    [("/picture/pets/v2/99999999999999999999/png", 404), ("/sound/odd/v1/object/99999999999999999999", 404),
     ("/picture/pets/latest/50/png", 200), ("/data/pets/diff?start=99999999999999999999", 200),
     ("/data/none/diff", 404),
     ("/data/pets/v2/samples?class=cat&start=99999999999999999999&count=-7", 200), ("/data/pets/diff?from=%2e%2e", 400),
     ("/data/pets/v2/samples?level=99999999", 200), ("/data/pets/v2/samples?class=%00", 200)],
)  # fmt: skip
def test_odd_questions_have_answers(web: Served, path: str, status: int) -> None:
    assert web.get(path).status_code == status


def test_a_column_of_a_table_tells_classes(page: Page, web: Served) -> None:
    page.goto(f"{web.url}/data/rows/v1/samples")
    classes = page.get_by_role("navigation", name="Classes")
    expect(classes.get_by_role("link")).to_have_text(["label", "word"])
    classes.get_by_role("link", name="label").click()
    listed = [re.compile(words) for words in (r"1\s+3", r"\(no value\)\s+1", r"0\s+1")]
    expect(classes.locator("ol li")).to_have_text(listed)
    classes.get_by_role("link", name="1", exact=True).click()
    expect(page.locator(".grid li")).to_have_count(3)
    told: Any = web.twin("/data/rows/v1/samples?column=label&class=1")
    assert [one["place"] for one in told["samples"]] == [1, 2, 4]
    assert web.get("/data/rows/v1/samples?column=image").status_code == 400
    assert web.get("/data/pets/v1/samples?column=label").status_code == 400
