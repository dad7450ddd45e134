"""One run, kept in step in MLflow. What is there already is found again, so any of it may be said twice.

The run is found by its tag `headrace.run_id`, and how far its metrics are by `headrace.segments_sent`: who is killed in
between sends one segment again, and MLflow keeps a point (name, time, step, value) once. See design/011-mlflow.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from headrace.base.errors import CorruptError, DeniedError, HeadraceError, InputError, NotFoundError
from headrace.base.settings import environment
from headrace.store.protocol import Store
from headrace.tracking import mlflow_form as form
from headrace.tracking.mlflow_client import MlflowServer
from headrace.tracking.record import RunRecord, Status
from headrace.tracking.runs import Run

_METRICS, _PARAMS = 1000, 100
"""Most in one request, by MLflow."""
_FILES: Final = 10_000
"""Of a run that are linked to; more would make its page useless."""
_EXPERIMENTS: Final = 1000
"""Most in one answer, by MLflow."""
_PROXY: Final = "mlflow-artifacts:"


@dataclass(frozen=True, slots=True)
class Source:
    """What is mirrored: a run's record, and its folder in a store, here or in the bucket. `url`: its home's."""

    record: RunRecord
    store: Store
    prefix: str
    url: str


class MlflowMirror:
    """One thread. Every call may raise what `MlflowServer` does; it is then called again later, and goes on.

    `everywhere`: the run may be in any experiment already, not only in that of the standard variables.
    """

    def __init__(self, server: MlflowServer, source: Source, *, everywhere: bool = False) -> None:
        self._server, self._source = server, source
        self._began_ms = form.millis(source.record.created)
        self._everywhere = everywhere
        self._artifacts = self._parent = ""
        self._told = self._noted = False
        self._experiment = ""
        self.id = ""
        """MLflow's, once `begin` has been there."""
        self.sent = -1
        """Number of the last segment that is there."""
        self.points = 0
        self.refused = 0
        """Points that MLflow does not take."""

    @property
    def url(self) -> str:
        """For people."""
        return f"{self._server.url}/#/experiments/{self._experiment}/runs/{self.id}"

    def begin(self) -> None:
        """Find the run, or make it."""
        if not self.id:
            self._keep(self._given() or self._found() or self._made())

    def follow(self) -> None:
        """What it was told when it began, and every segment of metrics since the last one."""
        self.begin()
        self._tell()
        for number, table in _segments(self._source, self.sent):
            columns = table.select(["time", "step", "rank", "name", "value"])
            rows = list(zip(
                columns.column("time").cast("int64").to_pylist(), *(one.to_pylist() for one in columns.columns[1:]),
                strict=True,
            ))  # fmt: skip
            for lot in _lots(form.metrics(rows, self._began_ms), _METRICS):
                self._log(lot)
            self.sent = number
            self._tag(form.SENT, str(number + 1))

    def finish(self, status: Status) -> None:
        """How it ended, after the last of its metrics. The files it left are told by name."""
        self.follow()
        with suppress(InputError, NotFoundError):  # a server without the proxy
            self._note()
            self._list_files()
        self._tag("headrace.state", status.state)
        if status.exit_code is not None:
            self._tag("headrace.exit_code", str(status.exit_code))
        if status.reason:
            self._tag("headrace.reason", status.reason)
        told = {"run_id": self.id, "status": form.STATES[status.state], "end_time": form.millis(status.time)}
        self._server.post("runs/update", told)

    # the run

    def _log(self, lot: Sequence[Any]) -> None:
        """Points that are refused keep no others away."""
        try:
            self._server.post("runs/log-batch", {"run_id": self.id, "metrics": lot})
            self.points += len(lot)
        except InputError:
            if len(lot) > 1:
                self._log(lot[: len(lot) // 2])
                self._log(lot[len(lot) // 2 :])
            elif self._server.get("runs/get", run_id=self.id)["run"]["info"].get("lifecycle_stage") == "deleted":
                raise DeniedError("the run was deleted in MLflow", path=self.id) from None
            else:
                self.refused += 1

    def _given(self) -> Mapping[str, Any] | None:
        """That of MLFLOW_RUN_ID, which whoever started us wants it to be; below it, if it is another run's of ours."""
        given = environment("MLFLOW_RUN_ID")
        if not given:
            return None
        run: Mapping[str, Any] = self._server.get("runs/get", run_id=given)["run"]
        if _tags(run).get(form.RUN_ID, self._source.record.id) == self._source.record.id:
            return run
        self._parent = given
        return None

    def _found(self) -> Mapping[str, Any] | None:
        self._experiment = self._experiment or self._chosen_experiment()
        name = self._source.record.id
        return find_run(self._server, name, None if self._everywhere else self._experiment)

    def _made(self) -> Mapping[str, Any]:
        record = self._source.record
        tags = {form.RUN_ID: record.id} | ({"mlflow.parentRunId": self._parent} if self._parent else {})
        body = {
            "experiment_id": self._experiment, "start_time": self._began_ms, "run_name": record.id,
            "user_id": record.user, "tags": _pairs(tags),
        }  # fmt: skip
        return self._server.post("runs/create", body)["run"]

    def _keep(self, run: Mapping[str, Any]) -> None:
        told = _tags(run)
        self._experiment = str(run["info"]["experiment_id"])
        self._artifacts = str(run["info"].get("artifact_uri") or "")
        mine = told.get(form.RUN_ID) == self._source.record.id
        with suppress(ValueError):
            self.sent = int(told.get(form.SENT, "0")) - 1 if mine else -1
        self.id = str(run["info"]["run_id"])

    def _chosen_experiment(self) -> str:
        """By the standard variables; else MLflow's own default."""
        name = environment("MLFLOW_EXPERIMENT_NAME")
        if name is None:
            return environment("MLFLOW_EXPERIMENT_ID") or "0"
        with suppress(NotFoundError):
            return str(self._server.get("experiments/get-by-name", experiment_name=name)["experiment"]["experiment_id"])
        return str(self._server.post("experiments/create", {"name": name})["experiment_id"])

    def _tell(self) -> None:
        if self._told:
            return
        params = _pairs(form.parameters(self._source.record))
        told = _pairs(form.tags(self._source.record, self._source.url))
        for lot in _lots(iter(told), _PARAMS):
            self._server.post("runs/log-batch", {"run_id": self.id, "tags": lot})
        for lot in _lots(iter(params), _PARAMS):
            try:
                self._server.post("runs/log-batch", {"run_id": self.id, "params": lot})
            except InputError:  # the job has logged one of them with another value, which stays
                for one in lot:
                    with suppress(InputError):
                        self._server.post("runs/log-batch", {"run_id": self.id, "params": [one]})
        self._told = True
        with suppress(HeadraceError):  # metrics do not wait for artifacts; tried again at the end
            self._note()

    def _note(self) -> None:
        """By this the server of `headrace mlflow` shows the run's own files; see `mlflow_plugin/headrace_mlflow.py`."""
        if not self._noted:
            self._put("run.json", {"run": self._source.url})
            self._noted = True

    def _list_files(self) -> None:
        rows = [{"name": name, "bytes": size, "url": f"{self._source.url}/{name}"} for name, size in self._files()]
        self._put("files.json", {"run": self._source.url, "files": rows})

    def _put(self, name: str, told: Mapping[str, Any]) -> None:
        if not self._artifacts.startswith(_PROXY):
            return
        path = self._artifacts.removeprefix(_PROXY)
        path = path.split("/", 3)[-1] if path.startswith("//") else path.lstrip("/")
        text = json.dumps(told, indent=1, ensure_ascii=False)
        self._server.put_artifact(f"{path}/headrace/{name}", text.encode("utf-8", "surrogateescape"))

    def _files(self) -> Iterator[tuple[str, int]]:
        store, start = self._source.store, self._source.prefix
        for folder in ("outputs/", "checkpoints/"):
            infos = (info for page in store.list(start + folder) for info in page)
            yield from ((info.key.removeprefix(start), info.size) for info in islice(infos, _FILES))

    def _tag(self, key: str, value: str) -> None:
        self._server.post("runs/set-tag", {"run_id": self.id, "key": key, "value": value})


def send(run: Run, server: MlflowServer | None = None) -> MlflowMirror:
    """Send a run from the bucket; what is there already is not sent again. `server`: None: that of the environment.

    One thread. Raises SettingError: there is no server. As `MlflowServer`, and any store error.
    """
    view = run.look()
    source = Source(view.record, run.store, run.prefix, run.url)
    mirror = MlflowMirror(server or MlflowServer.needed(), source, everywhere=True)
    mirror.follow()
    if view.over:
        mirror.finish(view.ended)
    return mirror


def find_run(server: MlflowServer, name: str, experiment: str | None = None) -> Mapping[str, Any] | None:
    """The MLflow run that mirrors a run; None: there is none. `experiment`: only of this one.

    Raises as `MlflowServer`.
    """
    ids = [experiment]
    if experiment is None:
        told = server.post("experiments/search", {"max_results": _EXPERIMENTS}).get("experiments") or []
        ids = [str(one["experiment_id"]) for one in told]
    wanted = name.replace("'", "")
    body = {"experiment_ids": ids, "max_results": 1, "filter": f"tags.`{form.RUN_ID}` = '{wanted}'"}
    return next(iter(server.post("runs/search", body).get("runs") or []), None)


def _segments(source: Source, after: int) -> Iterator[tuple[int, Any]]:
    """A damaged one is left out: the run's record has it, and says so."""
    from headrace.tracking.reading import read_segments  # not needed to begin, and slow to import

    while True:
        try:
            for number, table in read_segments(source.store, f"{source.prefix}metrics/", after=after):
                yield number, table
                after = number
            return
        except CorruptError:
            after += 1


def _tags(run: Mapping[str, Any]) -> dict[str, str]:
    return {str(one["key"]): str(one["value"]) for one in run.get("data", {}).get("tags") or ()}


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _lots(rows: Iterator[Any], most: int) -> Iterator[Sequence[Any]]:
    while lot := list(islice(rows, most)):
        yield lot
