"""Models in the registry of a real MLflow server, which `headrace mlflow` started over PostgreSQL and a home in S3."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.base.ports import reserve_port
from headrace.models import Registry, alias, promote, publish, rm, rollback
from headrace.models.mirroring import mirror
from headrace.models.pointing import take_away
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.mlflow_client import MlflowServer
from tests import models_kit, trackers_kit
from tests.runs_rig import RunsRig
from tests.trackers_kit import TOOLS, group, said

pytestmark = pytest.mark.server
PASSWORD = "hush-postgres"
TRAIN = """
    import headrace as hr, os
    hr.log({"accuracy": 0.98}, step=1)
    for number in (1, 2):
        folder = os.environ["HEADRACE_OUTPUTS"] + f"/checkpoints/{number}"
        os.makedirs(folder + "/deep")
        open(folder + "/deep/weights.bin", "w").write(f"weights {number}")
        open(folder + "/COMMITTED", "w").close()
"""
DOWNLOADS = """
import json, pathlib, sys, mlflow
folder = pathlib.Path(mlflow.artifacts.download_artifacts(sys.argv[1]))
print(json.dumps({str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*.bin")}))
"""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """A cluster of its own, run by a user who is not root. Debian: postgresql."""
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    search = os.pathsep.join([*folders, os.environ["PATH"]])
    initdb, server = (shutil.which(name, path=search) for name in ("initdb", "postgres"))
    if initdb is None or server is None:
        pytest.skip("PostgreSQL is not installed: Debian package postgresql")
    user = None if os.getuid() else "nobody"
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    (folder / "password").write_text(PASSWORD)
    for path in (folder, folder / "password") if user is not None else ():
        os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    port, data = reserve_port(), str(folder / "data")
    made = [initdb, "-D", data, "-U", "mlflow", "--auth=scram-sha-256", f"--pwfile={folder}/password", "--no-sync"]
    subprocess.run(made, user=user, cwd="/", check=True, capture_output=True)
    options = ["-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"]
    process = subprocess.Popen([server, *options], user=user, cwd="/", stderr=subprocess.PIPE, text=True)
    try:
        said(process, "ready to accept connections", "stderr")
        yield f"postgresql://mlflow:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    variables = {**trackers_kit.variables(), "HEADRACE_RUN_MLFLOW_BACKEND": database}
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("mlflow-models"), variables)
    process = made.start("mlflow", "--port", "0")
    uri = re.sub("export MLFLOW_TRACKING_URI=", "", said(process, "export ")).strip()
    made.variables = {**made.variables, "MLFLOW_TRACKING_URI": uri}
    made.script(TRAIN)
    made.headrace("run", "-q", "--id", "one", "--", "python3", "train.py")
    for pid in (process.pid, *group(process.pid)):
        assert PASSWORD not in " ".join(psutil.Process(pid).cmdline())
    yield made
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert PASSWORD not in out + err
    made.close()


@pytest.fixture
def registry(rig: RunsRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """That of the same home in this process, where MLflow is told as well."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", rig.variables["MLFLOW_TRACKING_URI"])
    made, fetcher = models_kit.node(rig.server, f"s3://{rig.bucket}/home", tmp_path / "cache")
    yield made
    fetcher.close()


def downloaded(rig: RunsRig, model: str) -> dict[str, str]:
    """By MLflow's own client: names and texts."""
    variables = {**rig.environment, "MLFLOW_S3_ENDPOINT_URL": rig.server.endpoint}
    ended = subprocess.run(
        [TOOLS / "bin/python", "-c", DOWNLOADS, model],
        env=variables, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def told() -> tuple[dict[str, str], dict[str, str]]:
    """Aliases, and versions of ours, by MLflow's numbers."""
    server = MlflowServer.of_environment()
    assert server is not None
    model = server.get("registered-models/get", name="digits")["registered_model"]
    found = server.get("model-versions/search", filter="name='digits'")["model_versions"]
    tags = {one["version"]: {tag["key"]: tag["value"] for tag in one["tags"]} for one in found}
    aliases = {one["alias"]: one["version"] for one in model.get("aliases", ())}
    return aliases, {number: one["headrace.version"] for number, one in tags.items()}


def test_an_alias_is_the_same_bytes_in_mlflow(rig: RunsRig, registry: Registry) -> None:
    publish("one:1", "digits", registry=registry)
    alias("digits@prod", 1, registry=registry)
    rig.headrace("models", "publish", "one:2", "digits", "--alias", "staging")
    promote("digits@staging", registry=registry)
    assert told() == ({"prod": "2", "staging": "2"}, {"1": "digits@1", "2": "digits@2"})
    assert downloaded(rig, "models:/digits@prod") == {"deep/weights.bin": "weights 2"}
    mirrored = trackers_kit.asked(rig.variables["MLFLOW_TRACKING_URI"], "one")
    assert (mirrored["status"], mirrored["metrics"]["accuracy"]) == ("FINISHED", [[1, "0.98"]])
    left = trackers_kit.artifacts(rig.variables["MLFLOW_TRACKING_URI"], mirrored["id"], "headrace/checkpoints/2/deep")
    assert left == {"headrace/checkpoints/2/deep/weights.bin": len("weights 2")}
    rollback("digits@prod", registry=registry)
    take_away(registry, "digits@staging")
    rm("digits@2", registry=registry)
    assert told() == ({"prod": "1"}, {"1": "digits@1"})


def test_what_was_missed_is_made_up_for(
    rig: RunsRig, registry: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as away:
        away.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{reserve_port()}")
        publish("one:1", "late", registry=registry)
        alias("late@a.b", 1, registry=registry)
    assert "headrace models mirror late" in caplog.text, "it is published all the same"
    (row,) = rig.json("models", "mirror", "late")
    assert (row["made"], row["moved"], row["refused"]) == ([1], [], ["a.b"])
    server = MlflowServer.of_environment()
    assert server is not None
    assert mirror(registry, "late", server).made == (), "what is there is not made again"
