"""Runs mirrored to a real MLflow server, which `headrace mlflow` started over a home in S3; read by its own client."""

from __future__ import annotations

import dataclasses
import re
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from headrace.base.ports import reserve_port
from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import freeze, thaw
from tests import trackers_kit
from tests.runs_rig import COMMAND, RunsRig
from tests.sync_rig import Relay, wait_for
from tests.trackers_kit import alive, asked, group, in_mlflow, mirrors, said

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def over(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunsRig, str]]:
    """A home with its MLflow. Ctrl-C ends it with everything it started."""
    rig = RunsRig(seaweedfs, tmp_path_factory.mktemp("mlflow"), trackers_kit.variables())
    process = rig.start("mlflow", "--port", "0", "--backend", str(rig.scratch / "kept.db"))
    uri = re.sub("export MLFLOW_TRACKING_URI=", "", said(process, "export ")).strip()
    yield rig, uri
    started = [process.pid, *group(process.pid)]
    assert len(started) >= 3, "the command, the server, its watchdog"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 0, err
    assert alive(started) == []
    for secret in (seaweedfs.secret_key, seaweedfs.access_key):
        assert secret not in out + err
    rig.close()


@pytest.fixture
def uri(over: tuple[RunsRig, str]) -> str:
    return over[1]


@pytest.fixture
def rig(over: tuple[RunsRig, str], tmp_path: Path) -> Iterator[RunsRig]:
    """The same home, where the server is told to runs."""
    shared, uri = over
    (tmp_path / "work").mkdir()
    made = dataclasses.replace(
        shared, scratch=tmp_path, variables={**shared.variables, "MLFLOW_TRACKING_URI": uri}, processes=[]
    )
    yield made
    made.close()


def elsewhere(rig: RunsRig, url: str) -> RunsRig:
    """The same, with the server at another address."""
    return dataclasses.replace(rig, variables={**rig.variables, "MLFLOW_TRACKING_URI": url}, processes=rig.processes)


STEPS = """
    import os, time
    import headrace as hr
    for step in range(50):
        hr.log({"loss": 1 / (step + 1)}, step=step)
"""
UNTIL_TOLD = STEPS + """
    while not os.path.exists("go"):
        time.sleep(0.05)
    for step in range(50, 80):
        hr.log({"loss": 1 / (step + 1)}, step=step)
"""


def test_a_run_is_in_mlflow_with_all_that_is_known_of_it(rig: RunsRig, uri: str):
    subprocess.run("git init -q . && git config user.email a@b && git config user.name a", shell=True, cwd=rig.work)
    rig.script(STEPS + """
    import mlflow
    from headrace.tracking.event_writer import EventWriter
    from headrace.tracking.points import Point
    out = os.environ["HEADRACE_OUTPUTS"]
    EventWriter(f"{out}/events.out.tfevents.1").add([Point(1_800_000_000_000_000, "accuracy", 0.5, 3)])
    open(f"{out}/model.txt", "w").write("weights")
    hr.log({"odd name!": float("nan"), "no step": 2.0})
    assert "AWS_ACCESS_KEY_ID" not in os.environ
    mlflow.log_metric("own", 7.0, step=1)
    mlflow.log_artifact("train.py")
    """)
    subprocess.run("git add -A && git commit -qm x", shell=True, cwd=rig.work, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=rig.work, capture_output=True, text=True).stdout.strip()
    rig.variables = {**rig.variables, "MLFLOW_EXPERIMENT_NAME": "digits"}
    passed = 'environment.pass=["PATH", "HOME", "PYTHONPATH", "MLFLOW_*"]'
    job = [str(trackers_kit.TOOLS / "bin/python"), "train.py", "--lr", "0.1", "--api-key=hush-hush", "model.depth=3"]
    rig.headrace("run", "--name", "all", "--set", passed, "--set", "tags.team=vision", "--", *job)
    run = rig.json("runs", "--limit", "1")[0]["id"]
    found = in_mlflow(uri, run)
    assert (found["status"], found["name"], found["experiment"]) == ("FINISHED", run, "digits")
    assert {name: found["params"][name] for name in ("lr", "api-key", "model.depth")} == {
        "lr": "0.1", "api-key": "***", "model.depth": "3",
    }  # fmt: skip
    assert "hush-hush" not in str(found), "a flag that is named like a secret"
    url = f"s3://{rig.bucket}/home/runs/{run}"
    tags = {"headrace.url": url, "headrace.exit_code": "0", "team": "vision", "mlflow.source.git.commit": commit}
    assert {name: found["tags"].get(name) for name in tags} == tags
    assert f"{url}/outputs/" in found["tags"]["mlflow.note.content"]
    metrics = found["metrics"]
    assert sorted(metrics["loss"]) == sorted([step, str(1 / (step + 1))] for step in range(50))
    assert metrics["accuracy"] == [[3, "0.5"]]
    assert metrics["own"] == [[1, "7.0"]], "by MLflow's own client in the job, in the same run"
    assert [value for _, value in metrics["odd name_"]] == ["nan"]
    assert len(metrics["no step"]) == 1
    assert "system/disk_available_megabytes" in metrics
    assert found["artifacts"] == ["headrace/files.json", "train.py"]
    path = found["uri"].removeprefix("mlflow-artifacts:/")
    listed = rig.store().get(f"home/mlflow/{path}/headrace/files.json").data
    assert f'"{url}/outputs/model.txt"' in bytes(listed).decode(), "artifacts by reference, in the home"


