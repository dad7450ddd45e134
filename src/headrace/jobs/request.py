"""A run that somebody asks for, and what leads it from this process: `run_here`, as `headrace run` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.base.errors import InputError
from headrace.base.settings import Settings, whole_environment
from headrace.jobs.inputs import Site
from headrace.jobs.job import Job
from headrace.jobs.place import AsItLies, Here, Recorded, Source
from headrace.jobs.runner import Outcome, Runner
from headrace.jobs.spec import JobSpec
from headrace.jobs.tasks.leading import Leading
from headrace.jobs.tasks.specs import swept
from headrace.namespace import Home, Namespace
from headrace.tracking.record import RunRecord, as_name
from headrace.tracking.recorded import AnyRun, as_run
from headrace.tracking.runs import Run, Runs

TASK_PROGRAM: Final = (sys.executable, "-m", "headrace.cluster.task_program")
"""What leads the run of one task, here or on a cluster, in a process of its own."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How the tasks of a job are run: as `Leading` has it."""

    at_once: int | None = None
    fresh: bool = False

    def check(self, spec: JobSpec) -> None:
        """Raises InputError: they are given, and the job has no tasks."""
        if not spec.task and (self.fresh or self.at_once is not None):
            option = "--fresh" if self.fresh else "--at-once"
            raise InputError("is for a job that has tasks", path=option, hint="write [[task]], or give --sweep")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to be.

    Args:
        spec: the job.
        source: where its code comes from.
        run_id: the run's; it must be new; None: made of time and name.
        parent: ``{"run": id, "as": "rerun" | "resume" | "task"}``, of the run that this one repeats, goes on with, or
            is a task of.
        resumes: the run from whose newest complete checkpoint this one goes on.
        repeats: the record that this one is to be like.
        tasks: how the job's tasks are run, if it has any.
        quiet: nothing of our own is written.
    """

    spec: JobSpec
    source: Source
    run_id: str | None = None
    parent: Mapping[str, str] | None = None
    resumes: Run | None = None
    repeats: RunRecord | None = None
    tasks: TaskOptions = field(default_factory=TaskOptions)
    quiet: bool = False

    @staticmethod
    def of(
        job: str | Sequence[str] | None, values: Mapping[str, object] | None = None, *,
        sweeps: Sequence[tuple[str, str]] = (), resume: AnyRun | None = None, go_on: bool = False,
        run_id: str | None = None, tasks: TaskOptions | None = None, quiet: bool = False,
    ) -> RunRequest:  # fmt: skip
        """A job file, or a command, with the code that is here: what `headrace run` asks for. Any thread.

        ``RunRequest.of("job.toml", {"grace": "1min"})``, ``RunRequest.of(["python", "train.py"], resume="latest")``.

        Args:
            job: path of a job file, whose folder the code is seen from; or a command and its arguments, seen from the
                working folder; None: the job of the run that is resumed.
            values: fields of the job that are to be otherwise, by their names in a file: ``{"command": ["true"]}``.
            sweeps: names of parameters and their values, as ``--sweep`` takes them: ``[("lr", "0.1,0.01")]``.
            resume: the run from whose newest complete checkpoint this one goes on.
            go_on: resume the newest run of this job's name, unless that has finished well.
            run_id: the run's; it must be new; None: made of time and name.
            tasks: how the job's tasks are run, if it has any.
            quiet: nothing of our own is written.

        Raises:
            InputError: no job; `go_on` and `resume`; a job of tasks goes on from no checkpoint. SettingError: the job
            cannot be so. NotFoundError: there is no such file, or no such run. Any store error.
        """
        if go_on and resume is not None:
            raise InputError("--go-on and --resume exclude each other", hint="leave one of them out")
        resumes = None if resume is None else as_run(resume)
        spec = swept(_job_of(job, resumes).with_flags(values or {}), sweeps).check()
        if spec.task and (go_on or resumes is not None):
            hint = "start it again: what is up to date is not run again"
            raise InputError("a job of tasks goes on from no checkpoint", path="--resume", hint=hint)
        if go_on:
            resumes = Runs(Home.of()).unfinished(as_name(spec.title))
        base = os.path.dirname(os.path.abspath(job)) if isinstance(job, str) else os.getcwd()
        parent = {"run": resumes.id, "as": "resume"} if resumes is not None else None
        return RunRequest(spec, Here(base), run_id, parent, resumes, tasks=tasks or TaskOptions(), quiet=quiet)

    @staticmethod
    def again(
        run: AnyRun, values: Mapping[str, object] | None = None, *, run_id: str | None = None, resume: bool = False,
        tasks: TaskOptions | None = None, quiet: bool = False,
    ) -> RunRequest:  # fmt: skip
        """The same as `run`, from its record alone: what `headrace rerun` asks for. `values`: fields of the job that
        are to be otherwise; `resume`: go on from the newest complete checkpoint of `run`; the others: as above.

        Raises:
            NotFoundError: there is no such run. InputError, SettingError: the job cannot be so. Any store error.
        """
        run = as_run(run)
        record = run.record()
        spec = JobSpec.from_json(record.spec, path=run.id).with_flags(values or {}).check()
        source = AsItLies(record.folder) if record.code is None else Recorded(run)
        parent = {"run": run.id, "as": "resume" if resume else "rerun"}
        return RunRequest(
            spec, source, run_id, parent, run if resume else None, record, tasks or TaskOptions(), quiet
        )

    @property
    def base(self) -> str:
        """The folder from where the code is seen."""
        return str(getattr(self.source, "base", os.getcwd()))

    @property
    def on_cluster(self) -> bool:
        """Whether a cluster's head leads it; a job of tasks is led here, and its tasks there."""
        return self.spec.cluster.on is not None and not self.spec.task

    def check(self) -> None:
        """Raises InputError: it asks for what there cannot be."""
        self.tasks.check(self.spec)
        more = self.spec.cluster.nodes > 1 or self.spec.cluster.workers is not None
        if more and self.spec.cluster.on is None:
            hint = "headrace run --on ray://HOST:10001 …"
            raise InputError("asks for more than this machine, but names no cluster", path="cluster.on", hint=hint)


