"""Runs mirrored to a real MLflow server, which `headrace mlflow` started over a home in S3; read by its own client."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from headrace.base.ports import reserve_port
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import freeze, thaw
from headrace.tracking.mlflow_server import Listening, mlflow_server
from tests import trackers_kit
from tests.runs_rig import COMMAND, RunsRig
from tests.sync_rig import Relay, wait_for
from tests.trackers_kit import alive, artifacts, asked, called, group, in_mlflow, mirrors, said

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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
    ours = ["files.json", "outputs/events.out.tfevents.1", "outputs/model.txt", "run.json"]
    assert found["artifacts"] == [*(f"headrace/{name}" for name in ours), "train.py"]
    assert bytes.fromhex(found["outputs"]["model.txt"]) == b"weights", "from the run's folder, by the URL alone"
    path = found["uri"].removeprefix("mlflow-artifacts:/")
    listed = rig.store().get(f"home/mlflow/{path}/headrace/files.json").data
    assert f'"{url}/outputs/model.txt"' in bytes(listed).decode(), "artifacts by reference, in the home"


OUTPUTS = """
    import os
    out = os.environ["HEADRACE_OUTPUTS"]
    os.makedirs(f"{out}/plots/deep")
    os.makedirs(f"{out}/checkpoints/7")
    open(f"{out}/plots/deep/a b.bin", "wb").write(bytes(range(256)) * 1000)
    open(f"{out}/checkpoints/7/weights.bin", "wb").write(b"weights")
    open(f"{out}/checkpoints/7/COMMITTED", "w").close()
    open(f"{out}/plots/notes.txt", "w").write("the second is better")
