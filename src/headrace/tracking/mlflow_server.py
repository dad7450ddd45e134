"""MLflow's tracking server over a home: what it is started with, so that neither side needs to be told of the bucket.

Artifacts go through the server (``--serve-artifacts``): clients need no credentials, the server has the home's. What is
secret stands in its environment, never in its command line, which everyone on the machine may read.

A plugin of ours (`mlflow_plugin/`) shows outputs and checkpoints of mirrored runs among their artifacts. The server
finds it by PYTHONPATH, whatever environment MLflow is installed in, and clients need none of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.base.errors import HeadraceError, UnsupportedError
from headrace.base.places import make_folder
from headrace.base.settings import Settings, whole_environment
from headrace.namespace.home import Home
from headrace.namespace.namespace import Namespace
from headrace.tracking.mlflow_client import MlflowServer
from headrace.tracking.program import Command, Program, address, choose_port, find_program

_URL = re.compile(r"[a-z][a-z0-9+]*://")
_PLUGIN: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mlflow_plugin")


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server is to be had."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ShownMlflow:
    """MLflow's server at work. `backend`: where it keeps runs, without what is secret; `artifacts`: where it keeps
    those; `hidden`: why outputs of runs are not among them, empty: they are; `log`: what it writes.
    """

    url: str
    backend: str
    artifacts: str
    hidden: str
    log: str
    program: Program


@contextmanager
def serving_mlflow(
    backend: str | None = None, *, host: str = "127.0.0.1", port: int = 0, workers: int = 1,
    settings: Settings | None = None,
) -> Generator[ShownMlflow]:  # fmt: skip
    """MLflow's tracking server over the home of the settings, running until the block ends. Main thread.

    Args:
        backend: a file for SQLite, or a URL of SQLAlchemy's; None: ``run.mlflow_backend``.
        host: address to listen on. It asks for no password.
        port: 0: 5000, or a free one.
        workers: processes that answer.
        settings: None: `Settings.load`.

    Raises:
        SettingError: no home is set. UnsupportedError: MLflow is not installed, or cannot keep artifacts in such a
        home. InputError: the port is taken. TryAgainError: it ended at once. DeadlineError: it does not answer.
    """
    found = settings or Settings.load()
    home = Home.of(Namespace.load(found), found)
    state = os.path.join(os.path.dirname(os.path.abspath(found.run.state)), "mlflow")
    chosen = backend if backend is not None else found.run.mlflow_backend
    where = Listening(host, choose_port(host, port, 5000))
    made = mlflow_server(home, chosen, state, whole_environment(), where, workers)
    url = address(where.host, where.port)
    with Program(made) as program:
        hidden = why_outputs_are_hidden(url)
        yield ShownMlflow(url, shown(backend_uri(chosen, state)), artifacts_of(home), hidden, made.log, program)


def mlflow_server(
    home: Home, backend: str, state: str, environ: Mapping[str, str], where: Listening, workers: int
) -> Command:
    """The command. `backend`: a file, or a URL of SQLAlchemy's; `state`: folder for a log, made if it is not there.

    Raises UnsupportedError: MLflow is not installed, or cannot keep artifacts in such a home. CredentialsError.
    """
    make_folder(state, "HEADRACE_RUN_STATE")
    argv = [
        find_program("mlflow", "mlflow"), "server", "--serve-artifacts", "--host", where.host, "--port",
        str(where.port), "--workers", str(workers),
    ]  # fmt: skip
    ours = {
        **home.store.variables(),
        "MLFLOW_BACKEND_STORE_URI": backend_uri(backend, state),
        "MLFLOW_ARTIFACTS_DESTINATION": _destination(home),
        "MLFLOW_DEFAULT_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, [_PLUGIN, environ.get("PYTHONPATH")])),
    }
    polite = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    dropped = ("MLFLOW_TRACKING_", "MLFLOW_RUN_ID")
    kept = {name: value for name, value in environ.items() if not name.startswith(dropped)}
    if "AWS_PROFILE" in ours:  # boto3 would take the others first
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            kept.pop(name, None)
    ready = f"{address(where.host, where.port)}/health"
    return Command(argv, {**polite, **kept, **ours}, state, os.path.join(state, "mlflow.log"), ready)


def backend_uri(backend: str, state: str) -> str:
    """As SQLAlchemy wants it. Empty: a file in `state`."""
    if _URL.match(backend):
        return re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", backend)  # else its version says which driver
    return f"sqlite:///{os.path.abspath(os.path.expanduser(backend or os.path.join(state, 'mlflow.db')))}"


def shown(backend: str) -> str:
    """The same without what may be secret."""
    return re.sub(r"://[^/@]*@", "://***@", re.sub(r"\?.*", "", backend))


def artifacts_of(home: Home) -> str:
    """Where MLflow keeps what clients log: ``<home>/mlflow``."""
    url = home.url("mlflow")
    if url.startswith("file://"):
        return url.removeprefix("file://")
    if not url.startswith(("s3://", "gs://")):
        hint = "MLflow keeps artifacts in s3://, gs:// and file:// homes"
        raise UnsupportedError("MLflow cannot keep artifacts there", path=url, hint=hint)
    return url


def why_outputs_are_hidden(url: str) -> str:
    """Why a server that was started, and answers, does not show outputs of runs; empty: it does."""
    try:
        return "" if MlflowServer(url).artifacts("headrace") else "it did not load headrace's plugin"
    except HeadraceError as error:
        return str(error)


def _destination(home: Home) -> str:
    """The same as a URL: MLflow chooses the plugin by its scheme."""
    kept = artifacts_of(home)
    return Path(kept).as_uri() if kept.startswith("/") else kept
