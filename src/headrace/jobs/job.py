"""A job at the moment it becomes a run: the spec, and what it meets here."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import headrace
from headrace.jobs.folder import RunFolder
from headrace.jobs.process import Invocation
from headrace.jobs.spec import JobSpec
from headrace.tracking.record import RunRecord, as_name, new_id, now
from headrace.tracking.runs import Run

_OURS = ("HEADRACE_RUN_ID", "HEADRACE_OUTPUTS", "HEADRACE_SPOOL", "HEADRACE_RESUME", "HEADRACE_ATTEMPT")


class Job:
    """One run to be.

    Args:
        spec: what is wanted.
        folder: where `headrace run` was called.
        environ: the caller's environment, values and all; recorded are names, and what the spec allows.
        run_id: the run's; made of time and name if it is None.
        parent: ``{"run": id, "as": "rerun" | "resume"}``, of the run that this one repeats or goes on with.
        resumes: the run from whose newest complete checkpoint this one goes on.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        folder: str,
        environ: Mapping[str, str],
        run_id: str | None = None,
        parent: Mapping[str, Any] | None = None,
        resumes: Run | None = None,
    ) -> None:
        self.spec = spec
        self.resumes = resumes
        self.name = as_name(spec.title)
        self.id = run_id or new_id(self.name)
        self._folder = os.path.normpath(os.path.join(os.path.realpath(folder), spec.folder))
        self._environ = dict(environ)
        self._parent = parent
        self._code: Mapping[str, Any] | None = None

    def prepare(self, folder: RunFolder) -> None:
        """Bring together what the run needs before it is recorded: code, environment, inputs."""

    def record(self) -> RunRecord:
        """What is written of it. After `prepare`."""
        return RunRecord(
            self.id, self.name, now(), self.spec.argv, self._folder, socket.gethostname(), getpass.getuser(),
            headrace.__version__, self.spec.as_json(), self._code, {}, {}, tuple(sorted(self._passed())), self._parent,
        )  # fmt: skip

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
        return Invocation(self.spec.argv, {**unbuffered, **self._passed(), **ours}, self._folder)

    def _passed(self) -> dict[str, str]:
        wanted = self.spec.environment
        found = {
            name: value
            for name, value in self._environ.items()
            if name not in _OURS and any(fnmatchcase(name, pattern) for pattern in wanted.pass_)
        }
        return found | {name: value for name, value in wanted.variables.items() if value is not None}

