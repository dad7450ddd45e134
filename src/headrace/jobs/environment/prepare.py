"""From what a job asks for to an environment that is ready on this node."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import InputError
from headrace.jobs.environment.described import Environment, EnvironmentRequest
from headrace.jobs.environment.engine import Engine
from headrace.jobs.environment.interpreter import Interpreter, host_interpreter, host_variables
from headrace.jobs.environment.kept import KeptFolders
from headrace.jobs.environment.prepared import HostPrepared, ImagePrepared, Prepared, VenvPrepared
from headrace.jobs.environment.programs import Tell
from headrace.jobs.environment.runtime import Runtime
from headrace.jobs.environment.venv import Uv, venv

KEEP: Final = 8
"""Virtual environments that stay on a node when no run uses them."""


@dataclass(frozen=True, slots=True)
class Node:
    """Where and how environments are made.

    `cache`: folder for those that are kept, one for a user; `inherited`: the caller's whole environment, which uv,
    podman, docker and, but for an image, the command get; `deadline`: seconds for building or fetching; `keep`: unused
    virtual environments that stay.
    """

    cache: str
    inherited: Mapping[str, str]
    deadline: float = 3600.0
    keep: int = KEEP


def prepare(request: EnvironmentRequest, code: str, node: Node, *, run: str, tell: Tell = lambda _: None) -> Prepared:
    """Make what `request` asks for ready; `code`: the job's code folder, where a lock file lies; `run`: the run's id,
    by which its container is named; `tell` gets a line now and then. Any thread; blocks.

    Raises:
        InputError, UnsupportedError, NotFoundError, DeniedError, UnreachableError, DeadlineError, TryAgainError,
        NoRoomError: with what to do about it.
    """
    if request.image is not None:
        return _image(request.image, node, run, tell)
    if request.lock is not None:
        return _venv(request.lock, request.python, code, node, tell)
    return _host(request.python, node)


def _host(python: str | None, node: Node) -> Prepared:
    found = host_interpreter(host_variables(node.inherited))
    if python is not None and not _fits(python, found):
        hint = "name a lock file, then uv finds or fetches that Python; or leave `python` out"
        raise InputError(f"Python {python} is asked for, but commands here find {found.python}", hint=hint)
    ours = os.path.realpath(found.prefix) == os.path.realpath(sys.prefix)
    return HostPrepared(found.environment(), node.inherited, None if ours else Runtime(node.cache))


def _fits(python: str, found: Interpreter) -> bool:
    return f"{found.python.partition('-')[2]}.".startswith(f"{python}.")


def _venv(lock: str, python: str | None, code: str, node: Node, tell: Tell) -> Prepared:
    uv = Uv(node.inherited, tell, node.deadline)
    folders = KeptFolders(os.path.join(node.cache, "environments"), node.keep)
    made = venv(uv, code, lock, python, folders, tell, node.deadline)
    try:
        return VenvPrepared(made, node.inherited, Runtime(node.cache))
    except BaseException:
        made.held.close()
        raise


def _image(name: str, node: Node, run: str, tell: Tell) -> Prepared:
    engine = Engine(node.inherited)
    image = engine.image(name, node.deadline, tell)
    reference = pinned(name, image)
    environment = Environment("image", reference.rpartition("@")[2], image=reference)
    runtime = Runtime(node.cache)
    try:
        return ImagePrepared(environment, engine, image, container_name(run), runtime)
    except BaseException:
        runtime.close()
        raise


def stop_container(run: str, inherited: Mapping[str, str]) -> None:
    """Remove the container that a killed runner of `run` may have left. Raises as `ImagePrepared.stop` and `Engine`."""
    Engine(inherited).remove(container_name(run))


def container_name(run: str) -> str:
    """The container of a run. Raises InputError: an id that cannot be part of a name."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", run):
        raise InputError(f"{run!r} cannot name a container", hint="letters, digits, dot, dash, underscore")
    return f"headrace-{run}"


def pinned(name: str, image: Mapping[str, Any]) -> str:
    """``name@sha256:…`` for `image`, as `Engine.image` gave it for `name`; the bare id where no registry has it."""
    base, _, asked = name.partition("@")
    tag = base.rfind(":")
    base = base[:tag] if tag > base.rfind("/") else base
    if asked:
        return f"{base}@{asked}"
    known = [str(one) for one in image.get("RepoDigests") or []]
    same = [one for one in known if one.partition("@")[0].endswith(base) and one.endswith(image.get("Digest") or "")]
    for one in (*same, *known):
        return one
    identity = str(image["Id"])
    return identity if identity.startswith("sha256:") else f"sha256:{identity}"
