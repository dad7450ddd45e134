"""What a job is: its command, inputs, code, environment, outputs, retries and resources, as frozen data.

Read from ``job.toml`` (`JobSpec.load`), from a command (`JobSpec.from_command`), and from flags over either
(`JobSpec.with_flags`). Every field says what it means in its metadata; ``docs/reference/job.md`` is made of it. All
sizes are bytes and all durations seconds. Any thread may call anything here; nothing is looked up, started or written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from headrace.base.errors import UnsupportedError
from headrace.jobs import spec_checks as check
from headrace.jobs import spec_fields as fields
from headrace.jobs import spec_kinds as kinds
from headrace.jobs import task_graph
from headrace.jobs.spec_errors import FieldError
from headrace.jobs.spec_flags import override
from headrace.jobs.spec_parts import (
    ClusterSpec,
    CodeSpec,
    Declared,
    EnvironmentSpec,
    InputSpec,
    OutputSpec,
    ResourceSpec,
    RetrySpec,
)
from headrace.jobs.spec_toml import read_toml, write_toml
from headrace.jobs.spec_values import at
from headrace.jobs.task_spec import TaskSpec

FORMAT: Final = 1


@dataclass(frozen=True)
class JobSpec(Declared):
    """One job.

    Raises:
        SettingError: a value that its field does not take, or fields that exclude each other; names the field.
    """

    name: str | None = fields.text("name of the job; none: made from the command", check=check.name)
    command: tuple[str, ...] | str | None = kinds.command("program and arguments; one text is run by `sh -c`")
    folder: str = fields.text("working folder, below the code's root", default=".", check=check.inside)
    time_limit: float | None = fields.duration(
        "of all attempts together, from when the command is first started", default=None, positive=True
    )
    grace: float = fields.duration("time between SIGTERM and SIGKILL when it is stopped", default="30s")
    tags: Mapping[str, str] = fields.names("anything to find the run by", check=check.name)
    processes: Literal["auto"] | int = kinds.processes(
        "processes, started by torchrun's launcher if more than one; `auto`: one a GPU"
    )
    inputs: Mapping[str, InputSpec] = fields.many(
        InputSpec, "source", "what it reads; a text stands for its `source`", check=check.input_name
    )
    code: CodeSpec = field(default_factory=CodeSpec, metadata=fields.section(CodeSpec, "the code that runs"))
    environment: EnvironmentSpec = field(
        default_factory=EnvironmentSpec, metadata=fields.section(EnvironmentSpec, "what it runs in")
    )
    outputs: OutputSpec = field(default_factory=OutputSpec, metadata=fields.section(OutputSpec, "what it writes"))
    retry: RetrySpec = field(default_factory=RetrySpec, metadata=fields.section(RetrySpec, "when it is started again"))
    resources: ResourceSpec = field(
        default_factory=ResourceSpec, metadata=fields.section(ResourceSpec, "what of the machine it may see")
    )
    cluster: ClusterSpec = field(
        default_factory=ClusterSpec, metadata=fields.section(ClusterSpec, "the machines of a job on a Ray cluster")
    )

    task: tuple[TaskSpec, ...] = fields.items(TaskSpec, "tasks, each a run of its own, instead of one command")

    def agree(self) -> None:
        at(lambda: check.input_names(self.inputs), "inputs")
        if self.task:
            bare = {"command": None, "processes": 1, "retry": RetrySpec(), "resources": ResourceSpec()}
            for key, default in bare.items():
                if getattr(self, key) != default:
                    raise FieldError("is said of each task, where there are tasks", key, hint="write it below [[task]]")
            at(lambda: task_graph.check(self.task, self.inputs), "task")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> JobSpec:
        """The job of a file. It may leave out the command, for flags to give: see `check`.

        Raises:
            NotFoundError: no such file. SettingError: anything wrong in it; `path` is ``FILE:LINE``.
        """
        file = read_toml(path)
        with file.located():
            return fields.read(JobSpec, file.table)

    @staticmethod
    def from_command(argv: Sequence[str]) -> JobSpec:
        """A job that is only a command. Raises SettingError: it is empty."""
        return JobSpec(command=list(argv)).check()  # pyright: ignore[reportArgumentType]

    def with_flags(self, values: Mapping[str, object]) -> JobSpec:
        """This job with some of its values replaced, by their names in the file: see `headrace.jobs.spec_flags`."""
        return override(self, values)

    def check(self) -> JobSpec:
        """This job, once nothing is missing to run it.

        Raises:
            SettingError: no command, or variables whose values were not recorded.
        """
        if self.command is None and not self.task:
            raise FieldError("is missing", "command", hint='write ["python", "train.py"], or give it after --')
        if missing := self.environment.missing:
            hint = f"give them again: --set environment.variables.{missing[0]}=VALUE"
            raise FieldError(f"{', '.join(missing)}: not recorded", "environment", "variables", hint=hint)
        return self

    @property
    def title(self) -> str:
        """Its name, or one made from its command."""
        return self.name or kinds.title(self.command)

    @property
    def argv(self) -> tuple[str, ...]:
        """Program and arguments; none without a command."""
        return ("sh", "-c", self.command) if isinstance(self.command, str) else self.command or ()

    def as_json(self) -> dict[str, Any]:
        """For ``run.json``: ``{"format": 1, …}`` with the file's keys; seconds and bytes as numbers.

        Values of `environment.variables` are None where `environment.record` does not take their names.
        """
        table = fields.plain(self)
        table["environment"]["variables"] = self.environment.shown()
        return {"format": FORMAT, **table}

    def as_toml(self) -> str:
        """A file that says the same. What is as it would be anyway is left out; values of variables are in it.

        Raises:
            SettingError: variables whose values were not recorded.
        """
        if self.environment.missing:
            self.check()
        return write_toml(fields.told(self, JobSpec()))

    @staticmethod
    def from_json(table: Mapping[str, Any], *, path: str | None = None) -> JobSpec:
        """The job that was recorded; `environment.missing` names what was not. `path`: for messages.

        Raises:
            UnsupportedError: written by a later version. SettingError: not a recorded job.
        """
        told = dict(table)
        found = told.pop("format", None)
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise FieldError("is not that of a recorded job", "format", path=path)
        if found > FORMAT:
            hint = "install a newer headrace"
            raise UnsupportedError(f"is a job of format {found}; this version reads {FORMAT}", path=path, hint=hint)
        try:
            return fields.read(JobSpec, told)
        except FieldError as error:
            raise (error if path is None else error.at(path)) from None


__all__ = [
    "FORMAT",
    "CodeSpec",
    "EnvironmentSpec",
    "InputSpec",
    "JobSpec",
    "OutputSpec",
    "ResourceSpec",
    "RetrySpec",
    "override",
]
