"""The store away for two minutes, or until after the end; meanwhile: a clock that jumps, and ten thousand files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from headrace.base.ports import reserve_port
from headrace.namespace.home import Home
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import freeze, thaw
from headrace.tracking.runs import Runs
from tests.runs_rig import RunsRig
from tests.sync_rig import Relay, wait_for

pytestmark = pytest.mark.server

AWAY_S = 120.0
STEPS = """
    import headrace, os, pathlib, time
    out = pathlib.Path(os.environ["HEADRACE_OUTPUTS"])
    step, held, before = 0, 0.0, time.monotonic()
    while not os.path.exists("go"):
        print("line", step, flush=True)
        headrace.log({"step": step}, step=step)
        if step % 10 == 0:
            (out / f"{step:05d}.txt").write_text(str(step) * 100)
        if step % 100 == 0:
            folder = out / "checkpoints" / str(step)
            folder.mkdir()
            for part in range(3):
                (folder / f"{part}.pt").write_bytes(str(step).encode() * 200_000)
            (folder / "COMMITTED").touch()
        pathlib.Path("steps.tmp").write_text(f"{step + 1} {held}")
        os.rename("steps.tmp", "steps")
        time.sleep(0.1)
        held, before = max(held, time.monotonic() - before), time.monotonic()
        step += 1
"""


def steps(rig: RunsRig) -> int:
    """How many the job has made, as it says itself."""
    path = rig.work / "steps"
    return int(path.read_text().split()[0]) if path.exists() else 0


def check_all(rig: RunsRig, run: str, count: int) -> None:
    """Everything of a run that has ended is there: whole, and once."""
    assert rig.headrace("logs", run).stdout.splitlines() == [f"line {step}" for step in range(count)]
    (metric,) = rig.json("metrics", run)
    assert metric["values"] == list(range(count))
    for step in range(0, count, 10):
        assert rig.read(run, f"outputs/{step:05d}.txt") == str(step).encode() * 100
    for step in range(0, count, 100):
        for part in range(3):
            assert rig.read(run, f"checkpoints/{step}/{part}.pt") == str(step).encode() * 200_000
        assert rig.read(run, f"checkpoints/{step}/COMMITTED") is not None
    assert list(rig.state.iterdir()) == []


@dataclass
class Away:
    """A run whose store is away, since `since`."""

    rig: RunsRig
    server: EmbeddedS3
    process: subprocess.Popen[str]
    reader: subprocess.Popen[str]
    there: dict[str, bytes | None]
    since: float


@pytest.fixture(scope="module", autouse=True)
def away(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Away]:
    """It goes away before the first of these tests, and the last waits for what is left of two minutes."""
    scratch = tmp_path_factory.mktemp("away")
    with EmbeddedS3(str(scratch / "server"), port=reserve_port()) as server:
        rig = RunsRig(server, scratch)
        try:
            rig.script(STEPS)
            process = rig.start("run", "--id", "away", "--", sys.executable, "train.py")
            assert wait_for(lambda: rig.names("away").count("checkpoints/0/COMMITTED") and steps(rig) > 60, 60)
            assert wait_for(lambda: rig.read("away", "logs/stdout/00000000.zst"))
            there = {name: rig.read("away", name) for name in rig.names("away")}
            assert server.pid is not None
            freeze(server.pid)  # it is silent at first; then gone
            since = time.monotonic()
            yield Away(rig, server, process, rig.start("runs", "--json"), there, since)
        finally:
            if server.pid is not None:
                thaw(server.pid)
            rig.close()


@dataclass
class Cut:
    """A run over a shared server, whose way there is closed; its job has just been told to end."""

    rig: RunsRig
    relay: Relay
    process: subprocess.Popen[str]


@pytest.fixture(scope="module", autouse=True)
def cut(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cut]:
    """Its runner tries for half a minute, during which the others are under way."""
    rig, relay = RunsRig(seaweedfs, tmp_path_factory.mktemp("cut")), Relay(seaweedfs.endpoint)
    rig.variables = {"AWS_ENDPOINT_URL_S3": relay.url}
    relay.open()
    try:
        late = "until [ -e go ]; do sleep 0.1; done; echo late > $HEADRACE_OUTPUTS/late"
        process = rig.start("run", "--id", "cut", "--set", "outputs.drain=3s", "--", "sh", "-c", late)
        assert wait_for(lambda: rig.read("cut", "status/00001-running.json"), 60)
        relay.close()
        (rig.work / "go").touch()
        yield Cut(rig, relay, process)
    finally:
        relay.close()
        rig.close()


SHIFTED = """
    import datetime, os, time
    offset = os.open(os.environ["TEST_CLOCK"], os.O_RDONLY)
    honest = time.time_ns

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(time.time(), tz)

    time.time_ns = lambda: honest() + int(os.pread(offset, 20, 0)) * 10**9
    time.time = lambda: time.time_ns() / 1e9
    datetime.datetime = Shifted
