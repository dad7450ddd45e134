"""Processes that log and are killed, a merger that is killed again and again, disks that are full or refuse."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import HeadraceError, NoRoomError
from headrace.tracking.recorder import Recorder
from headrace.tracking.segments import Merger, Point, table
from tests.metrics_kit import merged, python
from tests.mount_rig import detach

LOGGING = """
import sys, time
import headrace as hr
step = 0
while True:
    hr.log({"loss": step}, step)
    step += 1
    if step % 100 == 0:
        sys.stdout.write(f"{step}\\n")
        sys.stdout.flush()
        time.sleep(0.01)
"""


def logged(lines: Iterator[str], seconds: float) -> int:
    """The steps that a process says it has logged, after so many seconds."""
    until = time.monotonic() + seconds
    step = 0
    while time.monotonic() < until:
        step = int(next(lines))
    return step


def test_what_a_killed_process_logged_is_there_but_for_its_last_second(tmp_path: Path):
    spool = tmp_path / "spool"
    spool.mkdir()
    process = subprocess.Popen(
        python(LOGGING, HEADRACE_SPOOL=str(spool)), stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout)
        sure = logged(lines, 2.5)
        latest = logged(lines, 2.0)  # twice the period
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
    Merger(str(spool), str(tmp_path / "segments")).collect()
    found = merged(tmp_path / "segments")
    assert [row[1] for row in found] == list(range(len(found))), "each once, and without a gap"
    assert 0 < sure <= len(found)
    assert latest > sure, "it had ended before: this proves nothing"
    assert not list(spool.glob("*.bad"))


MERGING = """
import os, random, shutil, signal, sys, time
from headrace.tracking.segments import Merger
from headrace.tracking.spool import encode
spool, segments, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(seed)
step = between = 0
for turn in range(40):
    for number in range(40):
        path = f"{spool}/metrics-0-{turn}-1-{number}.points"
        with open(path + ".tmp", "wb") as file:
            file.write(encode(0, [step], [step], ["loss"], [0.5]))
        os.rename(path + ".tmp", path)
        step += 1
    before = set(os.listdir(segments))
    if (pid := os.fork()) == 0:
        merger = Merger(spool, segments)
        merger.collect()
        os._exit(0)
    if turn % 2:  # when the segment is there, and its files are being deleted
        while set(os.listdir(segments)) - before <= {n for n in os.listdir(segments) if n.endswith(".tmp")}:
            if os.waitpid(pid, os.WNOHANG)[0]:
                pid = 0
                break
    else:
        time.sleep(chance.random() * 0.02)
    if pid:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    done = [n for n in os.listdir(segments) if n.endswith(".parquet")]
    between += bool(set(done) - before) and bool(os.listdir(spool))
print(step, between)
"""


def test_a_merger_that_is_killed_again_and_again_keeps_each_point_once(tmp_path: Path):
    spool, segments = tmp_path / "spool", tmp_path / "segments"
    spool.mkdir()
    segments.mkdir()
    ended = subprocess.run(
        python(MERGING, str(spool), str(segments), "7"), capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    count, between = map(int, ended.stdout.split())
    assert between > 3, "no crash came between a segment and its spool: this proves nothing"
    Merger(str(spool), str(segments)).collect()
    assert [row[1] for row in merged(segments)] == list(range(count))
    assert list(spool.iterdir()) == []
    assert {path.suffix for path in segments.iterdir()} == {".parquet"}


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small tmpfs")
    folder = tmp_path_factory.mktemp("headrace-small-disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "headrace-test", str(folder)], check=True, timeout=30)
    try:
        yield folder
    finally:
        detach(str(folder))


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with open(filler, "wb") as file:
        file.write(bytes(shutil.disk_usage(disk).free - 4096))
        file.write(bytes(shutil.disk_usage(disk).free))
    return filler


def test_a_full_disk_costs_nothing_that_was_logged(small_disk: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    recorder = Recorder(str(small_disk))
    filler = fill(small_disk)
    for step in range(3000):
        recorder.add({"loss": 0.5}, step)
        if step % 1000 == 0:
            recorder.flush()
    recorder.flush()
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert "No space left" in told.message
    filler.unlink()
    recorder.add({"loss": 0.5}, 3000)
    recorder.close()
    Merger(str(small_disk), str(tmp_path / "segments")).collect()
    assert [row[1] for row in merged(tmp_path / "segments")] == list(range(3001))


def test_a_full_disk_stops_the_merger_and_no_more(small_disk: Path, tmp_path: Path):
    spool = tmp_path / "spool"
    spool.mkdir()
    recorder = Recorder(str(spool))
    merger = Merger(str(spool), str(small_disk / "segments"))
    filler = fill(small_disk)
    for turn in range(3):
        recorder.add({"loss": 0.5}, turn)
        recorder.flush()
        with pytest.raises(NoRoomError) as caught:
            merger.collect(table([Point(turn, "extra", 0.5, turn)]), note=f"note {turn}")
        assert caught.value.hint
    assert list((small_disk / "segments").iterdir()) == []
    filler.unlink()
    assert merger.collect() == 6
    assert Merger(str(spool), str(small_disk / "segments")).note == "note 2"
    assert merger.collect() == 0
    recorder.close()
    assert [row[:2] for row in merged(small_disk / "segments")] == [
        (name, step) for name in ("extra", "loss") for step in range(3)
    ]


def test_a_spool_that_cannot_be_cleared_is_not_merged_twice(small_disk: Path, tmp_path: Path):
    recorder = Recorder(str(small_disk))
    for step in range(3):
        recorder.add({"loss": 0.5}, step)
        recorder.flush()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, timeout=30)
    segments = str(tmp_path / "segments")
    merger = Merger(str(small_disk), segments)
    assert merger.collect() == 3
    assert merger.collect() == 0
    assert merger.collect(table([Point(0, "extra", 0.5, 7)])) == 1
    again = Merger(str(small_disk), segments)
    assert again.collect() == 0
    assert again.collect(table([Point(0, "extra", 0.5, 8)])) == 1
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True, timeout=30)
    recorder.add({"loss": 0.5}, 3)
    recorder.close()
    assert Merger(str(small_disk), segments).collect() == 1
    assert list(small_disk.iterdir()) == []
    assert [row[:2] for row in merged(tmp_path / "segments")] == [
        ("extra", 7), ("extra", 8), *(("loss", step) for step in range(4)),
    ]  # fmt: skip


def test_a_folder_that_cannot_be_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadraceError, match="file"):
        Merger(str(tmp_path), str(tmp_path / "file" / "segments"))
