"""`headrace tensorboard` with the real TensorBoard, asked over HTTP for what it shows."""

from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headrace.testing.servers import EmbeddedS3
from tests import trackers_kit
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for
from tests.trackers_kit import alive, group, said

pytestmark = pytest.mark.server


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path, {**trackers_kit.variables(), "TMPDIR": str(tmp_path)})
    yield made
    made.close()


def ask(url: str, what: str, **query: str) -> Any:
    try:
        address = f"{url}/data/plugin/scalars/{what}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        return []


def test_runs_are_shown_while_they_grow_and_nothing_is_left(rig: RunsRig, tmp_path: Path):
    rig.script("""
        import os, time
        import headrace as hr
        from headrace.tracking.event_writer import EventWriter
        from headrace.tracking.points import Point
        folder = os.environ["HEADRACE_OUTPUTS"] + "/tb"
        os.makedirs(folder)
        writer = EventWriter(f"{folder}/events.out.tfevents.1.host")
        writer.add([Point(1_800_000_000_000_000, "accuracy", 0.5, 0)])
        while not os.path.exists("go"):
            time.sleep(0.05)
        writer.add([Point(1_800_000_001_000_000, "accuracy", 0.75, 1)])
    """)
    rig.script("import headrace as hr; hr.log({'loss': 0.5}, step=3)", "quiet.py")
    rig.headrace("run", "--name", "quiet", "--", "python3", "quiet.py")
    live = rig.start("run", "--name", "live", "--", "python3", "train.py")
    # of one second, they may be in either order
    written = lambda: [one for run in rig.ids() for one in rig.names(run) if "tfevents" in one]  # noqa: E731
    assert wait_for(lambda: len(rig.ids()) == 2 and bool(written()), 60)
    name, quiet = (next(one for one in rig.ids() if f"-{word}-" in one) for word in ("live", "quiet"))

    shown = rig.start("tensorboard", "live", "quiet", "--port", "0")
    url = re.search(r"http://\S+", said(shown, "TensorBoard at"))[0]
    started = [shown.pid, *group(shown.pid)]
    mirror = next(tmp_path.glob("headrace-tensorboard-*"))
    assert wait_for(lambda: "accuracy" in (ask(url, "tags") or {}).get(f"{name}/tb", {}), 60)
    assert wait_for(lambda: "loss" in ask(url, "tags").get(quiet, {}), 30)
    assert [row[1:] for row in ask(url, "scalars", tag="loss", run=quiet)] == [[3, 0.5]]
    assert [row[1:] for row in ask(url, "scalars", tag="accuracy", run=f"{name}/tb")] == [[0, 0.5]]
    (rig.work / "go").touch()
    two = [[0, 0.5], [1, 0.75]]
    assert wait_for(lambda: [row[1:] for row in ask(url, "scalars", tag="accuracy", run=f"{name}/tb")] == two, 60)
    assert live.wait(60) == 0

    assert all(one.laddr.ip == "127.0.0.1" for one in _listening(started))
    shown.send_signal(signal.SIGINT)
    _, err = shown.communicate(timeout=10)
    assert shown.returncode == 0, err
    assert alive(started) == []
    assert not mirror.exists()


def test_who_kills_the_command_leaves_no_server(rig: RunsRig, tmp_path: Path):
    rig.headrace("run", "--name", "none", "--", "true")
    kept = tmp_path / "kept"
    shown = rig.start("tensorboard", "none", "--port", "0", "--logdir-keep", str(kept), "--json")
    assert shown.stdout is not None
    told = json.loads("".join(iter(shown.stdout.readline, "}\n")) + "}")
    started = group(shown.pid)
    assert told["logdir"] == str(kept)
    shown.kill()
    shown.wait()
    assert wait_for(lambda: alive(started) == [], 10)
    assert wait_for(lambda: not list(tmp_path.glob("headrace-tensorboard-*")), 10)
    assert list(kept.rglob("*tfevents*")), "the machine's figures"


def test_without_the_program_it_says_what_to_install(rig: RunsRig):
    rig.variables = {**rig.variables, "PATH": "/usr/bin:/bin"}
    assert "headrace[tensorboard]" in rig.headrace("tensorboard", "latest", code=2).stderr


def _listening(pids: list[int]) -> list[Any]:
    found: list[Any] = []
    for pid in pids:
        if psutil.pid_exists(pid):
            found += [one for one in psutil.Process(pid).net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    assert found
    return found
