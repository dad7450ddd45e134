"""A job at the moment it becomes a run: the spec, and what it meets here."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import headrace
from headrace.base.errors import InternalError
from headrace.jobs.environment import Bind, EnvironmentRequest, Invocation, Limits, Node, Prepared, prepare
from headrace.jobs.folder import RunFolder
from headrace.jobs.inputs import Site
from headrace.jobs.launch import launch
from headrace.jobs.place import Place, Source
from headrace.jobs.resources import Allotment, Machine
from headrace.jobs.spec import JobSpec
from headrace.jobs.spec_parts import ResourceSpec
from headrace.tracking.record import RunRecord, as_name, new_id, now, user
from headrace.tracking.runs import Run

if TYPE_CHECKING:
    from headrace.jobs.inputs.inputs import Inputs

_OURS = ("HEADRACE_RUN_ID", "HEADRACE_OUTPUTS", "HEADRACE_SPOOL", "HEADRACE_RESUME", "HEADRACE_ATTEMPT",
         "HEADRACE_INPUTS")  # fmt: skip


class Job:
    """One run to be.

    Args:
        spec: what is wanted.
        source: where its code comes from.
        environ: the caller's environment, values and all; recorded are names, and what the spec allows.
        run_id: the run's; made of time and name if it is None.
        parent: ``{"run": id, "as": "rerun" | "resume" | "task"}``, of the run that this one repeats, goes on with, or
            is a task of.
        resumes: the run from whose newest complete checkpoint this one goes on; see `resuming`.
        repeats: the record that this one is to be like.
        site: where inputs are looked up; None: it has none.
        before: the run whose pinned inputs are taken again.
        leads: it is a gang's, or one of tasks: what its processes need is brought together by a job each.
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
        site: Site | None = None,
        before: Run | None = None,
        leads: bool = False,
    ) -> None:
        self.spec = spec
        self.repeats = repeats
        self.resumes = resumes
        self.name = as_name(spec.title)
        self.id = run_id or new_id(self.name)
        self._source = source
        self._place = Place("", None)
        self._prepared: Prepared | None = None
        self._allotted: Allotment | None = None
        self._machine = Machine.here(environ)
        self._site, self._before, self._leads = site, before, leads
        self._inputs: Inputs | None = None
        self._environ = dict(environ)
        self._parent = parent
        self.offers: Mapping[str, str] = {}
        """Variables for the command, where it has none of that name."""

    def prepare(self, folder: RunFolder, cache: str, tell: Callable[[str], None]) -> None:
        """Bring together what the run needs before it is recorded. `cache`: folder for what later runs can use again;
        `tell` gets a line now and then. Raises any HeadraceError.
        """
        wanted = ResourceSpec() if self._leads else self.spec.resources
        self._allotted = Allotment(wanted, self._machine, os.path.join(cache, "claims"), self.id)
        self._place = self._source.prepare(self.spec, folder)
        wanted = self.spec.environment
        request = EnvironmentRequest(wanted.lock, wanted.image, wanted.python)
        node = Node(cache, self._passed())
        self._prepared = prepare(request, self._place.folder, node, run=self.id, tell=tell)
        if self.spec.inputs:
            if self._site is None:
                raise InternalError("there is nowhere to look inputs up", path=self.id)
            from headrace.jobs.inputs.inputs import Inputs

            self._inputs = Inputs(
                self.spec.inputs, self._site, folder, self.id, self._before, tell, give=not self._leads
            )

    def allot(self, waits: Callable[[str], None], stopped: Callable[[], bool]) -> bool:
        """Wait until its share of the machine is its own, if it is to: then only is it known. After `prepare`.

        `waits`: gets why it has to, each time that changes. False: it was to stop before.
        """
        return self.allotted.wait(waits, stopped)

    def release(self) -> None:
        """Others may have its share of the machine: nothing of it is started any more. Idempotent."""
        if self._allotted is not None:
            self._allotted.close()

    def close(self) -> None:
        """Let go of what `prepare` took hold of. Idempotent."""
        if self._inputs is not None:
            self._inputs.close()
            self._inputs = None
        if self._prepared is not None:
            self._prepared.close()
            self._prepared = None
        self.release()

    @property
    def allotted(self) -> Allotment:
        """Its share of the machine. After `prepare`."""
        if self._allotted is None:
            raise InternalError("the job is not prepared", path=self.id)
        return self._allotted

    @property
    def prepared(self) -> Prepared:
        """Its environment. After `prepare`."""
        if self._prepared is None:
            raise InternalError("the job is not prepared", path=self.id)
        return self._prepared

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know, one sentence each. After `prepare`."""
        brought = self._inputs.notes if self._inputs is not None else ()
        return (*self.prepared.notes, *self.allotted.notes, *brought)

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
            user=user(),
            headrace=headrace.__version__,
            spec=self.spec.as_json(),
            code=code.as_json() if code is not None else None,
            environment=self.prepared.environment.as_json(),
            inputs=self._inputs.as_json() if self._inputs is not None else {},
            variables=tuple(sorted(self._given() if self.spec.environment.image else self._passed())),
            parent=self._parent,
        )

    @property
    def gpus(self) -> tuple[str, ...]:
        """Those it has, by names as CUDA knows them. After `allot`."""
        return self._machine.gpus if self.allotted.gpus is None else self.allotted.gpus

    @property
    def processes(self) -> int:
        """How many its command is started as, on this machine. After `allot`."""
        return self.allotted.processes(self.spec.processes, self._machine)

    def invocation(
        self, folder: RunFolder, attempt: int, resume: str | None, *, launched: bool = True
    ) -> Invocation:
        """What is started. `attempt` counts from 1; `resume`: the folder of the checkpoint to go on from; `launched`:
        False, its processes are started by the caller, each with this. After `allot`.

        Raises UnsupportedError: an input's mount has died, and cannot be made again. InputError, NotFoundError.
        """
        if self._inputs is not None:
            self._inputs.renew()
        ours = {
            "HEADRACE_RUN_ID": self.id,
            "HEADRACE_OUTPUTS": folder.recorded("outputs"),
            "HEADRACE_SPOOL": folder.at("spool"),
            "HEADRACE_ATTEMPT": str(attempt),
            **({"HEADRACE_RESUME": resume} if resume is not None else {}),
            **self.allotted.variables(),
            **(self._inputs.variables() if self._inputs is not None else {}),
        }
        unbuffered = {} if "PYTHONUNBUFFERED" in self._environ else {"PYTHONUNBUFFERED": "1"}
        seen = [Bind(self._place.folder, writable=True), Bind(folder.recorded("outputs"), writable=True)]
        seen += [Bind(folder.recorded("checkpoints"), writable=True), Bind(folder.at("spool"), writable=True)]
        seen += [Bind(resume)] if resume is not None else []
        argv = launch(self.spec.argv, self.processes if launched else 1, here=self.spec.environment.image is None)
        seen += self._inputs.binds() if self._inputs is not None else []
        return self.prepared.command(
            argv, folder=self._place.folder, variables={**unbuffered, **self._given(), **self._offered(), **ours},
            binds=seen, terminal=os.isatty(0), limits=Limits(self.allotted.cpus, self.allotted.memory),
        )  # fmt: skip

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
