"""What is asked of an environment, and what is known of one: plain values.

An environment in a run's record, ``"environment"``::

    {"format": 1, "kind": "host" | "venv" | "image", "digest": "sha256:…", "python": "cpython-3.11.7" | null,
     "platform": "linux-x86_64-glibc2.36" | null, "lock": "uv.lock" | null, "image": "name@sha256:…" | null,
     "packages": ["numpy==2.1.0", …]}
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, cast

from headrace.base.errors import CorruptError, InputError

FORMAT: Final = 1
Kind = Literal["host", "venv", "image"]


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """What a job asks for: nothing (headrace's own environment), a lock file, or an image.

    `lock`: path of a ``uv.lock`` or of a requirements file (any ``*.txt``), below the code folder; `image`: an OCI
    image's name, with a tag or a digest; `python`: a version as uv takes it (``3.12``), for the first two kinds.

    Raises:
        InputError: they exclude each other, or the lock file is of no kind that is known.
    """

    lock: str | None = None
    image: str | None = None
    python: str | None = None

    def __post_init__(self) -> None:
        if self.image is not None and (self.lock is not None or self.python is not None):
            hint = "an image brings its own Python and packages: name the image alone"
            raise InputError("an image goes with neither a lock file nor a Python version", hint=hint)
        if self.image is not None and not re.fullmatch(r"\w[^\s]*", self.image):
            raise InputError(f"{self.image!r} is no name of an image", hint="like docker.io/library/python:3.12-slim")
        if self.python is not None and not re.fullmatch(r"\w[\w.+-]*", self.python):
            raise InputError(f"{self.python!r} is no version of Python", hint="like 3.12")
        if self.lock is not None:
            _check_lock(self.lock)

    @property
    def kind(self) -> Kind:
        """Which of the three."""
        return "image" if self.image is not None else "venv" if self.lock is not None else "host"


def _check_lock(lock: str) -> None:
    name = os.path.normpath(lock)
    if os.path.isabs(name) or name.split(os.sep)[0] == os.pardir:
        hint = "write its path as seen from there"
        raise InputError("a lock file lies below the code's folder", path=lock, hint=hint)
    if os.path.basename(name) != "uv.lock" and not name.endswith(".txt"):
        hint = "a uv.lock, or a requirements.txt as `uv pip compile` or `pip freeze` write it"
        raise InputError("is no lock file that is known", path=lock, hint=hint)


@dataclass(frozen=True, slots=True)
class Environment:
    """What a command runs in, as the run's record has it.

    `digest`: ``sha256:`` and hex digits; equal digests are equal environments: of the image's manifest; of the lock
    file, Python and platform; or of Python, platform and packages. `python`, `platform`: where known. `packages`:
    ``name==version``, sorted; empty for an image.
    """

    kind: Kind
    digest: str
    python: str | None = None
    platform: str | None = None
    lock: str | None = None
    image: str | None = None
    packages: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """For the record."""
        return {"format": FORMAT, **asdict(self), "packages": list(self.packages)}

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Environment:
        """What `as_json` gave, or a later version with more fields. Raises CorruptError."""
        optional = {name: told.get(name) for name in ("python", "platform", "lock", "image")}
        kind, digest, packages = told.get("kind"), told.get("digest"), told.get("packages", [])
        sound = isinstance(digest, str) and isinstance(packages, list) and kind in ("host", "venv", "image")
        sound = sound and all(isinstance(one, str) for one in cast("list[object]", packages))
        if not sound or not all(one is None or isinstance(one, str) for one in optional.values()):
            raise CorruptError("is no description of an environment", hint="a later headrace may have written it")
        return Environment(cast("Kind", kind), cast("str", digest), packages=tuple(packages), **optional)


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file that a command in an image sees. `target`: where it sees it; None: where it lies."""

    source: str
    target: str | None = None
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command may have of the machine. `cpus`: which, None: all; `memory`: bytes in all, 0: no limit."""

    cpus: tuple[int, ...] | None = None
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command, ready to be started: its whole environment, values and all, and the absolute folder to start it in.

    `limits`: those that who starts it has to see to.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    limits: Limits = Limits()

    def __repr__(self) -> str:
        return f"Invocation({self.argv!r}, {len(self.environment)} variables, {self.folder!r})"