def _job_of(job: str | Sequence[str] | None, resumes: Run | None) -> JobSpec:
    if isinstance(job, str):
        return JobSpec.load(job)
    if job:
        return JobSpec.from_command(job)
    if resumes is None:
        raise InputError("there is nothing to run", hint="headrace run -- python train.py, or headrace run job.toml")
    return JobSpec.from_json(resumes.record().spec, path=resumes.id)


def run_here(
    request: RunRequest,
    *,
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    passing: tuple[int, int] | None = (1, 2),
    started: Callable[[str, str], None] = lambda _run, _log: None,
) -> Outcome:
    """Run a job here, as a run that this process leads to its end. The environment is this process's.

    From the main thread it heeds signals: they are passed on to the command.
    ``run_here(RunRequest.of(["python", "train.py"]))``

    Args:
        request: what is to be run.
        namespace: where inputs are looked up; None: that of the settings.
        settings: home, folders of runs; None: `Settings.load`.
        passing: descriptors that get what the command writes; None: nobody looks.
        started: called with the run's id once it is recorded, and the path of a file for what there is to say then.

    Raises:
        InputError: as `RunRequest.check`. SettingError: no home is set. AlreadyExistsError: there is a run of this id.
        Any HeadraceError: it could not be recorded; nothing was started.
    """
    request.check()
    found = settings or Settings.load()
    space = namespace or Namespace.load(found)
    home = Home.of(space, found)
    job = Job(
        request.spec, source=request.source, environ=whole_environment(), run_id=request.run_id, parent=request.parent,
        resumes=request.resumes, repeats=request.repeats, site=Site(space, found),
        before=Run(home, request.parent["run"]) if request.parent else None, leads=bool(request.spec.task),
    )  # fmt: skip
    backend = None
    if request.spec.task:
        source, tasks = request.source, request.tasks
        recorded = source.run.id if isinstance(source, Recorded) else None
        backend = Leading(home, found.home or "", TASK_PROGRAM, request.base, recorded, tasks.at_once, tasks.fresh)
    return Runner(
        job, home, found.run, passing=passing, quiet=request.quiet, backend=backend,
        started=lambda log: started(job.id, log),
    ).run()  # fmt: skip