def test_a_server_that_comes_late_is_caught_up_with(rig: RunsRig, uri: str):
    late = Relay(uri)
    rig.script(UNTIL_TOLD)
    process = elsewhere(rig, late.url).start("run", "--name", "late", "--", "python3", "train.py")
    said(process, "not mirrored for now", "stderr")
    late.open()
    said(process, "mirrored to", "stderr")
    (rig.work / "go").touch()
    _, err = process.communicate(timeout=60)
    late.close()
    assert process.returncode == 0, err
    found = asked(uri, rig.json("runs", "--limit", "1")[0]["id"])
    assert found["status"] == "FINISHED"
    assert [step for step, _ in found["metrics"]["loss"]] == list(range(80))


def test_a_mirror_that_is_killed_is_started_again(rig: RunsRig, uri: str):
    rig.script(UNTIL_TOLD)
    process = rig.start("run", "--name", "killed", "--", "python3", "train.py")
    said(process, "mirrored to", "stderr")
    (before,) = mirrors(process.pid)
    before.kill()
    assert wait_for(lambda: [one.pid for one in mirrors(process.pid)] not in ([], [before.pid]), 30)
    (rig.work / "go").touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    found = asked(uri, rig.json("runs", "--limit", "1")[0]["id"])
    assert found["status"] == "FINISHED"
    assert [step for step, _ in found["metrics"]["loss"]] == list(range(80)), "each once"


def test_mlflow_that_is_never_there_costs_a_warning_and_the_rest_can_be_sent(rig: RunsRig, uri: str):
    rig.script(STEPS + "    raise SystemExit(7)\n")
    away = elsewhere(rig, f"http://user:hidden@127.0.0.1:{reserve_port()}")
    ended = away.headrace("run", "--name", "never", "--", "python3", "train.py", code=7)
    run = rig.json("runs", "--limit", "1")[0]["id"]
    assert f"headrace mlflow send {run}" in ended.stderr
    assert "hidden" not in ended.stderr
    assert "does not answer" in away.headrace("mlflow", "send", run, code=6).stderr
    first = rig.json("mlflow", "send", run)
    rig.variables = {**rig.variables, "MLFLOW_EXPERIMENT_NAME": "another"}
    again = rig.json("mlflow", "send", "never")
    assert first[0]["points"] >= 50
    assert again[0] | {"points": 0} == first[0] | {"points": 0}
    assert again[0]["points"] == 0, "what is there already"
    found = asked(uri, run)
    assert (found["status"], found["tags"]["headrace.exit_code"]) == ("FAILED", "7")
    assert [step for step, _ in found["metrics"]["loss"]] == list(range(50))


