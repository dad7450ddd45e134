"""A job at the moment it becomes a run: the spec, and what it meets here."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import headrace
from headrace.jobs.again import describe_host
from headrace.jobs.folder import RunFolder
from headrace.jobs.place import Place, Source
from headrace.jobs.process import Invocation
from headrace.jobs.spec import JobSpec
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
    ) -> None:
        self.spec = spec
        self.resumes = resumes
        self.name = as_name(spec.title)
        self.id = run_id or new_id(self.name)
        self._source = source
        self._place = Place("", None)
        self._environ = dict(environ)
        self._parent = parent

    def prepare(self, folder: RunFolder) -> None:
        """Bring together what the run needs before it is recorded. Raises any HeadraceError."""
        self._place = self._source.prepare(self.spec, folder)

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
            environment=describe_host(),
            variables=tuple(sorted(self._passed())),
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
        return Invocation(self.spec.argv, {**unbuffered, **self._passed(), **ours}, self._place.folder)

    def _passed(self) -> dict[str, str]:
        wanted = self.spec.environment
        found = {
            name: value
            for name, value in self._environ.items()
            if name not in _OURS and any(fnmatchcase(name, pattern) for pattern in wanted.pass_)
        }
        return found | {name: value for name, value in wanted.variables.items() if value is not None}



def _user() -> str:
    """By name, or by number where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
