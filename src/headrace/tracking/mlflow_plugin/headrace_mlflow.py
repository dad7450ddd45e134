# pyright: reportMissingImports=false, reportUntypedBaseClass=false
"""A plugin of MLflow's server: a mirrored run's outputs and checkpoints are among its artifacts, read-only, not copied.

`headrace mlflow` puts this folder on the server's PYTHONPATH, so MLflow may be installed without headrace: nothing but
MLflow and Python itself is imported here. Where MLflow does not take the plugin, its own classes serve the same URIs.

    <home>/mlflow/<experiment>/<MLflow's run>/artifacts/headrace/run.json    left by the mirror: which run it is
                                                        headrace/outputs/…   read from <home>/runs/<run>/outputs/…
                                                        headrace/checkpoints/…                      and so on

The interface: "MLflow Plugins", https://mlflow.org/docs/latest/ml/plugins/ , and `ArtifactRepository` in MLflow.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from mlflow.entities import FileInfo
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.gcs_artifact_repo import GCSArtifactRepository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from mlflow.store.artifact.s3_artifact_repo import S3ArtifactRepository

_SHOWN: Final = ("outputs", "checkpoints")
_FOLDER: Final = re.compile(r"(.+?/artifacts/headrace)(?:/(.+))?", re.DOTALL)
_PROBE: Final = "headrace"
"""A folder that only this plugin lists: `headrace mlflow` asks for it to see that it is there. No store is asked."""
_MOST_KNOWN: Final = 10_000  # runs remembered; then all are forgotten


class _Runs(ArtifactRepository):
    """What is added to one of MLflow's own repositories, for the root of all artifacts. Any thread."""

    own: Any
    """MLflow's class for such stores."""

    def __init__(self, artifact_uri: str, **more: Any) -> None:
        super().__init__(artifact_uri, **more)
        self._home = self.own(artifact_uri.rstrip("/").rpartition("/")[0])
        self._known: dict[str, str] = {}

    def list_artifacts(self, path: str | None = None) -> list[Any]:
        if path == _PROBE:
            return [FileInfo(f"{_PROBE}/{name}", True, None) for name in _SHOWN]
        folder, below = _split(path)
        run = self._run(folder) if folder and (not below or below[0] in _SHOWN) else None
        if run is None:
            return super().list_artifacts(path)
        start = f"runs/{run}/"
        found = [
            FileInfo(f"{folder}/{one.path.removeprefix(start)}", one.is_dir, one.file_size)
            for one in self._home.list_artifacts("/".join([f"runs/{run}", *below]))
        ]
        if below:
            return found
        shown = [one for one in found if one.is_dir and one.path.rpartition("/")[2] in _SHOWN]
        return sorted([*super().list_artifacts(path), *shown], key=lambda one: one.path)

    def _download_file(self, remote_file_path: str, local_path: str) -> None:
        place = self._place(remote_file_path)
        if place is None:
            super()._download_file(remote_file_path, local_path)
        else:
            self._home._download_file(place, local_path)

    def download_artifacts(self, artifact_path: str, dst_path: str | None = None) -> str:
        place = self._place(artifact_path)
        if place is None:
            return super().download_artifacts(artifact_path, dst_path)
        return self._home.download_artifacts(place, dst_path)

    def get_local_path(self, artifact_path: str) -> str | None:
        place = self._place(artifact_path)
        return super().get_local_path(artifact_path) if place is None else self._home.get_local_path(place)

    def get_download_presigned_url(self, artifact_path: str, **more: Any) -> Any:
        place = self._place(artifact_path)
        if place is None:
            return super().get_download_presigned_url(artifact_path, **more)
        return self._home.get_download_presigned_url(place, **more)

    # what changes something

    def log_artifact(self, local_file: str, artifact_path: str | None = None) -> None:
        _refuse(artifact_path, os.path.basename(local_file))
        super().log_artifact(local_file, artifact_path)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        _refuse(artifact_path)
        super().log_artifacts(local_dir, artifact_path)

    def log_artifact_from_stream(self, stream: Any, artifact_file_name: str, artifact_path: str | None = None) -> None:
        _refuse(artifact_path, artifact_file_name)
        super().log_artifact_from_stream(stream, artifact_file_name, artifact_path)

    async def log_artifact_from_async_stream(
        self, chunks: Any, artifact_file_name: str, artifact_path: str | None = None
    ) -> None:
        _refuse(artifact_path, artifact_file_name)
        await super().log_artifact_from_async_stream(chunks, artifact_file_name, artifact_path)

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        _refuse(artifact_path)
        super().delete_artifacts(artifact_path)

    def create_multipart_upload(self, local_file: str, num_parts: int = 1, artifact_path: str | None = None) -> Any:
        _refuse(artifact_path, os.path.basename(local_file))
        return super().create_multipart_upload(local_file, num_parts, artifact_path)

    # which run it is

    def _place(self, path: str) -> str | None:
        """Where in the home it lies; None: it is MLflow's own."""
        folder, below = _split(path)
        run = self._run(folder) if below and below[0] in _SHOWN else None
        return None if run is None else "/".join(["runs", run, *below])

    def _run(self, folder: str) -> str | None:
        """The run that the mirror's note in `folder` names; None: there is none, or it is another home's."""
        if folder not in self._known:
            with suppress(Exception):  # each kind of store tells in another way that there is none
                run = self._noted(f"{folder}/run.json")
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[folder] = run
        return self._known.get(folder)

    def _noted(self, path: str) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            here = os.path.join(scratch, "run.json")
            super()._download_file(path, here)
            with open(here, encoding="utf-8", errors="surrogateescape") as file:
                url = str(json.load(file)["run"])
        runs, _, run = url.rpartition("/")
        if runs != f"{self._url()}/runs" or run in ("", ".", ".."):
            raise ValueError(f"{url} is not of this home")
        return run

    def _url(self) -> str:
        """The home's, as headrace spells it."""
        if isinstance(self._home, LocalArtifactRepository):
            return f"file://{self._home.artifact_dir}"
        return str(self._home.artifact_uri)


