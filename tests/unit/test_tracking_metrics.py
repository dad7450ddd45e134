"""``hr.log``, segments and their reading: every point once, and nothing that a training loop would notice."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from headrace.base import reporting
from headrace.base.errors import CorruptError, InputError, UnsupportedError
from headrace.store import Store, open_store
from headrace.tracking.plot import draw
from headrace.tracking.points import SCHEMA
from headrace.tracking.reading import Series, read_metrics, series
from headrace.tracking.recorder import Recorder
from headrace.tracking.segments import Merger, Point, table
from headrace.tracking.spool import encode
from tests.metrics_kit import ROOT, merged, ordered, ran, rows


@pytest.fixture(autouse=True)
def _nobody_hands_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader that an earlier test of this process has left would be told of with what is logged here."""
    monkeypatch.setattr(reporting, "_latest", None)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def recorder(spool: Path) -> Iterator[Recorder]:
    made = Recorder(str(spool))
    yield made
    made.close()


def collected(spool: Path) -> list[Any]:
    folder = spool.parent / "segments"
    Merger(str(spool), str(folder)).collect()
    return merged(folder)


# hr.log


def test_what_a_process_logs_is_there_when_it_has_ended(spool: Path):
    before = time.time_ns() // 1000
    ran(
        "import headrace as hr, math\n"
        "hr.log({'loss': 0.5, 'epoch': 3}, step=17)\n"
        "hr.log({'loss': math.nan, 'lr': -math.inf})\n",
        HEADRACE_SPOOL=str(spool), RANK="2",
    )  # fmt: skip
    (path,) = spool.iterdir()
    assert path.name.startswith("metrics-2-")
    assert collected(spool) == [
        ("epoch", 17, 2, "3.0"), ("loss", None, 2, "nan"), ("loss", 17, 2, "0.5"), ("lr", None, 2, "-inf"),
    ]  # fmt: skip
    found = pq.ParquetFile(spool.parent / "segments/00000000.parquet").read()
    assert found.schema.equals(SCHEMA)
    times = found.column("time").cast("int64").to_pylist()
    assert all(before <= time_us <= time.time_ns() // 1000 for time_us in times)


def test_it_is_there_within_seconds_while_the_process_goes_on(recorder: Recorder, spool: Path):
    recorder.add({"loss": 0.5}, 1)
    deadline = time.monotonic() + 10
    while not (found := list(spool.glob("*.points"))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(found) == 1


def test_threads_forks_and_children_log_each_point_once(spool: Path):
    ran(
        """
import multiprocessing, os, sys, threading, time
import headrace as hr

def child(number):
    for step in range(100):
        hr.log({f"child-{number}": step}, step)

if __name__ == "__main__":
    hr.log({"parent": 0}, 0)
    import headrace.tracking.log as module
    threads = [threading.Thread(target=child, args=(f"thread-{n}",)) for n in range(4)]
    [one.start() for one in threads]
    children = [multiprocessing.get_context(how).Process(target=child, args=(how,)) for how in ("fork",)]
    [one.start() for one in children]
    for n in range(5):
        if (pid := os.fork()) == 0:
            child(f"raw-{n}")
            if n % 2:
                module.flush()
                os._exit(0)
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    [one.join() for one in threads + children]
    assert [one.exitcode for one in children] == [0]
    hr.log({"parent": 1}, 1)
""",
        HEADRACE_SPOOL=str(spool),
    )
    names = ["fork", *(f"thread-{n}" for n in range(4)), *(f"raw-{n}" for n in range(5))]
    wanted = [(f"child-{name}", step, 0, f"{float(step)!r}") for name in names for step in range(100)]
    assert collected(spool) == ordered([("parent", 0, 0, "0.0"), ("parent", 1, 0, "1.0"), *wanted])


def test_forks_while_files_are_written_hang_nobody(spool: Path):
    ended = ran(
        """
import os, sys, threading
import headrace as hr
from headrace.tracking import log as module
over = threading.Event()

def write():
    while not over.is_set():
        hr.log({"a": 1})
        module.flush()

thread = threading.Thread(target=write)
thread.start()
for number in range(30):
    if (pid := os.fork()) == 0:
        hr.log({"b": number})
        module.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
over.set()
thread.join()
""",
        HEADRACE_SPOOL=str(spool),
    )
    assert not ended.stderr
    found = collected(spool)
    assert [row[3] for row in found if row[0] == "b"] == sorted(repr(float(number)) for number in range(30))


def test_outside_of_a_run_nothing_is_kept_and_that_is_said_once(tmp_path: Path):
    ended = ran(
        "import logging, os; logging.basicConfig(level=logging.INFO)\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "import headrace as hr\n"
        "for step in range(3): hr.log({'loss': step})\n"
        "import sys; assert 'pyarrow' not in sys.modules\n"
    )
    assert ended.stderr.count("HEADRACE_SPOOL is not set") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_job_logs_where_nothing_is_installed_but_python(spool: Path):
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n"
        "import headrace as hr; hr.log({'loss': 1.0, 'count': 2}, 1)\n"
        "try: import numpy\n"
        "except ImportError: print('bare')\n"
    )
    variables = {**os.environ, "HEADRACE_SPOOL": str(spool)}
    bare = [sys.executable, "-S", "-c", code]
    ended = subprocess.run(bare, env=variables, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("bare\n", "")
    assert collected(spool) == [("count", 1, 0, "2.0"), ("loss", 1, 0, "1.0")]


def test_neither_trainer_nor_runner_pays_for_pandas(spool: Path):
    ran(
        "import headrace as hr, sys\n"
        "hr.log({'loss': 1.0, 'count': 2}, 1)\n"
        "from headrace.tracking import log; log.flush()\n"
        "assert 'pyarrow' not in sys.modules and 'numpy' not in sys.modules, 'imported in the training loop'\n"
        "from headrace.tracking import segments\n"
        "segments.Merger(sys.argv[1], sys.argv[2]).collect()\n"
        "from headrace.tracking.reading import read_metrics, series; from headrace.store import open_store\n"
        "assert len(series(read_metrics(open_store('file://' + sys.argv[2]), '', names=['l*']).table)) == 1\n"
        "assert 'pandas' not in sys.modules",
        str(spool), str(spool.parent / "segments"), HEADRACE_SPOOL=str(spool),
    )  # fmt: skip


def test_scalars_of_frameworks_are_what_they_were_when_they_were_logged(recorder: Recorder, spool: Path):
    tensor, array = torch.tensor(1.0, requires_grad=True), np.array(2.0)
    values: dict[str, Any] = {"t": tensor, "a": array, "f": np.float32(0.5), "i": np.int64(4), "b": True, "one": [3.0]}
    values["one"] = torch.tensor([3.0])
    recorder.add(values, np.int64(5))  # pyright: ignore[reportArgumentType]
    recorder.add({"float": 1}, 6.0)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        tensor += 10
    array += 10
    values.clear()
    recorder.flush()
    assert collected(spool) == [
        ("a", 5, 0, "2.0"), ("b", 5, 0, "1.0"), ("f", 5, 0, "0.5"), ("float", 6, 0, "1.0"), ("i", 5, 0, "4.0"),
        ("one", 5, 0, "3.0"), ("t", 5, 0, "1.0"),
    ]  # fmt: skip


def test_a_device_is_waited_for_by_the_thread_that_writes(recorder: Recorder, spool: Path):
    class Array:
        """As JAX's: it never changes, and reading it waits."""

        ready = threading.Event()

        def block_until_ready(self) -> Array:
            raise AssertionError

        def __float__(self) -> float:
            assert self.ready.wait(10)
            return 7.0

    recorder.add({"slow": Array(), "quick": 1.0}, 1)  # pyright: ignore[reportArgumentType]
    Array.ready.set()
    recorder.flush()
    assert collected(spool) == [("quick", 1, 0, "1.0"), ("slow", 1, 0, "7.0")]


def test_what_is_no_number_is_left_out_and_told_once(
    recorder: Recorder, spool: Path, caplog: pytest.LogCaptureFixture
):
    for wrong in ("0.3", None, [1, 2], 10**400, torch.zeros(2), 1j, np.zeros(3), {"a": 1}):
        recorder.add({"wrong": wrong, "right": 1.0}, 1)  # pyright: ignore[reportArgumentType]
    recorder.add({"odd step": 1.0}, "seven")  # pyright: ignore[reportArgumentType]
    recorder.add({"huge step": 1.0}, 1 << 70)
    recorder.add({"half step": 1.0}, 0.5)  # pyright: ignore[reportArgumentType]
    recorder.add({"lone \ud800": 1.0, 5: 2.0}, None)  # pyright: ignore[reportArgumentType]
    recorder.add([("a", 1)], 1)  # pyright: ignore[reportArgumentType]
    recorder.flush()
    recorder.add({"wrong": "again"}, 1)  # pyright: ignore[reportArgumentType]
    recorder.flush()
    assert collected(spool) == ordered([
        *[("right", 1, 0, "1.0")] * 8, ("odd step", None, 0, "1.0"), ("huge step", None, 0, "1.0"),
        ("half step", None, 0, "1.0"), ("lone ?", None, 0, "1.0"), ("5", None, 0, "2.0"),
    ])  # fmt: skip
    told = [record.message for record in caplog.records]
    assert len([text for text in told if "leaves out 'wrong'" in text]) == 1
    assert len(told) == 2, told


def test_memory_is_bounded_and_what_is_dropped_is_counted(spool: Path, caplog: pytest.LogCaptureFixture):
    away = spool.parent / "away"
    spool.rename(away)
    recorder = Recorder(str(spool), most=100)
    for step in range(150):
        recorder.add({"loss": 0.0}, step)
        if step % 30 == 0:
            recorder.flush()  # into a folder that is not there
    assert not spool.exists()
    away.rename(spool)
    recorder.close()
    found = collected(spool)
    assert [row for row in found if row[0] == "loss"] == [("loss", step, 0, "0.0") for step in range(100)]
    assert ("headrace/dropped", None, 0, "50.0") in found
    told = [record.message for record in caplog.records]
    assert len([text for text in told if "waits in memory" in text]) == 1
    assert len([text for text in told if "was dropped" in text]) == 1


def test_a_call_waits_for_nothing(recorder: Recorder):
    """50,000 calls a second are promised; here there is room for other work on the machine."""
    recorder.add({"a": 1.0, "b": 2.0}, 0)
    best = math.inf
    with recorder.writing:  # as while a disk hangs
        for _ in range(5):
            began = time.perf_counter()
            thread = threading.Thread(target=lambda: [recorder.add({"a": 1.0, "b": 2.0}, n) for n in range(5_000)])
            thread.start()
            thread.join(10)
            assert not thread.is_alive()
            best = min(best, time.perf_counter() - began)
    assert best < 5_000 / 50_000


# Segments


_NUMBERS = itertools.count()


def spooled(spool: Path, *points: Point, name: str | None = None) -> Path:
    """One file as `hr.log` makes them."""
    path = spool / (name or f"metrics-0-1-1-{next(_NUMBERS)}.points")
    times, names, values, steps, ranks = zip(*points, strict=True)
    assert len(set(ranks)) == 1
    path.write_bytes(encode(ranks[0], times, steps, names, values))
    return path


def point(number: int, name: str = "loss", rank: int = 0) -> Point:
    return Point(1_000_000 * number, name, float(number), number, rank)


def test_a_segment_holds_what_is_there_and_no_data_makes_none(spool: Path, tmp_path: Path):
    segments = tmp_path / "segments"
    merger = Merger(str(spool), str(segments))
    assert merger.collect() == 0
    assert list(segments.iterdir()) == []
    spooled(spool, point(1), point(3))
    spooled(spool, point(2, "other"))
    assert merger.collect(table([point(0, "sampled", 4)])) == 4
    assert [path.name for path in segments.iterdir()] == ["00000000.parquet"]
    assert list(spool.iterdir()) == []
    file = pq.ParquetFile(segments / "00000000.parquet")
    assert file.metadata.metadata[b"headrace.format"] == b"1"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    found = file.read()
    assert found.column("step").to_pylist() == [0, 1, 2, 3], "in the order of their times"
    assert (merger.collect(), merger.collect(table([]))) == (0, 0)
    spooled(spool, point(4))
    assert Merger(str(spool), str(segments)).collect() == 1
    assert sorted(path.name for path in segments.iterdir()) == ["00000000.parquet", "00000001.parquet"]
    assert Merger(str(tmp_path / "none"), str(segments)).collect() == 0
    with pytest.raises(InputError):
        merger.collect(pa.table({"a": [1]}))


def test_what_is_torn_or_foreign_is_set_aside_and_told(
    spool: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    whole = spooled(spool, *(point(n) for n in range(1000))).read_bytes()
    bad = {
        "torn-1.points": whole[: len(whole) // 2], "torn-2.points": whole[:-1], "empty-3.points": b"",
        "noise.points": os.urandom(5000), "holes-4.points": whole[:400] + bytes(200) + whole[600:],
    }  # fmt: skip
    for name, body in bad.items():
        (spool / name).write_bytes(body)
    one = spooled(spool, point(1), name="one").read_bytes()[:-4]
    lies = {
        "later": one.replace(b"points 1", b"points 2"), "longer": one + bytes(8),
        "code": one[:-12] + b"\x09" + one[-11:],
        "rows": one.replace(b'"rows": 1', b'"rows":-1'), "header": one.replace(b'"names"', b'"named"'),
    }  # fmt: skip
    assert one not in lies.values()
    for name, body in lies.items():
        (spool / f"{name}.points").write_bytes(body + zlib.crc32(body).to_bytes(4, sys.byteorder))
    (spool / "one").unlink()
    os.mkfifo(spool / "pipe.points")
    (spool / "folder.points").mkdir()
    (spool / "link.points").symlink_to("/etc/passwd")
    (spool / "metrics-0-1-1-9.points.tmp").write_bytes(whole[:100])
    with open(spool / "huge.points", "wb") as file:
        file.truncate(1 << 40)
    merger = Merger(str(spool), str(tmp_path / "segments"))
    assert merger.collect() == 1000
    left = {path.name for path in spool.iterdir()}
    aside = {*bad, *(f"{name}.points" for name in lies), "pipe.points", "folder.points", "link.points", "huge.points"}
    assert left == {f"{name}.bad" for name in aside} | {"metrics-0-1-1-9.points.tmp"}
    assert len(caplog.records) == len(aside)
    assert merger.collect() == 0
    assert len(caplog.records) == len(aside)


def test_a_crash_before_the_spool_is_cleared_doubles_nothing(spool: Path, tmp_path: Path):
    segments = str(tmp_path / "segments")
    for number in range(5):
        spooled(spool, point(number))
    spooled(spool, point(5), name="no dash.points")
    spooled(spool, point(6), name="-.points")
    shutil.copytree(spool, tmp_path / "before")
    assert Merger(str(spool), segments).collect(note="so far") == 7
    for path in (tmp_path / "before").iterdir():
        shutil.copy(path, spool)
    spooled(spool, point(7), name="metrics-0-1-2-1.points")
    (tmp_path / "segments/00000009.parquet.tmp").write_bytes(b"torn")
    again = Merger(str(spool), segments)
    assert again.note == "so far"
    assert [path.name for path in spool.iterdir()] == ["metrics-0-1-2-1.points"]
    assert again.collect() == 1
    assert merged(tmp_path / "segments") == [("loss", n, 0, f"{float(n)!r}") for n in range(8)]
    assert {path.suffix for path in (tmp_path / "segments").iterdir()} == {".parquet"}


def test_a_large_backlog_makes_several_segments(spool: Path, tmp_path: Path):
    first = spooled(spool, *(point(n) for n in range(15_000)))
    most = first.stat().st_size
    for number in range(59):
        shutil.copy(first, spool / f"metrics-0-1-2-{number}.points")
    merger = Merger(str(spool), str(tmp_path / "segments"))
    assert merger.collect(table([point(7, "extra")])) == 60 * 15_000 + 1
    count = len(list((tmp_path / "segments").iterdir()))
    assert 1 < count == math.ceil(60 / ((16 << 20) // most))
    assert read_metrics(open_store(tmp_path.as_uri()), "segments/").table.num_rows == 60 * 15_000 + 1


def test_a_damaged_last_segment_is_told_and_passed_over(
    spool: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    spooled(spool, point(1))
    Merger(str(spool), str(tmp_path / "segments")).collect()
    (tmp_path / "segments/00000000.parquet").write_bytes(b"PAR1 no more PAR1")
    spooled(spool, point(2))
    assert Merger(str(spool), str(tmp_path / "segments")).collect() == 1
    assert (tmp_path / "segments/00000001.parquet").exists()
    assert "damaged" in caplog.text


# Reading


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "bucket").mkdir()
    return open_store((tmp_path / "bucket").as_uri())


PREFIX = "runs/one/metrics/"


@pytest.fixture
def merger(spool: Path, tmp_path: Path) -> Merger:
    return Merger(str(spool), str(tmp_path / "bucket" / PREFIX))


def test_segments_are_read_in_their_order_and_on_from_there(store: Store, merger: Merger):
    for number in range(20):
        merger.collect(table([point(20 - number), point(number, "train/acc")]))
    found = read_metrics(store, PREFIX)
    assert (found.last, found.missing) == (19, ())
    pairs = zip(found.table["name"].to_pylist(), found.table["step"].to_pylist(), strict=True)
    assert [step for name, step in pairs if name == "loss"] == [20 - number for number in range(20)]
    assert read_metrics(store, PREFIX, after=19) == found.__class__(found.table.slice(0, 0), 19)
    merger.collect(table([point(50)]))
    later = read_metrics(store, PREFIX, after=found.last)
    assert (rows(later.table), later.last) == ([("loss", 50, 0, "50.0")], 20)
    assert set(read_metrics(store, PREFIX, names=["train/*"]).table["name"].to_pylist()) == {"train/acc"}
    assert set(read_metrics(store, PREFIX, names=["loss", "x*"]).table["name"].to_pylist()) == {"loss"}
    assert read_metrics(store, PREFIX, names=["no"]).table.num_rows == 0
    nothing = read_metrics(store, "runs/two/metrics/")
    assert (nothing.table.num_rows, nothing.last, series(nothing.table)) == (0, -1, {})


def test_a_segment_that_comes_late_is_not_lost(store: Store, merger: Merger, tmp_path: Path):
    for number in range(5):
        merger.collect(table([point(number)]))
    folder = tmp_path / "bucket" / PREFIX
    for number in (0, 2):
        (folder / f"{number:08d}.parquet").rename(tmp_path / f"{number:08d}.parquet")
    first = read_metrics(store, PREFIX)
    assert (first.last, first.missing) == (4, (0, 2))
    (tmp_path / "00000002.parquet").rename(folder / "00000002.parquet")
    merger.collect(table([point(5)]))
    second = read_metrics(store, PREFIX, after=first.last, again=first.missing)
    assert (second.last, second.missing) == (5, (0,))
    assert [row[1] for row in rows(second.table)] == [2, 5]


def test_a_damaged_segment_is_named(store: Store, merger: Merger, tmp_path: Path):
    merger.collect(table([point(n) for n in range(5000)]))
    path = tmp_path / "bucket" / PREFIX / "00000000.parquet"
    whole = path.read_bytes()
    for body in (b"", whole[:-20], whole[: len(whole) // 2], whole[:2000] + b"damage" + whole[2006:]):
        path.write_bytes(body)
        with pytest.raises(CorruptError, match=f"{PREFIX}00000000.parquet"):
            read_metrics(store, PREFIX)
    pq.write_table(table([point(1)]), path)  # somebody's, but no segment
    with pytest.raises(CorruptError, match="does not say"):
        read_metrics(store, PREFIX)
    told = {b"headrace.format": b"1"}
    pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(told), path)
    with pytest.raises(CorruptError):
        read_metrics(store, PREFIX)


def test_a_segment_of_a_later_version_is_refused(store: Store, tmp_path: Path):
    path = tmp_path / "bucket" / PREFIX / "00000000.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"new": [1]}).replace_schema_metadata({"headrace.format": "2"}), path)
    with pytest.raises(UnsupportedError) as caught:
        read_metrics(store, PREFIX)
    assert caught.value.hint == "update headrace"


def test_series():
    found = series(
        table([
            Point(3, "loss", 1.0, 2, 1), Point(2, "loss", 5.0, 1, 1), Point(9, "loss", 0.0, 0, 3),
            Point(1, "loss", math.nan, 2, 1), Point(8, "loss", 7.0, None, 1), Point(5, "acc", 0.25, None, 3),
            Point(4, "acc", 0.75, None, 3),
        ])
    )  # fmt: skip
    assert list(found) == ["acc", "loss"]
    loss = found["loss"]
    assert loss.steps.tolist()[:3] == [1, 2, 2]
    assert math.isnan(loss.steps[3])
    assert loss.times.astype(np.int64).tolist() == [2, 1, 3, 8]
    assert [repr(value) for value in loss.values.tolist()] == ["5.0", "nan", "1.0", "7.0"]
    assert (loss.last(), loss.min, loss.max) == (7.0, 1.0, 7.0)
    assert found["acc"].values.tolist() == [0.75, 0.25], "by time, where there is no step"
    assert series(table([Point(3, "loss", 1.0, 2, 1)]), rank=0) == {}
    third = series(table([Point(3, "loss", 1.0, 2, 1), Point(3, "loss", 2.0, 2, 3)]), rank=3)
    assert third["loss"].last() == 2.0
    only = series(table([Point(1, "a", math.nan)]))["a"]
    assert math.isnan(only.min)
    assert math.isnan(only.max)


def test_series_of_a_slice():
    """Arrow's columns may begin in the middle of their buffers."""
    points = [Point(n, "ab"[n % 2], float(n), n if n % 3 else None, 0) for n in range(40)]
    whole, part = table(points), series(table(points).slice(11, 17))
    assert part["a"].values.tolist() == [float(n) for n in (14, 16, 20, 22, 26, 12, 18, 24)]
    assert sum(len(one.values) for one in part.values()) == 17
    assert len(series(whole)["a"].values) == 20


# Plots


def line(values: list[float], steps: list[float] | None = None) -> Series:
    count = len(values)
    times = (np.arange(count) * 500_000).astype("datetime64[us]")
    return Series("x", times, np.array(steps or range(count), np.float64), np.array(values, np.float64))


def cells(picture: str, marks: str) -> dict[tuple[int, int], str]:
    lines = [text.split("│" if "│" in text else "|", 1) for text in picture.splitlines() if "│" in text or " |" in text]
    return {(row, at): one for row, text in enumerate(lines) for at, one in enumerate(text[1]) if one in marks}


def test_a_line_in_braille():
    picture = draw({"run": line([0.0, 1.0, 2.0, 3.0])}, width=40, height=10)
    lines = picture.splitlines()
    assert len(lines) == 10 + 2
    assert max(map(len, lines[:11])) <= 40
    assert lines[0].startswith("  3 │")
    assert lines[9].startswith("  0 │")
    assert lines[10].split() == ["0", "step", "3"]
    assert "last 3, min 0, max 3" in lines[11]
    dots = [[at for at, one in enumerate(text) if 0x2800 < ord(one) <= 0x28FF] for text in lines[:10]]
    assert all(dots), "a line without a gap"
    assert all(above[0] >= below[0] for above, below in itertools.pairwise(dots)), "it rises"


def test_several_runs_have_marks_of_their_own():
    runs = {"one": line([0.0] * 30), "two": line([1.0] * 30), "three": line([math.nan] * 30)}
    picture = draw(runs, width=50, height=9)
    found = cells(picture, "●▲■")
    assert {row for (row, _), one in found.items() if one == "●"} == {8}
    assert {row for (row, _), one in found.items() if one == "▲"} == {0}
    assert "■" not in found.values()
    assert [text[:5] for text in picture.splitlines()[-3:]] == ["● one", "▲ two", "■ thr"]


def test_plain_terminals_get_ascii():
    for runs in ({"a": line([1.0, 2.0])}, {"a": line([1.0, 2.0]), "b": line([2.0, 1.0])}):
        for encoding in ("ascii", "latin-1", "no such thing"):
            picture = draw(runs, encoding=encoding)
            assert picture.isascii()
            assert cells(picture, "*o")


def test_what_cannot_be_drawn_leaves_a_gap():
    values = [1.0] * 10 + [math.nan, math.inf, -math.inf] * 5 + [1.0] * 10
    columns = {at for (_, at) in cells(draw({"a": line(values), "b": line([5.0] * 1)}, width=60), "●")}
    assert {min(columns), max(columns)} <= {0, *range(50, 60)}
    assert not columns & set(range(22, 32))
    assert len(columns) > 30
    assert draw({"a": line([math.nan])}).startswith("(no values to draw)\n● a: last nan")
    assert draw({}) == "(no values to draw)"


def test_a_logarithmic_scale():
    picture = draw({"a": line([0.0, -5.0, 1.0, 10.0, 100.0]), "b": line([1.0])}, log=True, width=60, height=9)
    labels = [text.split("│")[0].strip() for text in picture.splitlines() if "│" in text]
    assert [one for one in labels if one] == ["100", "10", "1"]
    assert "min -5" in picture, "the legend hides nothing"
    rows = {at: row for (row, at), one in sorted(cells(picture, "●").items())}
    assert rows[max(rows)] == 0
    assert draw({"a": line([1e308, 1e308])}, log=True)
    assert draw({"a": line([-1e308, 1e308])})


def test_plots_by_time_and_without_steps():
    one = line([1.0, 2.0, 3.0], [5.0, 6.0, 7.0])
    assert draw({"a": one}, x="time").splitlines()[-2].split() == ["0", "seconds", "1"]
    assert draw({"a": one}).splitlines()[-2].split() == ["5", "step", "7"]
    without = Series("x", one.times, np.full(3, np.nan), one.values)
    assert draw({"a": without}).splitlines()[-2].split() == ["0", "step", "2"]


def test_a_name_commands_no_terminal():
    assert "\x1b" not in draw({"\x1b[2Jrun": line([1.0])})