def test_a_runner_that_is_killed_takes_its_mirror_along(rig: RunsRig, uri: str):
    rig.script(UNTIL_TOLD)
    process = rig.start("run", "--name", "lost", "--", "python3", "train.py")
    said(process, "mirrored to", "stderr")
    (mirror,) = mirrors(process.pid)
    run = rig.json("runs", "--limit", "1")[0]["id"]
    process.kill()
    process.wait()
    assert wait_for(lambda: alive([mirror.pid]) == [], 30)
    assert asked(uri, run)["status"] == "FAILED"


def test_ctrl_c_ends_the_wait_for_mlflow_and_says_what_to_do(rig: RunsRig, over: tuple[RunsRig, str]):
    rig.script(UNTIL_TOLD)
    process = rig.start("run", "--name", "slow", "--", "python3", "train.py")
    said(process, "mirrored to", "stderr")
    server = group(over[0].processes[0].pid)
    for one in server:
        freeze(one)
    try:
        (rig.work / "go").touch()
        name = next(one for one in rig.ids() if "-slow-" in one)
        assert wait_for(lambda: any("finishing" in one for one in rig.names(name)), 60)
        assert wait_for(lambda: any("metrics/" in one for one in rig.names(name)), 60), "the last segment is sent"
        while process.poll() is None:  # again and again, to its very end: whoever presses it is impatient
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.02)
    finally:
        for one in server:
            thaw(one)
    _, err = process.communicate(timeout=30)
    assert process.returncode in (0, 6), err  # 6: the first signal came while files were still being sent
    assert "it takes too long" in err
    assert f"headrace mlflow send {name}" in err


def test_a_run_within_a_run_is_one_of_its_own_below_it(rig: RunsRig, uri: str):
    inner = [*COMMAND, "run", "--name", "inner", "--", "sh", "-c", "echo inner $MLFLOW_RUN_ID"]
    told = rig.headrace("run", "--name", "outer", "--", "sh", "-c", f"echo outer $MLFLOW_RUN_ID; {shlex.join(inner)}")
    ids = dict(line.split() for line in told.stdout.splitlines())
    runs = {row["name"]: row["id"] for row in rig.json("runs", "--limit", "2")}
    found = asked(uri, runs["inner"])
    assert (found["id"], found["tags"]["mlflow.parentRunId"]) == (ids["inner"], ids["outer"])


def test_a_script_that_sets_its_own_experiment_is_given_no_run(rig: RunsRig, uri: str):
    rig.script("""
        import mlflow
        mlflow.set_experiment("of the script")
        with mlflow.start_run() as run:
            print(run.info.run_id)
    """)
    python = str(trackers_kit.TOOLS / "bin/python")
    told = rig.headrace("run", "--name", "own", "--env", "MLFLOW_RUN_ID=", "--", python, "train.py").stdout
    assert asked(uri, rig.json("runs", "--limit", "1")[0]["id"])["id"] not in told


def test_what_cannot_be_mirrored_is_told(rig: RunsRig):
    told = elsewhere(rig, "sqlite:///x.db").headrace("run", "--name", "file", "--", "true").stderr
    assert "not mirrored to MLflow" in told
    assert "http://" in told
    rig.variables = {**rig.variables, "HEADRACE_RUN_MLFLOW": "false"}
    assert "mirrored" not in rig.headrace("run", "--name", "off", "--", "true").stderr
    rig.variables = {**rig.variables, "PATH": "/usr/bin:/bin"}
    assert "headrace[mlflow]" in rig.headrace("mlflow", code=2).stderr
    unset = dataclasses.replace(rig, variables={k: v for k, v in rig.variables.items() if k != "MLFLOW_TRACKING_URI"})
    assert "MLFLOW_TRACKING_URI is not set" in unset.headrace("mlflow", "send", "latest", code=2).stderr


def test_the_server_answers_and_its_command_line_has_no_secret(over: tuple[RunsRig, str], uri: str):
    with urllib.request.urlopen(f"{uri}/health") as answer:
        assert answer.status == 200
    rig, _ = over
    for pid in group(rig.processes[0].pid):
        assert rig.server.secret_key not in " ".join(psutil.Process(pid).cmdline())