class _S3(_Runs, S3ArtifactRepository):
    own = S3ArtifactRepository


class _GS(_Runs, GCSArtifactRepository):
    own = GCSArtifactRepository


class _Local(_Runs, LocalArtifactRepository):
    own = LocalArtifactRepository


def s3(artifact_uri: str, **more: Any) -> Any:
    """For `s3://…`."""
    return _made(_S3, artifact_uri, more)


def gs(artifact_uri: str, **more: Any) -> Any:
    """For `gs://…`."""
    return _made(_GS, artifact_uri, more)


def file(artifact_uri: str, **more: Any) -> Any:
    """For `file://…`."""
    return _made(_Local, artifact_uri, more)


def _made(kind: Any, uri: str, more: dict[str, Any]) -> Any:
    """MLflow's own for all but the root of the server's artifacts."""
    return (kind if uri == os.environ.get("MLFLOW_ARTIFACTS_DESTINATION") else kind.own)(uri, **more)


def _split(path: str | None) -> tuple[str, Sequence[str]]:
    """The folder `headrace` of one of MLflow's runs, and the names below it; an empty text: it is not in one."""
    names = [one for one in (path or "").split("/") if one not in ("", ".")]
    found = _FOLDER.fullmatch("/".join(names))
    if found is None:
        return "", []
    if ".." in names:
        raise MlflowException.invalid_parameter_value("Invalid path")
    return found[1], found[2].split("/") if found[2] else []


def _refuse(folder: str | None, *name: str) -> None:
    """Raises MlflowException: what lies there is read-only."""
    _, below = _split("/".join([folder or "", *name]))
    if below and below[0] in _SHOWN:
        text = f"headrace/{below[0]} is the run's in the bucket, and read-only here"
        raise MlflowException(text, error_code=PERMISSION_DENIED)