"""


@dataclass
class Clock:
    """What time Python programs think it is. Time that passes (the monotonic clock) and files are left alone, as by
    a real jump; libfaketime breaks Python's `time.sleep` there.
    """

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "sitecustomize.py").write_text(textwrap.dedent(SHIFTED))
        self.shift(0)

    @property
    def variables(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(self.folder), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, "TEST_CLOCK": str(self.folder / "offset")}

    def shift(self, seconds: int) -> None:
        """From now on it is so many seconds later than it is."""
        descriptor = os.open(self.folder / "offset", os.O_WRONLY | os.O_CREAT)
        os.pwrite(descriptor, f"{seconds:+020d}".encode(), 0)
        os.close(descriptor)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


def test_the_clock_of_the_machine_jumps(seaweedfs: EmbeddedS3, tmp_path: Path, clock: Clock):
    """By minutes and by hours, either way: no store takes what is signed an hour off."""
    rig = RunsRig(seaweedfs, tmp_path)
    rig.script(STEPS)
    rig.variables = clock.variables
    options = ("--id", "jumps", "--set", "time_limit=30m")
    process = rig.start("run", *options, "--", sys.executable, "train.py")
    rig.variables = {}
    try:
        assert wait_for(lambda: rig.read("jumps", "logs/stdout/00000000.zst"), 60)
        follower = rig.start("logs", "-f", "jumps", "--stream", "stdout")
        runs = Runs(Home(rig.store(), "home/"))
        watched: list[str] = []
        lasting: list[float] = []

        def counts() -> tuple[int, ...]:
            names = rig.names("jumps")
            return tuple(sum(name.startswith(one) for name in names) for one in ("logs/stdout", "outputs"))

        for shift in (600, -600, 3600, -3600):
            clock.shift(shift)
            before, lease = counts(), rig.read("jumps", "lease.json")
            assert [row["state"] for row in rig.json("runs")] == ["running"]

            def goes_on(before: tuple[int, ...] = before, lease: bytes | None = lease) -> bool:
                (view,) = runs.views()
                watched.append(view.state)
                lasting.append(view.seconds)
                if rig.read("jumps", "lease.json") == lease:
                    return False
                return all(now > then for now, then in zip(counts(), before, strict=True))

            assert wait_for(goes_on, 60, 0.5), shift
            assert [row["state"] for row in rig.json("runs")] == ["running"]
        assert set(watched) == {"running"}
        assert all(now > then - 5 for then, now in pairwise(lasting)), lasting
        assert max(lasting) < 600, "as long as it really took"
        clock.shift(0)
        (rig.work / "go").touch()
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert said.count("clock") <= 8, said
        out, _ = follower.communicate(timeout=60)
        count = steps(rig)
        assert out.splitlines() == [f"line {step}" for step in range(count)]
        check_all(rig, "jumps", count)
        assert rig.states("jumps") == ["starting", "running", "finishing", "finished"]
        assert rig.headrace("logs", "jumps", "--tail", "3").stdout.splitlines()[-1] == f"line {count - 1}"
    finally:
        rig.close()


BESIDE = 50
"""Requests of a run besides those that come with time (here 19), and some to spare: whether the bucket is there and
keeps conditions (6), the record and the code (2), four transitions (4, and a lease after each), a segment of metrics
and one of each stream at the end (4)."""
EACH_SECOND = 2
"""At most: an order every 5 s, a lease every 15 s, a segment of metrics every 10 s and one of each of three streams
every 5 s make 0.97 (docs/reference/bucket.md). And once a second or so it is heard what changed: of one file at most,
the one that is just being written, half is sent then, and all of it later.
"""


@pytest.fixture
def way(seaweedfs: EmbeddedS3) -> Iterator[FaultServer]:
    """To the server; it counts requests, and fails none."""
    with FaultServer(Upstream("127.0.0.1", int(seaweedfs.endpoint.rpartition(":")[2]))) as server:
        yield server


def test_ten_thousand_small_files(seaweedfs: EmbeddedS3, tmp_path: Path, way: FaultServer):
    """All of them in the bucket, by one request each, and a runner that stays small."""
    rig = RunsRig(seaweedfs, tmp_path)
    rig.script("""
        import os, pathlib
        out = pathlib.Path(os.environ["HEADRACE_OUTPUTS"])
        for n in range(10_000):
            (out / str(n % 100)).mkdir(exist_ok=True)
            (out / str(n % 100) / f"{n}.txt").write_text(str(n))
    """)
    rig.variables, began = {"AWS_ENDPOINT_URL_S3": way.endpoint}, time.monotonic()
    process = rig.start("run", "--id", "many", "--", sys.executable, "train.py")
    rig.variables = {}
    try:
        most, runner = 0, psutil.Process(process.pid)

        def ended() -> bool:
            nonlocal most
            most = max(most, runner.memory_info().rss)
            return process.poll() is not None

        assert wait_for(ended, 240, 0.2)
        seconds = time.monotonic() - began
        assert process.returncode == 0, process.communicate()
        counts = Counter(one.operation for one in way.seen)
        assert 10_000 < counts.total() <= 10_000 + BESIDE + EACH_SECOND * seconds, counts
        assert 0 < most < 200 << 20
        infos = [info for page in rig.store().list("home/runs/many/outputs/") for info in page]
        found = {info.key.rpartition("/")[2]: info.size for info in infos}
        assert found == {f"{n}.txt": len(str(n)) for n in range(10_000)}
        for n in range(0, 10_000, 500):
            assert rig.read("many", f"outputs/{n % 100}/{n}.txt") == str(n).encode()
        (row,) = rig.json("runs")
        assert (row["state"], row["files_left"]) == ("finished", 0)
        assert json.loads(rig.read("many", "status/00003-finished.json") or b"")["files"] >= 10_000
    finally:
        rig.close()


def test_the_store_stays_away_until_after_the_end(cut: Cut):
    """What could not be said is kept, named, and said later: the run has finished, and is not lost."""
    rig = cut.rig
    _, said = cut.process.communicate(timeout=120)
    assert cut.process.returncode == 6, said
    assert "sync --recover" in said
    assert rig.read("cut", "outputs/late") is None
    cut.relay.open()
    (row,) = json.loads(rig.headrace("sync", "--recover", "--json").stdout)
    assert row["state"] == "finished"
    assert rig.read("cut", "outputs/late") == b"late\n"
    (row,) = rig.json("runs")
    assert (row["state"], row["exit_code"]) == ("finished", 0)
    assert list(rig.state.iterdir()) == []


def test_the_store_is_away_for_two_minutes(away: Away):
    """The job is never held up, readers are told; then everything is there, and the state is true again."""
    rig, server, process = away.rig, away.server, away.process
    _, said = away.reader.communicate(timeout=120)
    assert away.reader.returncode == 6, said
    assert "Traceback" not in said
    assert server.pid is not None
    assert wait_for(lambda: time.monotonic() - away.since > AWAY_S / 2, AWAY_S)
    os.kill(server.pid, signal.SIGKILL)
    server.stop()
    asked = rig.headrace("runs", "show", "away", code=6)
    assert "Traceback" not in asked.stderr
    assert wait_for(lambda: time.monotonic() - away.since > AWAY_S, AWAY_S)
    assert process.poll() is None
    made = steps(rig)
    server.start()
    for name, body in away.there.items():  # nothing that was sent is gone
        assert name == "lease.json" or rig.read("away", name) == body
    assert rig.json("runs")[0]["state"] in ("lost", "running")
    assert wait_for(lambda: rig.json("runs")[0]["state"] == "running", 90), "it was only out of sight"
    (rig.work / "go").touch()
    _, said = process.communicate(timeout=180)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    count, held = (float(one) for one in (rig.work / "steps").read_text().split())
    assert held < 30, "the job waited for the store"
    assert count > made > 100
    check_all(rig, "away", int(count))
    assert rig.states("away") == ["starting", "running", "finishing", "finished"]
    (row,) = rig.json("runs")
    assert (row["state"], row["exit_code"], row["files_left"]) == ("finished", 0, 0)
