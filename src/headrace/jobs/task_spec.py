"""One task of a job, as its file says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

from headrace.jobs import spec_checks as check
from headrace.jobs import spec_fields as fields
from headrace.jobs import spec_kinds as kinds
from headrace.jobs import spec_values as values
from headrace.jobs.spec_errors import FieldError
from headrace.jobs.spec_parts import ClusterSpec, Declared, ResourceSpec, RetrySpec
from headrace.jobs.task_sweep import distinct


def _parameters(doc: str) -> Any:
    parse = partial(values.named, check=check.parameter, parse=_values)
    return fields.declare(parse, doc, {}, "table of values, or of lists of them")


def _values(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return distinct(values.each(cast("object", value), _value))
    return (_value(value),)


def _value(value: object) -> str:
    """As a command's argument has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else values.a_text(value)


@dataclass(frozen=True)
class TaskSpec(Declared):
    """One task: a command that is a run of its own, once for each combination of its parameters' values."""

    name: str = fields.text("name of the task; required, unlike all others", default="", check=check.task_name)
    command: tuple[str, ...] | str | None = kinds.command(
        "program and arguments, or one text for `sh -c`; where the task has parameters, `{lr}` is the value of `lr`, "
        "and `{{` a brace; required"
    )
    after: tuple[str, ...] = fields.texts("tasks that are finished first, and whose outputs it finds")
    parameters: Mapping[str, tuple[str, ...]] = _parameters(
        "values by name, numbers or texts; a list: it is run once for each; `--sweep` says others"
    )
    inputs: tuple[str, ...] | None = fields.some_texts("which of the job's inputs it reads; not said: all")
    tags: Mapping[str, str] = fields.names("besides those of the job, and its parameters", check=check.name)
    time_limit: float | None = fields.duration("of all its attempts together", default=None, positive=True)
    processes: Literal["auto"] | int = kinds.processes("as the job's own")
    retry: RetrySpec | None = field(
        default=None, metadata=fields.part(RetrySpec, "as `[retry]` of a job; written `[task.retry]`")
    )
    resources: ResourceSpec | None = field(
        default=None, metadata=fields.part(ResourceSpec, "as `[resources]`; written `[task.resources]`")
    )
    cluster: ClusterSpec | None = field(
        default=None, metadata=fields.part(ClusterSpec, "instead of `[cluster]`, but for `on`; `[task.cluster]`")
    )

    def agree(self) -> None:
        if self.command is None:
            raise FieldError("is missing", "command", hint='write command = ["python", "train.py"]')