"""


@pytest.fixture(scope="module")
def shown(over: tuple[RunsRig, str]) -> tuple[str, str]:
    """A run that left outputs and a checkpoint: its name, and what MLflow calls it."""
    rig, uri = over
    rig.script(OUTPUTS)
    told = dataclasses.replace(rig, variables={**rig.variables, "MLFLOW_TRACKING_URI": uri}, processes=[])
    told.headrace("run", "-q", "--id", "shown", "--", "python3", "train.py")
    return "shown", asked(uri, "shown")["id"]


def test_the_artifacts_of_a_run_are_its_outputs_and_checkpoints(uri: str, shown: tuple[str, str]):
    _, run = shown
    assert artifacts(uri, run) == {"headrace": None}
    assert set(artifacts(uri, run, "headrace")) == {
        f"headrace/{one}" for one in ("checkpoints", "files.json", "outputs", "run.json")
    }
    assert artifacts(uri, run, "headrace/outputs/plots", "ajax-api") == {
        "headrace/outputs/plots/deep": None, "headrace/outputs/plots/notes.txt": 20,
    }  # fmt: skip
    file = "headrace/outputs/plots/deep/a b.bin"
    assert artifacts(uri, run, "headrace/outputs/plots/deep") == {file: 256_000}
    assert artifacts(uri, run, "headrace/checkpoints/7")["headrace/checkpoints/7/weights.bin"] == 7
    assert called(uri, "GET", "get-artifact", run_id=run, path=file) == (200, bytes(range(256)) * 1000)
    status, signed = called(uri, "GET", f"api/2.0/mlflow-artifacts/presigned/0/{run}/artifacts/{file}")
    assert status == 200, signed
    with urllib.request.urlopen(json.loads(signed)["url"]) as answer:
        assert answer.read() == bytes(range(256)) * 1000
    assert artifacts(uri, run, "headrace/outputs/none") == {}


def test_the_artifacts_of_a_run_that_left_none_are_empty(rig: RunsRig, uri: str):
    rig.headrace("run", "-q", "--id", "without", "--", "true")
    run = asked(uri, "without")["id"]
    assert set(artifacts(uri, run, "headrace")) == {"headrace/files.json", "headrace/run.json"}
    assert artifacts(uri, run, "headrace/outputs") == {}


@pytest.mark.parametrize("name", ["outputs", "outputs/plots/deep/a b.bin", "outputs/new", "checkpoints/7/weights.bin"])
def test_nobody_changes_a_runs_outputs_through_mlflow(over: tuple[RunsRig, str], shown: tuple[str, str], name: str):
    (rig, uri), (run, theirs) = over, shown
    before = {one: rig.read(run, one) for one in rig.names(run)}
    folder = f"0/{theirs}/artifacts/headrace"
    for path in (f"{folder}/{name}", f"{folder}/./{name}"):
        for method, at in (("PUT", "artifacts"), ("DELETE", "artifacts"), ("POST", "mpu/create")):
            body = json.dumps({"path": f"x/{name.rpartition('/')[2]}", "num_parts": 1}).encode()
            above = path.rpartition("/")[0] if method == "POST" else path
            status, text = called(uri, method, f"api/2.0/mlflow-artifacts/{at}/{above}", body)
            assert (status, b"read-only" in text) == (403, True), (method, path, text)
    assert {one: rig.read(run, one) for one in rig.names(run)} == before


@pytest.mark.parametrize("up", ["../run.json", "../../../x", "%2e%2e/run.json", "plots/../../logs"])
def test_no_path_leads_out_of_a_runs_outputs(uri: str, shown: tuple[str, str], up: str):
    (_, run), path = shown, f"headrace/outputs/{up}"
    assert called(uri, "GET", "get-artifact", run_id=run, path=path)[0] == 400
    assert called(uri, "GET", "api/2.0/mlflow/artifacts/list", run_id=run, path=path)[0] == 400
    proxied = f"api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/{path}"
    assert called(uri, "GET", proxied.replace("..", "%2e%2e"))[0] == 400


def test_a_note_that_names_something_else_than_a_run_of_the_home_shows_nothing(over: tuple[RunsRig, str], uri: str):
    rig, _ = over
    home = f"s3://{rig.bucket}/home"
    rig.store().put("home/outputs/secret", b"x")
    rig.store().put("home/runs/a/outputs/secret", b"x")
    other = f"s3://{rig.bucket}/other/runs/a"
    for url in (f"{home}/runs/..", f"{home}/runs/", home, f"{home}/runs/../../other/runs/a", other):
        body = json.dumps({"experiment_id": "0"}).encode()
        run = json.loads(called(uri, "POST", "api/2.0/mlflow/runs/create", body)[1])["run"]["info"]["run_id"]
        note = f"api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/headrace/run.json"
        assert called(uri, "PUT", note, json.dumps({"run": url}).encode())[0] == 200
        assert set(artifacts(uri, run, "headrace")) == {"headrace/run.json"}, url
        assert artifacts(uri, run, "headrace/outputs") == {}, url


def test_the_artifacts_tab_opens_a_runs_outputs(uri: str, shown: tuple[str, str], chromium: Browser):
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{uri}/#/experiments/0/runs/{shown[1]}/artifacts")
        for name in ("headrace", "outputs", "plots", "notes.txt"):
            page.get_by_text(name, exact=True).first.click()
        page.get_by_text("the second is better").wait_for()


def test_a_home_on_a_disk_shows_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """By what MLflow itself makes of the variables that its server is started with."""
    monkeypatch.setenv("PATH", trackers_kit.variables()["PATH"])
    home = Home(open_store(f"file://{tmp_path}"), "a home%20/")
    home.store.put(home.key("runs", "a", "outputs", "deep", "one.bin"), b"one")
    home.store.put(home.key("outputs", "secret"), b"of none of the runs")
    for folder, url in (("0/1", home.url("runs", "a")), ("0/2", home.url("runs", ".."))):
        home.store.put(home.key("mlflow", folder, "artifacts/headrace/run.json"), json.dumps({"run": url}).encode())
    made = mlflow_server(home, "", str(tmp_path / "state"), os.environ, Listening("127.0.0.1", 1), 1)
    ended = subprocess.run(
        [trackers_kit.TOOLS / "bin/python", "-c", ON_A_DISK], env=dict(made.environ), cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    assert found["listed"] == ["0/1/artifacts/headrace/outputs", "0/1/artifacts/headrace/run.json"]
    assert found["inside"] == ["0/1/artifacts/headrace/outputs/deep/one.bin"]
    assert found["bytes"] == ["one", "one", "one"]
    assert found["refused"] is True
    assert found["stray"] == ["0/2/artifacts/headrace/run.json"]
    assert found["seen"] == [2, 0], "by this `headrace mlflow` tells whether MLflow took the plugin"
    assert found["own"] == ["0/1/artifacts/headrace/run.json"], "without it MLflow serves what is its own"


ON_A_DISK = """
import json, os, pathlib, tempfile
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
uri, file = os.environ["MLFLOW_ARTIFACTS_DESTINATION"], "0/1/artifacts/headrace/outputs/deep/one.bin"
root, plain = get_artifact_repository(uri), LocalArtifactRepository(uri)
whole, single = (tempfile.mkdtemp(dir=os.getcwd()) for _ in range(2))
root.download_artifacts("0/1", whole)
paths = os.path.join(whole, file), root.download_artifacts(file, single), root.get_local_path(file)
try:
    root.delete_artifacts(file)
except MlflowException:
    refused = True
def names(repository, folder):
    return [one.path for one in repository.list_artifacts(folder)]
print(json.dumps({
    "listed": names(root, "0/1/artifacts/headrace"), "inside": names(root, "0/1/artifacts/headrace/outputs/deep"),
    "bytes": [pathlib.Path(one).read_text() for one in paths], "refused": refused,
    "stray": names(root, "0/2/artifacts/headrace"), "seen": [len(names(one, "headrace")) for one in (root, plain)],
    "own": names(plain, "0/1/artifacts/headrace"),
}))
"""


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
    theirs = asked(uri, rig.json("runs", "--limit", "1")[0]["id"])["id"]
    assert wait_for(lambda: "headrace/run.json" in artifacts(uri, theirs, "headrace"), 30), "its files, while it runs"
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
