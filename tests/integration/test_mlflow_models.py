"""Models in the registry of a real MLflow server, which `headrace mlflow` started over a home in S3."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.base.ports import reserve_port
from headrace.testing.servers import EmbeddedS3
from tests import trackers_kit
from tests.runs_rig import RunsRig
from tests.trackers_kit import TOOLS, said

pytestmark = pytest.mark.server
TRAIN = """
    import headrace as hr, os
    hr.log({"accuracy": 0.98}, step=1)
    for number in (1, 2):
        folder = os.environ["HEADRACE_OUTPUTS"] + f"/checkpoints/{number}"
        os.makedirs(folder + "/deep")
        open(folder + "/deep/weights.bin", "w").write(f"weights {number}")
        open(folder + "/COMMITTED", "w").close()
"""
ASKS = """
import json, pathlib, sys, mlflow
client = mlflow.MlflowClient()
model = client.get_registered_model("digits")
versions = client.search_model_versions("name='digits'")
found = {"aliases": {name: int(number) for name, number in model.aliases.items()}}
found["versions"] = {one.tags["headrace.version"]: [int(one.version), one.run_id] for one in versions}
if len(sys.argv) > 1:
    folder = pathlib.Path(mlflow.artifacts.download_artifacts(sys.argv[1]))
    found["files"] = {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*.bin")}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path_factory.mktemp("mlflow-models"), trackers_kit.variables())
    process = made.start("mlflow", "--port", "0", "--backend", str(made.scratch / "kept.db"))
    uri = re.sub("export MLFLOW_TRACKING_URI=", "", said(process, "export ")).strip()
    made.variables = {**made.variables, "MLFLOW_TRACKING_URI": uri}
    made.script(TRAIN)
    made.headrace("run", "-q", "--id", "one", "--", "python3", "train.py")
    yield made
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    made.close()


def asked(rig: RunsRig, model: str = "") -> dict[str, Any]:
    """What MLflow's own client tells, and what it downloads."""
    variables = {**rig.environment, "MLFLOW_S3_ENDPOINT_URL": rig.server.endpoint}
    ended = subprocess.run(
        [TOOLS / "bin/python", "-c", ASKS, *([model] if model else [])],
        env=variables, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_an_alias_is_the_same_bytes_in_mlflow(rig: RunsRig) -> None:
    rig.headrace("models", "publish", "one:1", "digits", "--alias", "prod")
    rig.headrace("models", "publish", "one:2", "digits", "--alias", "staging")
    rig.headrace("models", "promote", "digits@staging")
    found = asked(rig, "models:/digits@prod")
    assert found["aliases"] == {"prod": 2, "staging": 2}
    assert found["files"] == {"deep/weights.bin": "weights 2"}
    run = trackers_kit.asked(rig.variables["MLFLOW_TRACKING_URI"], "one")["id"]
    assert found["versions"] == {"digits@1": [1, run], "digits@2": [2, run]}
    rig.headrace("models", "rollback", "digits@prod")
    rig.headrace("models", "alias", "digits@staging", "--remove")
    rig.headrace("models", "rm", "digits@2")
    found = asked(rig, "models:/digits@prod")
    assert (found["aliases"], list(found["versions"])) == ({"prod": 1}, ["digits@1"])
    assert found["files"] == {"deep/weights.bin": "weights 1"}


def test_what_was_missed_is_made_up_for(rig: RunsRig) -> None:
    away = dataclasses.replace(
        rig, variables={**rig.variables, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{reserve_port()}"}, processes=[]
    )
    told = away.headrace("models", "publish", "one:1", "late", "--alias", "a.b")
    assert "headrace models mirror late" in told.stderr, "it is published all the same"
    (row,) = rig.json("models", "mirror", "late")
    assert (row["made"], row["moved"], row["refused"]) == ([1], [], ["a.b"])
    (row,) = rig.json("models", "mirror", "late")
    assert row["made"] == [], "what is there is not made again"
    without = {name: value for name, value in rig.variables.items() if name != "MLFLOW_TRACKING_URI"}
    unset = dataclasses.replace(rig, variables=without, processes=[])
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    assert "is not set" in unset.headrace("models", "mirror", code=2).stderr
