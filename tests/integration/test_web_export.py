"""A run as one file: opened by a browser without a network, small whatever the run's size, as safe as the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from headrace.testing.servers import EmbeddedS3
from headrace.web.offline import offline
from tests.runs_rig import RunsRig
from tests.web_rig import LOOKS, Console, check, look

pytestmark = pytest.mark.server
HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
JOB = f"""
    import headrace as hr
    for step in range(1200):
        hr.log({{"loss": float("nan") if step == 77 else 2.0 - step / 1000, {HOSTILE!r}: step}}, step=step)
    for number in range(700):
        print(f"line {{number}}")
    print("\\x1b[31mred\\x1b[0m {HOSTILE} \\u202edesrever </style>")
    raise ValueError("no such luck")
"""
LARGE = """
    import random, sys
    import headrace as hr
    for step in range(600):
        hr.log({f"metric/{number:03}": random.random() for number in range(140)}, step=step)
    print("x" * 3_000_000)
    for number in range(20_000):
        print(f"{number} " + "é" * 1500)
    print("y" * 100_000, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("export"))
    script = made.script(JOB)
    made.headrace("run", "--id", "bad", "--name", "digits", "--tag", "team=vision", "--", "python", script, code=1)
    made.headrace("runs", "note", "bad", f"worth a look {HOSTILE}")
    yield made
    made.close()


@pytest.fixture
def without_network() -> bool:
    return True


@pytest.fixture
def page(context: BrowserContext, console: Console) -> Page:
    """Without a network. Whatever it asks for, but for the file, fails, too."""
    context.on("request", lambda one: console.wrong.append(one.url) if not one.url.startswith("file:") else None)
    return context.new_page()


@pytest.fixture(scope="module")
def file(rig: RunsRig) -> Path:
    told = rig.json("web", "--export", "bad.html", "--run", "digits")
    made = rig.work / "bad.html"
    assert (told["id"], told["file"], told["bytes"]) == ("bad", "bad.html", made.stat().st_size)
    return made


@pytest.mark.parametrize(("width", "colours"), LOOKS)
def test_it_is_read_without_a_network_and_accessible(page: Page, file: Path, width: int, colours: str) -> None:
    look(page, width, colours)
    page.goto(f"file://{file}")
    check(page)
    assert page.evaluate("getComputedStyle(document.querySelector('.top')).display") == "flex", "its styles are in it"


def test_what_it_tells(page: Page, file: Path) -> None:
    page.goto(f"file://{file}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("digits")
    expect(page.locator("#overview .verdict")).to_contain_text("failed")
    expect(page.locator("#overview .note")).to_have_text(f"worth a look {HOSTILE}")
    expect(page.locator("#overview .tag")).to_have_text("team=vision")
    expect(page.locator("#metrics").get_by_role("img", name="loss", exact=True).locator(".odd")).to_have_count(1)
    expect(page.locator("#metrics").get_by_text(HOSTILE)).to_be_visible()
    expect(page.locator("#stdout .lines li").last).to_contain_text(f"red {HOSTILE} \\u202edesrever </style>")
    expect(page.locator("#stdout .lines li").first).to_contain_text("line 201")
    expect(page.locator("#stderr .lines .bad").last).to_contain_text("ValueError: no such luck")
    expect(page.locator("#stderr .stale")).to_contain_text("Traceback")
    expect(page.locator("#code")).to_contain_text("python train.py")
    expect(page.get_by_text("Standard output: the last 500 of 701 lines are here")).to_be_visible()


def test_it_needs_nothing_from_elsewhere(page: Page, file: Path) -> None:
    text = file.read_text()
    assert not re.search(r"<(script|link|iframe|img|form|input|button)\b|javascript:|@import|url\(", text)
    assert all(target.startswith("#") for target in re.findall(r"\s(?:href|src)=\"([^\"]*)\"", text))
    page.goto(f"file://{file}")
    targets = page.evaluate("[...document.querySelectorAll('a')].map(link => link.getAttribute('href').slice(1))")
    assert targets
    assert all(page.evaluate("name => document.getElementById(name) !== null", name) for name in set(targets))
    page.locator("header").get_by_role("link", name="Why").click()
    expect(page.locator("#why")).to_be_in_viewport()


def test_it_is_small_whatever_the_runs_size(page: Page, rig: RunsRig) -> None:
    script = rig.script(LARGE, "large.py")
    rig.headrace("run", "-q", "--id", "large", "--", "python", script, timeout=170)
    told = rig.json("web", "--export", "large.html")
    file = rig.work / "large.html"
    assert told["id"] == "large"
    assert file.stat().st_size <= 2_000_000
    said = " ".join(told["left_out"])
    assert re.search(r"Metrics: the first 100 of 140 metrics are here", said)
    assert re.search(r"Standard output: the last \d+ of 20,0\d\d lines are here", said)
    page.goto(f"file://{file}")
    for text in told["left_out"]:
        expect(page.get_by_text(text)).to_be_visible()
    expect(page.locator("#stdout .lines li").last).to_contain_text("19999")
    expect(page.locator("#stderr .lines li").first).to_contain_text(re.compile(r"\d\d,\d{3} characters more"))
    expect(page.locator("#metrics figure")).to_have_count(100)


def test_what_cannot_be_exported_says_so_and_leaves_no_file(rig: RunsRig) -> None:
    assert "no such run" in rig.headrace("web", "--export", "none.html", "--run", "none", code=3).stderr
    assert "--export" in rig.headrace("web", "--run", "bad", code=2).stderr
    rig.headrace("web", "--export", "nowhere/bad.html", "--run", "bad", code=3)
    (rig.work / "folder.html").mkdir()
    rig.headrace("web", "--export", "folder.html", "--run", "bad", code=1)
    assert [one.name for one in rig.work.iterdir() if one.name.startswith((".headrace", "none"))] == []


@pytest.mark.parametrize(
    ("html", "kept"),
    [
        ('<a href="/runs/x/log?stream=stdout">the <b>log</b></a>', '<a href="#log">the <b>log</b></a>'),
        ('<a href="/data">d</a><a href="https://x.example">e</a><a>f</a>', "def"),
        ('<a class="tag" href="/runs?tag=x">x</a>', '<span class="tag">x</span>'),
        ('<a rel="next" href="?start=2">after</a>b', "b"),
        ('<form><label>a<input name="b"></label></form>c<button data-do="x">d</button>', "c"),
        ("&lt;script&gt;&#x27;&amp;amp;", "&lt;script&gt;&#x27;&amp;amp;"),
        ('<h2 id="x" data-poll="5">t</h2><p title="&quot;&lt;">u</p>', '<h3>t</h3><p title="&quot;&lt;">u</p>'),
        ('<svg viewBox="0 0 1 1"><rect x="1"/></svg>', '<svg viewbox="0 0 1 1"><rect x="1"/></svg>'),
    ],
)
def test_what_needs_a_server_is_taken_out(html: str, kept: str) -> None:
    assert offline(html, {"/runs/x/log": "log"}) == kept
