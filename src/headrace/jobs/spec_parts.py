"""The parts of a job: its inputs, code, environment, outputs, retries and resources. See `headrace.jobs.spec`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from headrace.jobs import spec_checks as check
from headrace.jobs import spec_fields as fields
from headrace.jobs import spec_kinds as kinds
from headrace.jobs.spec_errors import FieldError

_LONGEST_PAUSE_S = 600.0
"""Seconds before any attempt, at most, unless the job's own first pause is longer."""


class Declared:
    """A part of a spec: when it is made, its fields are read as declared. Raises SettingError for what is wrong."""

    def __post_init__(self) -> None:
        fields.settle(self)
        self.agree()

    def agree(self) -> None:
        """What fields demand of each other. Raises FieldError."""


@dataclass(frozen=True)
class InputSpec(Declared):
    """One input: data that is pinned to object versions when the job starts."""

    source: str = fields.text("a snapshot's name, a path or a URL; required", default="", check=check.source)
    as_: Literal["name", "mount", "copy"] = fields.text(
        "how the command gets it. `name`: it is told where it is, for code that uses `headrace`; `mount`: a folder "
        "that reads from the store; `copy`: a local folder",
        default="name",
        check=check.choice("name", "mount", "copy"),
        kind="`name`, `mount` or `copy`",
    )
    variable: str | None = fields.text(
        "by which the command finds it, instead of `HEADRACE_INPUT_<NAME>`; several inputs that share one stand in it "
        "one after the other, with `:` between",
        check=check.variable,
    )


@dataclass(frozen=True)
class CodeSpec(Declared):
    """The code that runs: a working tree as it is, or a clean checkout."""

    path: str | None = fields.text(
        "folder of the working tree, which is captured as it is; where neither this nor `git` is given: `.`",
        check=check.filled,
    )
    git: str | None = fields.text("`URL@REF`: a clean checkout of a tag, a branch or a commit", check=check.git)
    limit: int = fields.size("largest tree that is captured; a larger one is refused", default="100MB")
    ignore: tuple[str, ...] = fields.texts("patterns of files and folders that are not captured, besides git's own")
    capture: bool = fields.truth("`false`: nothing of the code is recorded", default=True)

    def agree(self) -> None:
        _exclude(self, "path", "git")

    @property
    def folder(self) -> str | None:
        """The working tree; None: a checkout."""
        return (self.path or ".") if self.git is None else None

    @property
    def checkout(self) -> tuple[str, str] | None:
        """URL and ref; None: a working tree."""
        return None if self.git is None else check.git_parts(self.git)


@dataclass(frozen=True, repr=False)
class EnvironmentSpec(Declared):
    """What the command runs in: a virtual environment of its own, an image, or what headrace itself runs in."""

    lock: str | None = fields.text(
        "`uv.lock` or a requirements file, below the code's root: a virtual environment made of it", check=check.inside
    )
    image: str | None = fields.text("an OCI image, best by its digest: `registry/name@sha256:…`", check=check.image)
    python: str | None = fields.text("version of Python, with `lock`", check=check.python)
    variables: Mapping[str, str | None] = fields.names(
        "variables set for the command, over those it is passed", check=check.variable, absent=True
    )
    pass_: tuple[str, ...] = fields.texts(
        "names, or patterns, of variables of the caller that reach the command", default=("*",), check=check.variables
    )
    record: tuple[str, ...] = fields.texts(
        "names, or patterns, of variables whose values may be recorded; of all others only the name is",
        check=check.variables,
    )

    def agree(self) -> None:
        _exclude(self, "lock", "image")
        if self.python is not None and self.lock is None:
            raise FieldError("is for an environment made of a lock file", "python", hint="give environment.lock too")

    def recorded(self, name: str) -> bool:
        """Whether the value of a variable may be recorded."""
        return any(fnmatchcase(name, pattern) for pattern in self.record)

    def shown(self) -> dict[str, str | None]:
        """The variables, with None for every value that may not be recorded."""
        return {name: value if self.recorded(name) else None for name, value in self.variables.items()}

    @property
    def missing(self) -> tuple[str, ...]:
        """Variables whose values are not known: they were not recorded."""
        return tuple(name for name, value in self.variables.items() if value is None)

    def __repr__(self) -> str:
        told = {one.name: getattr(self, one.name) for one in fields.keyed(self).values()} | {"variables": self.shown()}
        return f"EnvironmentSpec({', '.join(f'{name}={value!r}' for name, value in told.items())})"


@dataclass(frozen=True)
class ClassSpec(Declared):
    """Outputs that are sent alike, by their names and sizes."""

    patterns: tuple[str, ...] = fields.texts(
        "patterns of their names; one without `/` is for the last part of a name", default=("*",), check=check.inside
    )
    at_least: int = fields.size("smaller files are not of this class", default="0")
    period: float = fields.duration("shortest time between two uploads of one file", default="5s", positive=True)
    when_closed: bool = fields.truth(
        "sent at once when nobody has it open for writing any more; `period` is then for files that stay open",
        default=False,
    )
    growing: bool = fields.truth(
        "only ever appended to, as a log is: what was sent stays true while it is being written to", default=False
    )


