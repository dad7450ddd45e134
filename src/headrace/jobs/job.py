"""A job at the moment it becomes a run: the spec, and what it meets here."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import headrace
from headrace.base.errors import InternalError, UnsupportedError
from headrace.jobs.environment import Bind, EnvironmentRequest, Invocation, Node, Prepared, prepare
from headrace.jobs.folder import RunFolder
from headrace.jobs.place import Place, Source
from headrace.jobs.spec import JobSpec, ResourceSpec
from headrace.tracking.record import RunRecord, as_name, new_id, now
from headrace.tracking.runs import Run

_OURS = ("HEADRACE_RUN_ID", "HEADRACE_OUTPUTS", "HEADRACE_SPOOL", "HEADRACE_RESUME", "HEADRACE_ATTEMPT")


class Job:
    """One run to be.

    Args:
        spec: what is wanted.
        source: where its code comes from.
        environ: the caller's environment, values and all; recorded are names, and what the spec allows.
        run_id: the run's; made of time and name if it is None.
        parent: ``{"run": id, "as": "rerun" | "resume"}``, of the run that this one repeats or goes on with.
        resumes: the run from whose newest complete checkpoint this one goes on.
        repeats: the record that this one is to be like.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        source: Source,
        environ: Mapping[str, str],
        run_id: str | None = None,
        parent: Mapping[str, Any] | None = None,
        resumes: Run | None = None,
        repeats: RunRecord | None = None,
    ) -> None:
        self.spec = spec
        self.repeats = repeats
        self.resumes = resumes
        self.name = as_name(spec.title)
        self.id = run_id or new_id(self.name)
        self._source = source
        self._place = Place("", None)
        self._prepared: Prepared | None = None
        self._environ = dict(environ)
        self._parent = parent
        self.offers: Mapping[str, str] = {}
        """Variables for the command, where it has none of that name."""

    def prepare(self, folder: RunFolder, cache: str, tell: Callable[[str], None]) -> None:
        """Bring together what the run needs before it is recorded. `cache`: folder for what later runs can use again;
        `tell` gets a line now and then. Raises any HeadraceError.
        """
        _refuse_unbuilt(self.spec)
        self._place = self._source.prepare(self.spec, folder)
        wanted = self.spec.environment
        request = EnvironmentRequest(wanted.lock, wanted.image, wanted.python)
        node = Node(cache, self._passed())
        self._prepared = prepare(request, self._place.folder, node, run=self.id, tell=tell)

    def close(self) -> None:
        """Let go of what `prepare` took hold of. Idempotent."""
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None

    @property
    def prepared(self) -> Prepared:
        """Its environment. After `prepare`."""
        if self._prepared is None:
            raise InternalError("the job is not prepared", path=self.id)
        return self._prepared

    def record(self) -> RunRecord:
        """What is written of it. After `prepare`."""
        code = self._place.code
        return RunRecord(
            id=self.id,
            name=self.name,
            created=now(),
            command=self.spec.argv,
            folder=self._place.folder,
            host=socket.gethostname(),
            user=_user(),
            headrace=headrace.__version__,
            spec=self.spec.as_json(),
            code=code.as_json() if code is not None else None,
            environment=self.prepared.environment.as_json(),
            variables=tuple(sorted(self._given() if self.spec.environment.image else self._passed())),
            parent=self._parent,
        )

    def invocation(self, folder: RunFolder, attempt: int, resume: str | None) -> Invocation:
        """What is started. `attempt` counts from 1; `resume`: the folder of the checkpoint to go on from."""
        ours = {
            "HEADRACE_RUN_ID": self.id,
            "HEADRACE_OUTPUTS": folder.recorded("outputs"),
            "HEADRACE_SPOOL": folder.at("spool"),
            "HEADRACE_ATTEMPT": str(attempt),
            **({"HEADRACE_RESUME": resume} if resume is not None else {}),
        }
        unbuffered = {} if "PYTHONUNBUFFERED" in self._environ else {"PYTHONUNBUFFERED": "1"}
        seen = [Bind(self._place.folder, writable=True), Bind(folder.recorded("outputs"), writable=True)]
        seen += [Bind(folder.recorded("checkpoints"), writable=True), Bind(folder.at("spool"), writable=True)]
        seen += [Bind(resume)] if resume is not None else []
        variables = {**unbuffered, **self._given(), **self._offered(), **ours}
        return self.prepared.command(
            self.spec.argv, folder=self._place.folder, variables=variables, binds=seen, terminal=os.isatty(0)
        )

    def _passed(self) -> dict[str, str]:
        """The caller's variables that may reach the command, and those that the spec sets."""
        return self._matching(self.spec.environment.pass_) | self._set()

    def _given(self) -> dict[str, str]:
        """What is set for the command beyond its environment's own: an image does not get what `*` would pass."""
        named = tuple(pattern for pattern in self.spec.environment.pass_ if pattern != "*")
        return self._matching(named) | self._set()

    def _offered(self) -> dict[str, str]:
        """Where the command speaks to the same tracking server. What an outer run was offered is not this one's."""
        passed, name = self._given() if self.spec.environment.image else self._passed(), "MLFLOW_TRACKING_URI"
        same = passed.get(name) == self._environ.get(name)
        has = self._set() if "HEADRACE_RUN_ID" in self._environ else passed
        return {key: value for key, value in self.offers.items() if same and key not in has}

    def _matching(self, patterns: tuple[str, ...]) -> dict[str, str]:
        return {
            name: value
            for name, value in self._environ.items()
            if name not in _OURS and any(fnmatchcase(name, pattern) for pattern in patterns)
        }

    def _set(self) -> dict[str, str]:
        return {name: value for name, value in self.spec.environment.variables.items() if value is not None}


def _refuse_unbuilt(spec: JobSpec) -> None:
    """What a file may say already and nothing acts on yet: better no run than one without it."""
    asked = {"inputs": bool(spec.inputs), "processes": spec.processes != 1}
    asked["resources"] = spec.resources != ResourceSpec()
    for field, wanted in asked.items():
        if wanted:
            raise UnsupportedError("is not acted on yet", path=field, hint="leave it out; later versions will know it")


def _user() -> str:
    """By name, or by number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
