"""What notebooks show: of an untrusted one too, whatever names and samples hold."""

from __future__ import annotations

import base64
import io
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import headrace as hr
from headrace.base.errors import InputError, NotFoundError
from headrace.base.figures import Figures
from headrace.base.settings import Settings
from headrace.base.verdict import judge
from headrace.loader.pipeline.stats import Stats
from headrace.loader.shown.showing import shown_part
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.tracking.points import Point, table
from headrace.tracking.record import RunRecord, Status
from headrace.tracking.recorded import RecordedRun
from headrace.tracking.runs import Runs

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\u202e"


class Seen(HTMLParser):
    """The tags of a text, the sources of its pictures, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        self.sources += [value or "" for name, value in attrs if name == "src"]

    def handle_data(self, data: str) -> None:
        self.words += data


def seen(shown: Any) -> Seen:
    """Only what an untrusted notebook keeps, and nothing from elsewhere."""
    found = Seen(shown._repr_html_())
    assert found.tags <= {"div", "strong", "table", "tr", "th", "td", "img", "tbody"}
    assert all(source.startswith("data:image/") for source in found.sources)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(5):
        Image.new("RGB", (300, 200), (number, 0, 0)).save(tmp_path / f"{number}.png")
        (tmp_path / f"{number}.txt").write_text(HOSTILE if number == 1 else f"note {number}")
    (tmp_path / "2.png").write_bytes(b"no picture")
    return tmp_path


def test_samples_are_pictures_and_text(folder: Path) -> None:
    grid = hr.Dataset.open(folder).show(4)
    found = seen(grid)
    assert len(found.sources) == 3
    kind, _, data = found.sources[0].partition(";base64,")
    with Image.open(io.BytesIO(base64.b64decode(data))) as made:
        assert (kind, made.format, made.size) == ("data:image/jpeg", "JPEG", (160, 107))
    assert "note 3" in found.words
    assert "alert(1)" in found.words
    assert "\u202e" not in found.words
    assert re.fullmatch(r"0  png: picture \(\d+ B\)  txt: note 0 \(6 B\)", repr(grid).splitlines()[0])
    assert len(hr.Dataset.open(folder).show(100, start=3).samples) == 2


def test_decoded_pictures_are_shown_too(folder: Path) -> None:
    (folder / "2.png").unlink()
    (folder / "2.txt").unlink()
    assert len(seen(hr.Dataset.open(folder).map(hr.decode.image()).show()).sources) == 4


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [("png", b"..", "image"), ("0.jpg", memoryview(b""), "image"), ("txt", b"words", "text"), ("cls", b"7", "text"),
     ("bin", bytes(range(256)), "bytes"), ("x", np.zeros((3, 4), np.float32), "array"), ("label", 7, "value"),
     ("n", np.float32(0.5), "value"), ("json", "é".encode() * 5000, "text"),
     ("late", b"a" * 7999 + "é".encode(), "text")],
)  # fmt: skip
def test_what_a_part_is(name: str, value: Any, kind: str) -> None:
    assert shown_part(name, value).kind == kind


def test_a_dataset_a_verdict_and_figures(folder: Path) -> None:
    ds = hr.Dataset.open(folder).shuffle(seed=1).batch(2)
    assert "5" in seen(ds).words
    loader = hr.Dataset.open(folder).loader()
    list(loader)
    assert "samples" in seen(loader.stats()).words
    assert "samples" in seen(Stats()).words
    waits = {"loader.wait_s": 9, "loader.wait_store_s": 9, "loader.own_s": 1}
    found = seen(judge(Figures({"loader.batches": 100, "loader.epochs": 1, **waits})))
    assert "store" in found.words.lower()


def test_a_batch_is_shown_by_columns_and_samples(folder: Path) -> None:
    (folder / "2.png").unlink()
    (folder / "2.txt").unlink()
    (batch,) = hr.Dataset.open(folder).map(hr.decode.image()).batch(4)
    assert type(batch) is dict, "others look for exactly that"
    shown = hr.show(batch, 3)
    found = seen(shown)
    assert len(found.sources) == 3
    assert "uint8 4 × 200 × 300 × 3, 0 to 4" in found.words
    assert "the first 3 samples of 4" in found.words
    assert "alert(1)" in found.words
    assert "\u202e" not in found.words
    lines = repr(shown).splitlines()
    assert lines[0] == "4 samples"
    assert "png: uint8 4 × 200 × 300 × 3, 0 to 4" in lines
    assert "txt: list of memoryview" in lines
    (rows,) = hr.Dataset.open(folder).batch(9)
    assert len(seen(hr.show(rows)).sources) == 4


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((np.zeros((2, 16, 16)), np.asarray([3, 4])), ["float64 2 × 16 × 16, 0 to 0", "int64 2, 3 to 4"]),
        ({"x": {"y": [1, 2]}, "__key__": ["one", "two"]}, ["x.y", "list of int", "two"]),
        (pa.table({"word": ["good", "bad"], "n": [1, 2]}), ["word", "string", "good", "int64"]),
        ([{"a": "first"}, {"a": "second"}], ["first", "second"]),
        ({"__key__": "alone", "txt": b"words"}, ["alone", "words"]),
    ],
    ids=["a tuple", "dicts in a dict", "a table", "samples", "a sample"],
)
def test_whatever_a_loop_gets_is_shown(batch: Any, words: list[str]) -> None:
    shown = hr.show(batch)
    for one in words:
        assert one in seen(shown).words
        assert one in repr(shown)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int64", "bool"])
def test_tensors_of_torch_are_shown(kind: str) -> None:
    torch = pytest.importorskip("torch")
    images = torch.ones((3, 3, 16, 16), dtype=getattr(torch, kind))
    shown = hr.show({"image": images, "label": torch.arange(3)})
    assert f"torch.{kind} 3 × 3 × 16 × 16 on cpu" in repr(shown)
    assert len(seen(shown).sources) == 3


@pytest.mark.parametrize("batch", [7, "text", {}, {"a": [1], "b": [1, 2]}, {"a": 3}, ["x", "y"], np.zeros(3)])
def test_what_is_no_batch_is_refused(batch: Any) -> None:
    with pytest.raises(InputError):
        hr.show(batch)


def test_a_listing_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below/x").write_text("x")
    (tmp_path / HOSTILE.replace("/", "-")).write_text("abc")
    for number in range(300):
        (tmp_path / f"z{number:03}").write_bytes(b"")
    listing = Namespace(Settings()).list(tmp_path)
    assert isinstance(listing, list)
    assert [one.name for one in listing[:1]] == [HOSTILE.replace("/", "-")]
    found = seen(listing)
    assert "302 entries" in found.words
    assert "below/" in found.words
    assert "3 B" in found.words
    assert "and 102 more" in found.words
    assert "\u202e" not in found.words + repr(listing)
    assert len(repr(listing).splitlines()) == 201
    assert pickle.loads(pickle.dumps(listing)) == listing == list(listing)
    assert repr(type(listing)()) == "[]"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedRun:
    """One that is over and has logged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_HOME", f"file://{tmp_path}/home")
    settings = Settings.load()
    made = Runs(Home.of(Namespace(settings), settings)).run("20260101-000000-digits-0001")
    made.create(RunRecord(made.id, "digits", "2026-01-01T00:00:00.000Z", ("python", HOSTILE), "/", "host", "ann", "0"))
    made.put_status(Status(0, "starting", "2026-01-01T00:00:00.000Z"))
    made.put_status(Status(1, "finished", "2026-01-01T00:01:00.000Z"))
    points = [Point(1_767_225_600_000_000 + step, "loss", 1 / (step + 1), step) for step in range(900)]
    points += [Point(1_767_225_600_000_000 + step, HOSTILE, 2.0, step) for step in range(900)]
    out = pa.BufferOutputStream()
    pq.write_table(table(points).replace_schema_metadata({"headrace.format": "1"}), out, write_page_checksum=True)
    made.store.put(f"{made.prefix}metrics/00000000.parquet", out.getvalue())
    return hr.run("digits")


def test_a_run(run: RecordedRun) -> None:
    found = seen(run)
    assert "finished" in found.words
    assert "alert(1)" in found.words
    assert [one.id for one in hr.runs("dig*", states=("finished",))] == [run.id]
    assert hr.runs(states=("failed",)) == []
    assert run.record.user == "ann"
    assert run.look().state == "finished"
    assert run.series("loss")["loss"].last() == pytest.approx(1 / 900)
    assert run.metrics().num_rows == 1800
    assert list(run.logs()) == []
    assert run.why().bound


def test_a_plot(run: RecordedRun) -> None:
    chart = run.plot("loss", log=True)
    root = ElementTree.fromstring(chart.svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len([one for one in root if one.tag.endswith("polyline")]) == 1
    assert "points=" in chart.svg
    found = seen(run.plot())
    assert found.sources[0].startswith("data:image/svg+xml;base64,")
    drawn = base64.b64decode(found.sources[0].partition(",")[2]).decode()
    tags = {one.tag.partition("}")[2] for one in ElementTree.fromstring(drawn).iter()}
    assert tags <= {"svg", "style", "path", "text", "polygon", "polyline", "circle", "title"}
    with pytest.raises(NotFoundError, match="no such metrics"):
        run.plot("nothing")
