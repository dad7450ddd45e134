"""Jobs of several tasks and sweeps, with real commands over a real S3 server."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server

JOB = """\
name = "digits"
tags = { team = "vision" }
grace = "5s"

[inputs]
base = "s3://BUCKET/data"

[[task]]
name = "prepare"
command = ["python3", "prepare.py"]

[[task]]
name = "train"
after = ["prepare"]
command = ["python3", "train.py", "{lr}", "{seed}"]
inputs = []
[task.parameters]
lr = 0.1
seed = 1
[task.retry]
attempts = 2
backoff = "0s"

[[task]]
name = "evaluate"
after = ["train"]
command = ["python3", "evaluate.py"]
inputs = []
"""
PREPARE = """
import os
with open(os.path.join(os.environ["HEADRACE_OUTPUTS"], "data.txt"), "w") as file:
    file.write("prepared")
print("input", os.environ["HEADRACE_INPUT_BASE"].rpartition("/")[2])
"""
TRAIN = """
import os, sys, time
if sys.argv[1] == "wait":
    print("waits", flush=True)
    time.sleep(60)
if sys.argv[1] == "bad" or (sys.argv[1] == "once" and os.environ["HEADRACE_ATTEMPT"] == "1"):
    sys.exit(3)
with open(os.path.join(os.environ["HEADRACE_TASK_PREPARE"], "data.txt")) as file:
    data = file.read()
folder = os.path.join(os.environ["HEADRACE_OUTPUTS"], "checkpoints", "7")
os.makedirs(folder)
for name in (os.path.join(folder, "state"), os.path.join(os.environ["HEADRACE_OUTPUTS"], "model")):
    with open(name, "w") as file:
        file.write(" ".join((data, *sys.argv[1:])))
print("trained", *sys.argv[1:])
"""
EVALUATE = """
import os
for kind, name in (("TASK", "model"), ("CHECKPOINT", "state")):
    for folder in os.environ[f"HEADRACE_{kind}_TRAIN"].split(os.pathsep):
        print(kind, open(os.path.join(folder, name)).read())
