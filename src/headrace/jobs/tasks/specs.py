"""The jobs that tasks become, each a run of its own; and a job of one command as one of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.jobs import task_sweep
from headrace.jobs.spec import JobSpec
from headrace.jobs.spec_errors import FieldError
from headrace.jobs.spec_parts import ClusterSpec, InputSpec, ResourceSpec, RetrySpec
from headrace.jobs.spec_values import at
from headrace.jobs.task_graph import Planned
from headrace.jobs.task_spec import TaskSpec
from headrace.namespace.home import Home
from headrace.tracking.newest import newest_checkpoint
from headrace.tracking.record import RUNS
from headrace.tracking.runs import Run


@dataclass(frozen=True, slots=True)
class Left:
    """What a task that is over has left: `run`, its id; URLs of its `outputs` and newest complete `checkpoint`, None:
    there is none.
    """

    task: str
    run: str
    outputs: str | None
    checkpoint: str | None


def swept(spec: JobSpec, sweeps: Sequence[tuple[str, str]]) -> JobSpec:
    """A job whose parameters take these values: names, and texts as `task_sweep.values` reads them. A job of one
    command becomes one of a single task, and its parameters are those that are named here.

    Raises SettingError: as `task_sweep.values`; no task has such a parameter, or the command does not use it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for name, text in sweeps:
        if name in found:
            raise FieldError("is given twice", "--sweep", name, hint="write all of its values with commas")
        found[name] = at(lambda text=text: task_sweep.values(text), "--sweep", name)
    if not found:
        return spec
    if not spec.task:
        return _as_tasks(spec, found)
    for name in found:
        if not any(name in one.parameters for one in spec.task):
            known = sorted({name for one in spec.task for name in one.parameters})
            hint = f"there are {', '.join(known)}" if known else "write it below [task.parameters]"
            raise FieldError("no task has such a parameter", "--sweep", name, hint=hint)
    tasks = [
        replace(one, parameters={name: found.get(name, values) for name, values in one.parameters.items()})
        for one in spec.task
    ]
    return replace(spec, task=tuple(tasks))


def _as_tasks(spec: JobSpec, parameters: Mapping[str, tuple[str, ...]]) -> JobSpec:
    name = re.sub(r"[^A-Za-z0-9_-]", "-", spec.title)[:90]
    one = TaskSpec(
        name=name if name[0].isalpha() else f"task-{name}", command=spec.command, parameters=parameters,
        time_limit=spec.time_limit, processes=spec.processes, retry=spec.retry, resources=spec.resources,
    )  # fmt: skip
    return replace(
        spec, name=spec.title, command=None, time_limit=None, processes=1, retry=RetrySpec(), resources=ResourceSpec(),
        task=(one,),
    )  # fmt: skip


def spec_of(job: JobSpec, planned: Planned, before: Iterable[Left]) -> JobSpec:
    """The job that one of its tasks is. `before`: what those have left that it comes after."""
    task = planned.task
    cluster = replace(task.cluster or ClusterSpec(), on=job.cluster.on) if task.cluster is not None else job.cluster
    inputs = {name: one for name, one in job.inputs.items() if task.inputs is None or name in task.inputs}
    return replace(
        job, task=(), name=job.title if len(job.task) == 1 else f"{job.title}-{task.name}", command=planned.command,
        tags={**job.tags, "task": task.name, **task.tags, **planned.parameters}, time_limit=task.time_limit,
        processes=task.processes, retry=task.retry or RetrySpec(), resources=task.resources or ResourceSpec(),
        cluster=cluster, inputs={**inputs, **_brought(before)},
    )  # fmt: skip


def _brought(before: Iterable[Left]) -> dict[str, InputSpec]:
    """As inputs, which are pinned and recorded as others are."""
    found: dict[str, InputSpec] = {}
    for number, one in enumerate(before, 1):
        name = one.task.upper().replace("-", "_")
        for kind, source in (("task", one.outputs), ("checkpoint", one.checkpoint)):
            if source is not None:
                variable = f"HEADRACE_{kind.upper()}_{name}"
                found[f"{kind}-{number}-{one.task}"[:100]] = InputSpec(source=source, as_="copy", variable=variable)
    return found


def left_by(task: str, run: Run, home: Home, where: str) -> Left:
    """What a task's run has left. `where`: the home, as settings name it. Raises any store error."""
    at_run = f"{where.rstrip('/')}/{RUNS}/{run.id}"
    pages = home.store.list(f"{run.prefix}outputs/")
    outputs = f"{at_run}/outputs" if any(len(page) for page in pages) else None
    newest = newest_checkpoint(run)
    return Left(task, run.id, outputs, None if newest is None else f"{at_run}/checkpoints/{newest.name}")

