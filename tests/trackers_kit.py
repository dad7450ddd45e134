"""The real TensorBoard and MLflow, from `.tools/trackers`: as programs, and MLflow's own client to read back with."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
import urllib.error
import urllib.parse
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ROOT / ".tools/trackers"


def variables() -> dict[str, str]:
    """With which commands find the programs. Skips where they are not installed."""
    if not (TOOLS / ".headrace").exists():
        pytest.skip("TensorBoard and MLflow are not installed: scripts/framework-tools trackers")
    return {"PATH": f"{os.environ['PATH']}:{TOOLS / 'bin'}", "MLFLOW_DISABLE_TELEMETRY": "true"}


_READ = """
import json, pathlib, sys, mlflow
client, found = mlflow.MlflowClient(), {}
ids = [one.experiment_id for one in client.search_experiments()]
for run in client.search_runs(ids, filter_string=f"tags.`headrace.run_id` = '{sys.argv[1]}'"):
    history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
    def tree(path=None):
        for one in client.list_artifacts(run.info.run_id, path):
            yield from tree(one.path) if one.is_dir else [one.path]
    folder = pathlib.Path(client.download_artifacts(run.info.run_id, "headrace/outputs"))
    found[run.info.run_id] = {
        "id": run.info.run_id, "status": run.info.status, "name": run.info.run_name,
        "params": run.data.params, "tags": run.data.tags,
        "experiment": client.get_experiment(run.info.experiment_id).name, "artifacts": sorted(tree()),
        "uri": run.info.artifact_uri,
        "outputs": {str(one.relative_to(folder)): one.read_bytes().hex() for one in folder.rglob("*") if one.is_file()},
        "metrics": {name: [[one.step, str(one.value)] for one in rows] for name, rows in history.items()}}
print(json.dumps(found))
"""


def in_mlflow(uri: str, run: str) -> dict[str, Any]:
    """What MLflow's own client tells of the one MLflow run of a run."""
    ended = subprocess.run(
        [TOOLS / "bin/python", "-c", textwrap.dedent(_READ), run],
        env={**os.environ, "MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    (found,) = json.loads(ended.stdout.splitlines()[-1]).values()
    return found


def asked(uri: str, run: str) -> dict[str, Any]:
    """The same by MLflow's REST API, without artifacts: starting its client takes seconds."""
    found = _post(uri, "experiments/search", {"max_results": 1000})["experiments"]
    ids = [one["experiment_id"] for one in found]
    query = {"experiment_ids": ids, "filter": f"tags.`headrace.run_id` = '{run}'"}
    (told,) = _post(uri, "runs/search", query)["runs"]
    info, data = told["info"], told["data"]
    history: dict[str, list[Any]] = {}
    for one in data.get("metrics", []):
        query = urllib.parse.urlencode({"run_id": info["run_id"], "metric_key": one["key"]})
        with urllib.request.urlopen(f"{uri}/api/2.0/mlflow/metrics/get-history?{query}") as answer:
            history[one["key"]] = [[row["step"], str(row["value"])] for row in json.load(answer)["metrics"]]
    tags = {one["key"]: one["value"] for one in data["tags"]}
    return {"id": info["run_id"], "status": info["status"], "tags": tags, "metrics": history}


def artifacts(uri: str, run: str, folder: str = "", api: str = "api") -> dict[str, int | None]:
    """Those of an MLflow run, by MLflow's name of it, directly below a folder: paths, and sizes of files."""
    status, body = called(uri, "GET", f"{api}/2.0/mlflow/artifacts/list", run_id=run, path=folder)
    assert status == 200, body
    return {one["path"]: None if one["is_dir"] else int(one["file_size"]) for one in json.loads(body).get("files", ())}


def called(uri: str, method: str, call: str, body: bytes | None = None, **query: str) -> tuple[int, bytes]:
    """What MLflow answers, whatever it is."""
    url = f"{uri}/{urllib.parse.quote(call, safe='/%')}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def _post(uri: str, call: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{uri}/api/2.0/mlflow/{call}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def mirrors(pid: int) -> list[psutil.Process]:
    """The mirror's processes below a runner's."""
    found: list[psutil.Process] = []
    for one in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie, too
            found += [one] if "headrace.tracking.mirror" in one.cmdline() else []
    return found


def group(pid: int) -> list[int]:
    """Processes that a command has started, and those that they have."""
    return [one.pid for one in psutil.Process(pid).children(recursive=True)]


def alive(pids: list[int]) -> list[int]:
    found: list[int] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def said(process: subprocess.Popen[str], text: str, stream: str = "stdout") -> str:
    """The line with `text` in it, once it comes; the timeout is the test's own."""
    pipe = getattr(process, stream)
    for line in pipe:
        if text in line:
            return line
    raise AssertionError(f"it never said {text!r}: {process.stderr.read() if process.stderr else ''}")