"""


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path)
    made.store().put("data/one", b"1")
    for name, text in (("prepare", PREPARE), ("train", TRAIN), ("evaluate", EVALUATE)):
        made.script(text, f"{name}.py")
    made.script(JOB.replace("BUCKET", made.bucket), "job.toml")
    yield made
    made.close()


def whole(rig: RunsRig) -> str:
    """The id of the newest run of the job itself."""
    return next(one for one in rig.ids() if re.fullmatch(r"[0-9-]+-digits-[0-9a-f]{4}", one))


def tasks(rig: RunsRig, run: str) -> dict[str, dict[str, Any]]:
    """How the tasks of a whole stand, by their names and parameters."""
    told = json.loads(rig.read(run, "outputs/tasks.json") or b"[]")
    return {" ".join((one["task"], *one["parameters"].values())): one for one in told}


def test_tasks_find_what_others_left_and_are_not_run_again_for_nothing(rig: RunsRig) -> None:
    first = rig.headrace("run", "job.toml")
    made = tasks(rig, whole(rig))
    assert list(made) == ["prepare", "train 0.1 1", "evaluate"]
    assert first.stdout.splitlines() == [
        "input base", "trained 0.1 1", "TASK prepared 0.1 1", "CHECKPOINT prepared 0.1 1"
    ]  # fmt: skip
    train = rig.json("runs", "show", made["train 0.1 1"]["run"])
    assert train["record"]["parent"] == {"run": whole(rig), "as": "task"}
    assert train["tags"] == {"team": "vision", "task": "train", "lr": "0.1", "seed": "1"}
    assert train["record"]["inputs"]["task-1-prepare"]["source"].endswith(f"{made['prepare']['run']}/outputs")
    log = rig.headrace("logs", whole(rig), "--stream", "headrace").stdout
    table = rf"^train +finished +\S.* {made['train 0.1 1']['run']}$"
    assert re.search(table, log, re.MULTILINE), "a table of its tasks"
    assert "is a task of" in rig.headrace("runs", "show", made["evaluate"]["run"]).stdout

    again = rig.headrace("run", "job.toml")
    assert again.stdout == ""
    assert again.stderr.count("up to date, as run") == 3
    assert {one["run"] for one in tasks(rig, whole(rig)).values()} == {one["run"] for one in made.values()}

    rig.store().put("data/one", b"2")
    changed = rig.headrace("run", "job.toml")
    assert "up to date, as run" not in changed.stderr, "what it reads is another version"
    rig.headrace("runs", "rm", tasks(rig, whole(rig))["train 0.1 1"]["run"])
    after = rig.headrace("run", "job.toml").stderr
    assert re.findall(r"^headrace: (\w+): up to date", after, re.MULTILINE) == ["prepare"]
    assert list(rig.state.iterdir()) == [], "nothing stays on the node"


def test_a_sweep_is_run_once_for_each_combination_side_by_side(rig: RunsRig) -> None:
    sweep = ("--sweep", "lr=0.1,once", "--sweep", "seed=1..2")
    ended = rig.headrace("run", "job.toml", "--at-once", "2", *sweep)
    made = tasks(rig, whole(rig))
    assert list(made) == ["prepare", "train 0.1 1", "train 0.1 2", "train once 1", "train once 2", "evaluate"]
    said = [line.partition(" | ")[2] for line in ended.stdout.splitlines() if line.startswith("evaluate | ")]
    combinations = ["0.1 1", "0.1 2", "once 1", "once 2"]
    assert said == [f"{kind} prepared {one}" for kind in ("TASK", "CHECKPOINT") for one in combinations]
    assert "train lr=once seed=2 | trained once 2" in ended.stdout.splitlines()
    rows = rig.json("runs", "--tag", "task=train", "--tag", "lr=once")
    assert {row["tags"]["seed"]: row["attempt"] for row in rows} == {"1": 2, "2": 2}, "each by its own retry"
    rig.headrace("run", *sweep, "--sweep", "seed=2", "job.toml", code=2)
    fewer = rig.headrace("run", "--sweep", "lr=0.1", "--sweep", "seed=2..3", "job.toml").stderr
    assert re.findall(r"^headrace: (.*): up to date", fewer, re.MULTILINE) == ["prepare", "train seed=2"]

    ended = rig.headrace("rerun", whole(rig))
    assert ended.stderr.count("up to date, as run") == 4, "a record has its sweep"


def test_what_comes_after_a_failed_task_is_not_started(rig: RunsRig) -> None:
    ended = rig.headrace("run", "--sweep", "lr=bad,0.1", "job.toml", code=1)
    made = tasks(rig, whole(rig))
    states = [one["state"] for one in made.values()]
    assert states == ["finished", "failed", "finished", "not started"], list(made)
    assert "evaluate: not started, because train lr=bad is failed" in ended.stderr
    shown = rig.json("runs", "show", whole(rig))
    assert (shown["state"], shown["reason"]) == ("failed", "train lr=bad failed: exit code 3")
    (rig.work / "job.toml").write_text((rig.work / "job.toml").read_text().replace("python3", "nothing-like-it", 1))
    ended = rig.headrace("run", "job.toml", code=1)
    assert "prepare: failed: nothing-like-it: there is no such command" in ended.stderr


def test_who_stops_the_whole_stops_its_tasks(rig: RunsRig) -> None:
    for stop in ("stop", "signal"):
        process = rig.start("run", "--sweep", "lr=wait", "job.toml")
        assert process.stdout is not None
        assert any(line == "waits\n" for line in process.stdout)
        run = whole(rig)
        if stop == "stop":
            rig.headrace("stop", run, "--wait", "30s")
        else:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert rig.states(run)[-1] == "stopped"
        train = max(one for one in rig.ids() if "-train-" in one)
        assert rig.states(train)[-1] == "stopped"
        assert tasks(rig, run)["evaluate"]["state"] == "not started"


def test_a_leader_that_is_killed_takes_its_tasks_along_and_the_next_one_takes_what_was_finished(rig: RunsRig) -> None:
    process = rig.start("run", "--sweep", "lr=wait", "job.toml")
    assert process.stdout is not None
    assert any(line == "waits\n" for line in process.stdout)
    train = next(one for one in rig.ids() if "-train-" in one)
    process.send_signal(signal.SIGKILL)
    assert wait_for(lambda: rig.states(train)[-1] == "stopped"), "it has an end of its own"
    ended = rig.headrace("run", "job.toml")
    assert re.findall(r"^headrace: (\w+): up to date", ended.stderr, re.MULTILINE) == ["prepare"]


def test_a_command_is_swept_without_a_file(rig: RunsRig) -> None:
    job = ("--sweep", "word=a,b", "--set", "resources.cpus=1", "--", "sh", "-c", "echo {word}")
    ended = rig.headrace("run", "-q", *job)
    assert sorted(ended.stdout.splitlines()) == ["sh word=a | a", "sh word=b | b"]
    assert ended.stderr == ""
    assert rig.headrace("run", "-q", *job).stdout == ""
    assert len(rig.headrace("run", "-q", "--fresh", *job).stdout.splitlines()) == 2
    rig.script("pass", "more.py")
    assert len(rig.headrace("run", "-q", *job).stdout.splitlines()) == 2, "the code is another"
    assert "no code is recorded" in rig.headrace("run", "--no-code", *job).stderr
    detached = rig.headrace("run", "-d", "--sweep", "word=c", "--", "echo", "{word}").stdout.strip()
    assert wait_for(lambda: rig.states(detached)[-1:] == ["finished"])
    (row,) = rig.json("runs", "--tag", "word=c")
    assert rig.headrace("logs", row["id"], "--stream", "stdout").stdout == "c\n"
    for wrong, said in (
        (("run", "--at-once", "2", "--", "true"), "is for a job that has tasks"),
        (("run", "--sweep", "word", "--", "true"), "is no NAME=VALUE"),
        (("run", "--resume", row["id"], "job.toml"), "goes on from no checkpoint"),
    ):
        assert said in rig.headrace(*wrong, code=2).stderr


def test_values_that_are_not_recorded_make_nothing_up_to_date(rig: RunsRig) -> None:
    job = ("run", "--env", "TOKEN=hunter2", "--sweep", "n=1", "--", "sh", "-c", "echo {n} $TOKEN")
    for _ in range(2):
        ended = rig.headrace(*job)
        assert ended.stdout == "1 hunter2\n"
        assert "values of TOKEN are not recorded" in ended.stderr
    for page in rig.store().list("home/runs/"):
        for info in page:
            if not info.key.endswith(".zst"):
                assert b"hunter2" not in bytes(rig.store().get(info.key).data)
