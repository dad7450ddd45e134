"""A run in MLflow's words; what its server is started with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headrace.base.errors import UnsupportedError
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.store.protocol import StoreOptions
from headrace.tracking import mlflow_form as form
from headrace.tracking.mlflow_client import MlflowServer
from headrace.tracking.mlflow_server import artifacts_of, backend_uri, shown
from headrace.tracking.record import RunRecord

BEGAN = "2026-01-01T00:00:00.000Z"


def record(*command: str, **more: object) -> RunRecord:
    return RunRecord("id", "name", BEGAN, command, "/", "host", "user", "0", **more)  # pyright: ignore


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["--lr", "0.1"], {"lr": "0.1"}),
        (["--lr=0.1", "--amp", "--wd", "-1e-4"], {"lr": "0.1", "amp": "true", "wd": "-1e-4"}),
        (["model.lr=3", "+data.path=a=b"], {"model.lr": "3", "data.path": "a=b"}),
        (["-b", "64", "-v", "--name", "a b"], {"b": "64", "name": "a b"}),
        (["--max-tokens", "512", "--hf-token", "xyz", "--api_key=xyz"], {
            "max-tokens": "512", "hf-token": "***", "api_key": "***",
        }),
        (["db.password=xyz"], {"db.password": "***"}),
    ],
)  # fmt: skip
def test_flags_are_parameters_and_secrets_are_not(command: list[str], flags: dict[str, str]):
    found = form.parameters(record("python", *command))
    whole = found.pop("command")
    assert found == flags
    assert whole.startswith("python ")
    assert "xyz" not in whole
    assert "xyz" not in str(form.tags(record("python", *command), "s3://b/runs/id"))


def test_fields_of_the_job_are_parameters():
    found = form.parameters(record("x", spec={"retry": {"attempts": 3, "exit_codes": []}, "tags": {"a": "b"}}))
    assert found == {"command": "x", "job.retry.attempts": "3"}


def test_what_is_too_long_is_cut():
    told = form.parameters(record("x", f"--{'n' * 400}", "v" * 9000))
    assert {(len(name), len(value)) for name, value in told.items() if name != "command"} == {(250, 6000)}
    assert len(told["command"]) == 6000


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("loss", 1.0, ("loss", 1.0)),
        ("a//b/../c?", 1.0, ("a/b/c_", 1.0)),
        ("system/cpu", 50.0, ("system/cpu_utilization_percentage", 50.0)),
        ("system/cpu/3", 50.0, None),
        ("system/memory_used", 2e6, ("system/system_memory_usage_megabytes", 2.0)),
        ("system/gpu/1/memory_used", 3e6, ("system/gpu_1_memory_usage_megabytes", 3.0)),
        ("system/gpu/1/utilization", 9.0, ("system/gpu_1_utilization_percentage", 9.0)),
        ("system/gpu/1/temperature", 60.0, ("system/gpu/1/temperature", 60.0)),
        ("job/memory", 5.0, ("system/job/memory", 5.0)),
        ("headrace/loader.wait_s", 0.5, None),
        ("headrace/dropped", 7.0, ("headrace/dropped", 7.0)),
        ("nan", math.nan, ("nan", "NaN")),
        ("inf", -math.inf, ("inf", "-Infinity")),
    ],
)
def test_metrics_have_names_that_mlflow_knows(name: str, value: float, told: tuple[str, object] | None):
    found = [(one["key"], one["value"]) for one in form.metrics([(0, 1, 0, name, value)], 0)]
    assert found == ([] if told is None else [told])


def test_steps_and_ranks():
    began = form.millis(BEGAN)
    rows = [(began * 1000 + 7_900_000, None, 0, "a", 1.0), (began * 1000, 5, 2, "a", 1.0), (0, None, 0, "a", 1.0)]
    found = [(one["key"], one["step"]) for one in form.metrics(rows, began)]
    assert found == [("a", 7), ("rank_2/a", 5), ("a", 0)]


def test_no_secret_of_an_address_is_shown(monkeypatch: pytest.MonkeyPatch):
    assert shown("postgresql://me:pass@host/db?password=x") == "postgresql://***@host/db"
    assert MlflowServer("https://me:pass@host:5000/base/").url == "https://host:5000/base"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks://me:pass@x")
    with pytest.raises(UnsupportedError) as raised:
        MlflowServer.of_environment()
    assert "pass" not in str(raised.value)


def test_the_backend_and_the_artifacts_of_a_server(tmp_path: Path):
    assert backend_uri("", "/state") == "sqlite:////state/mlflow.db"
    assert backend_uri("/a/b.db", "/state") == "sqlite:////a/b.db"
    assert backend_uri("postgres://host/db", "/state") == "postgresql+psycopg://host/db"
    assert backend_uri("postgresql+psycopg2://host/db", "/state") == "postgresql+psycopg2://host/db"
    assert artifacts_of(Home(open_store(f"file://{tmp_path}"), "home/")) == f"{tmp_path}/home/mlflow"
    with pytest.raises(UnsupportedError):
        artifacts_of(Home(open_store("memory://x")))


def test_the_servers_variables_are_those_of_the_home(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "not")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "these")
    options = StoreOptions(
        endpoint="http://127.0.0.1:9", region="r", access_key_id="k", secret_access_key="s", session_token="t"
    )
    assert open_store("s3://bucket", options).variables() == {
        "AWS_REGION": "r", "AWS_DEFAULT_REGION": "r", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "MLFLOW_S3_ENDPOINT_URL": "http://127.0.0.1:9", "MLFLOW_BOTO_CLIENT_ADDRESSING_STYLE": "path",
        "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t",
    }  # fmt: skip