@dataclass(frozen=True)
class OutputSpec(Declared):
    """What the command writes to `HEADRACE_OUTPUTS`, and how the bucket follows."""

    checkpoints: tuple[str, ...] = fields.texts(
        "patterns of folders of the outputs that count as one: their marker is written when all of it is there; runs "
        "go on from those below `checkpoints/`",
        default=("checkpoints/*",),
        check=check.inside,
    )
    period: float = fields.duration(
        "shortest time between two uploads of one small file", default="5s", positive=True
    )
    bandwidth: int = fields.size("bytes a second to send, on average; 0: no limit", default="0")
    exclude: tuple[str, ...] = fields.texts("patterns of files and folders that are not sent", check=check.inside)
    drain: float = fields.duration("longest wait at the end for what is not sent", default="10min")
    requests: int = fields.count(
        "requests an hour while the command runs, and as many in one burst; at the end the rest is sent regardless",
        default=20_000,
        least=1,
    )
    classes: Mapping[str, ClassSpec] = fields.many(
        ClassSpec,
        "patterns",
        "classes of files, in this order, before headrace's own; a text stands for one of its `patterns`",
        check=check.name,
    )


@dataclass(frozen=True)
class RetrySpec(Declared):
    """When the command is started again."""

    attempts: int = fields.count("attempts in all", default=1, least=1)
    exit_codes: tuple[int, ...] = fields.numbers(
        "exit codes after which there is another; with no `log_patterns` either: any but 0", least=1, most=255
    )
    log_patterns: tuple[str, ...] = fields.texts(
        "regular expressions, found in a line of the output; an exit code or a line is enough", check=check.pattern
    )
    backoff: float = fields.duration("pause before the second attempt; doubled each time, at most 10min", default="10s")

    def pause(self, made: int) -> float:
        """Seconds to wait after so many attempts."""
        return min(self.backoff * 2.0 ** min(made - 1, 64), max(_LONGEST_PAUSE_S, self.backoff))

    def wants(self, exit_code: int, *, matched: bool) -> bool:
        """Whether a failure is one to try again, by its exit code and whether a line of the output matched."""
        if exit_code == 0:
            return False
        return matched or exit_code in self.exit_codes or not (self.exit_codes or self.log_patterns)


@dataclass(frozen=True)
class ResourceSpec(Declared):
    """What of the machine the command may see."""

    cpus: int = fields.count("CPUs it may run on; 0: all", default=0)
    memory: int = fields.size("memory it may use; 0: no limit", default="0")
    gpus: Literal["all"] | int | tuple[int, ...] = kinds.gpus("how many GPUs, or which, by their indices")
    wait: bool = fields.truth(
        "`true`: while other runs have some of these CPUs or GPUs, the run waits until all are its own, first come, "
        "first served; `false`: CPUs and named GPUs are shared, a number of GPUs is refused",
        default=False,
    )


@dataclass(frozen=True)
class ClusterSpec(Declared):
    """Where a job runs that is more than one machine's: a gang on a Ray cluster, one runner a node, or all wait."""

    on: str | None = fields.text("address of a Ray cluster: `ray://HOST:10001`", check=check.cluster)
    nodes: int = fields.count("nodes; on each run `processes`", default=1, least=1)
    cpus_per_node: int = fields.count("CPUs that a node must have free", default=1)
    gpus_per_node: int = fields.count("GPUs that a node must have free", default=0)
    workers: tuple[int, int] | None = kinds.workers(
        "processes in all, wherever there is room, instead of `nodes`; `4..32`: as many as there is room for when it "
        "begins, and begins again"
    )
    cpus_per_worker: int = fields.count("CPUs that each worker must have free", default=1)
    gpus_per_worker: int = fields.count("GPUs that each worker must have free", default=0)
    restarts: int = fields.count("how often it is started again because a node was lost; no attempt counts", default=3)
    peers: bool = fields.truth(
        "nodes share their caches: one that misses asks the node that keeps the object, then the store", default=False
    )
    send: tuple[str, ...] = fields.texts(
        "patterns of variables that the nodes get to reach the stores; `[]`: they have their own",
        default=("AWS_*", "AZURE_STORAGE_*"),
    )

    def agree(self) -> None:
        if self.workers is not None and self.nodes > 1:
            raise FieldError("excludes 'nodes', which is given too", "workers", hint="leave one of them out")
        if self.workers is not None and not (self.cpus_per_worker or self.gpus_per_worker):
            raise FieldError("are of nothing", "workers", hint="cpus_per_worker = 1")


def _exclude(spec: object, one: str, other: str) -> None:
    if getattr(spec, one) is not None and getattr(spec, other) is not None:
        raise FieldError(f"excludes {one!r}, which is given too", other, hint="leave one of them out")
