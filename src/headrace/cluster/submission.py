"""What is sent to a cluster: a job, and what its nodes need to reach the stores. Plain values, pickled by Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import tomlkit

from headrace.base.settings import Settings, whole_environment
from headrace.namespace import Namespace

if TYPE_CHECKING:
    from headrace.jobs import Code, JobSpec

SETTINGS: Final = "headrace.toml"


@dataclass(frozen=True, slots=True)
class Reach:
    """How a node reaches the stores as the caller does. `settings`: ``headrace.toml`` with home, mounts and stores;
    `variables`: values may be secret, so this is never written to the bucket.
    """

    settings: str
    variables: Mapping[str, str] = field(repr=False)

    @staticmethod
    def from_here(settings: Settings, patterns: tuple[str, ...]) -> Reach:
        """What applies in this process. `patterns`: of the variables' names."""
        document = tomlkit.document()
        if settings.home:
            document["home"] = settings.home
        for name in ("mounts", "stores"):
            if table := getattr(settings, name):
                document[name] = _plain(table)
        given = whole_environment().items()
        chosen = {name: value for name, value in given if any(fnmatchcase(name, one) for one in patterns)}
        return Reach(tomlkit.dumps(document), chosen)

    def apply(self, folder: str) -> tuple[Settings, Namespace]:
        """Have this process reach them so: its variables, and the settings in `folder`, its working folder from now on.
        Where they lie, a command that runs below finds them.
        """
        os.environ.update(self.variables)
        self.write(folder)
        os.chdir(folder)
        return Settings.load(), Namespace.load()

    def write(self, folder: str) -> None:
        """The settings, which may hold secrets."""
        fd = os.open(os.path.join(folder, SETTINGS), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(self.settings)


@dataclass(frozen=True, slots=True)
class Submission:
    """A job that is to run on a cluster.

    `run`: its id; `code`: what was captured of the caller's tree, whose parts lie in the bucket already; None: nothing,
    or it is checked out there. `folder`: where the command runs when no code was recorded. `parent`, `resumes`,
    `repeats`: as `Job` has them, by ids of runs. `user`: who submits it. `quiet`: its leader's own lines go to the
    log alone.
    """

    run: str
    spec: JobSpec
    reach: Reach
    folder: str
    user: str
    code: Code | None = None
    parent: Mapping[str, str] | None = None
    resumes: str | None = None
    repeats: str | None = None
    quiet: bool = False


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value  # pyright: ignore[reportUnknownVariableType]
