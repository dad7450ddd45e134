"""An environment that is ready: gives the invocation of a command in it, and is let go in the end."""

from __future__ import annotations

import os
import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self

from headrace.base.errors import InputError, NotFoundError
from headrace.jobs.environment.described import Bind, Environment, Invocation, Limits
from headrace.jobs.environment.engine import Engine
from headrace.jobs.environment.interpreter import host_variables
from headrace.jobs.environment.runtime import Runtime
from headrace.jobs.environment.venv import Venv

_NONE: Final = Limits()
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_CLIENTS: Final = re.compile(
    "PATH|HOME|TMPDIR|USER|LD_.*|XDG_.*|_?CONTAINERS?_.*|STORAGE_(DRIVER|OPTS)|PODMAN_.*|GO(DEBUG|GC|MEMLIMIT|TRACEBACK)"
    "|DOCKER_(HOST|CONFIG|CONTEXT|CERT_PATH|TLS|TLS_VERIFY|API_VERSION)|NOTIFY_SOCKET|LISTEN_.*|DBUS_.*"
)
"""Variables that podman and docker obey themselves: of these, the command's own values go by the command line."""


class Prepared(ABC):
    """A context manager. `environment`: for the record; `notes`: what a user should know, one sentence each."""

    def __init__(self, environment: Environment, notes: Iterable[str] = ()) -> None:
        self.environment = environment
        self.notes = tuple(notes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def command(
        self,
        argv: Sequence[str],
        *,
        folder: str,
        variables: Mapping[str, str],
        binds: Iterable[Bind] = (),
        terminal: bool = False,
        limits: Limits = _NONE,
    ) -> Invocation:
        """How to start `argv` in `folder` (as the command sees it), with `variables` added to its environment.

        `binds`: what it may see of this machine if it is an image; `terminal`: standard input is a terminal, which it
        is to have; `limits`: an image keeps them by itself. Nothing is started. Any thread.

        Raises:
            InputError: a name or a path that cannot be passed on. NotFoundError: no such file to bind.
        """

    def send(self, number: int, otherwise: Callable[[int], None]) -> None:
        """Send a signal to the command; `otherwise` sends it to the process that was started, and its group. Not to be
        used once that has ended.
        """
        otherwise(number)

    def stop(self) -> None:  # noqa: B027 - most kinds have nothing to stop
        """Make sure that nothing of the command runs on outside this process's children. Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """Let the node remove what was cached. Not while the command runs. Idempotent."""


class HostPrepared(Prepared):
    """What headrace itself runs in. With `runtime`, where commands find another Python."""

    def __init__(self, environment: Environment, inherited: Mapping[str, str], runtime: Runtime | None) -> None:
        super().__init__(environment)
        self._inherited, self._runtime = inherited, runtime

    def command(
        self,
        argv: Sequence[str],
        *,
        folder: str,
        variables: Mapping[str, str],
        binds: Iterable[Bind] = (),  # noqa: ARG002
        terminal: bool = False,  # noqa: ARG002
        limits: Limits = _NONE,
    ) -> Invocation:
        every = {**host_variables(self._inherited), **_checked(variables)}
        return Invocation(tuple(argv), self._runtime.variables(every) if self._runtime else every, folder, limits)

    def close(self) -> None:
        if self._runtime is not None:
            self._runtime.close()


class VenvPrepared(Prepared):
    """A virtual environment of the node's cache. PYTHONPATH of the caller does not reach the command."""

    def __init__(self, venv: Venv, inherited: Mapping[str, str], runtime: Runtime) -> None:
        super().__init__(venv.environment)
        self._venv, self._runtime = venv, runtime
        self._inherited = {name: value for name, value in inherited.items() if name != "PYTHONPATH"}

    def command(
        self,
        argv: Sequence[str],
        *,
        folder: str,
        variables: Mapping[str, str],
        binds: Iterable[Bind] = (),  # noqa: ARG002
        terminal: bool = False,  # noqa: ARG002
        limits: Limits = _NONE,
    ) -> Invocation:
        every = self._venv.variables({**self._inherited, **_checked(variables)})
        return Invocation(tuple(argv), self._runtime.variables(every, self._venv.sources), folder, limits)

    def close(self) -> None:
        self._venv.held.close()
        self._runtime.close()


class ImagePrepared(Prepared):
    """A container of an image, by the name `container`.

    The client passes on standard input and output and the exit code: 128 + the number for what a signal ended, as in a
    shell. It passes on signals too, but SIGKILL, and but for a moment at its start, when they end only the client. So:
    `send` signals, and `stop` once the client has ended, before anything is started under the same name again.
    """

    def __init__(
        self, environment: Environment, engine: Engine, image: Mapping[str, object], container: str, runtime: Runtime
    ) -> None:
        self._image = str(image["Id"])
        self._flags, notes = engine.flags(self._image)
        super().__init__(environment, notes)
        self._engine, self._container, self._runtime = engine, container, runtime
        self._own = _image_variables(image)

    def command(
        self,
        argv: Sequence[str],
        *,
        folder: str,
        variables: Mapping[str, str],
        binds: Iterable[Bind] = (),
        terminal: bool = False,
        limits: Limits = _NONE,
    ) -> Invocation:
        if not argv:
            raise InputError("no command", hint="name one")
        given = _checked(variables)
        if terminal and "TERM" in self._engine.environ:
            given = {"TERM": self._engine.environ["TERM"], **given}
        laid = self._runtime.variables({**_only(self._own, "PYTHONPATH"), **given})
        words = [self._engine.program, "run", "--rm", "--interactive", f"--name={self._container}", *self._flags]
        words += ["--tty"] if terminal else []
        words += [f"--workdir={folder}"]
        words += [f"--cpuset-cpus={','.join(map(str, limits.cpus))}"] if limits.cpus is not None else []
        words += [f"--memory={limits.memory}"] if limits.memory else []
        for bind in (*binds, Bind(self._runtime.folder)):
            words.append(_mount(bind))
        environ = dict(self._engine.environ)
        for name, value in laid.items():
            if _CLIENTS.fullmatch(name) and environ.get(name) != value:
                words.append(f"--env={name}={value}")
            else:
                words.append(f"--env={name}")
                environ[name] = value
        return Invocation((*words, self._image, *argv), environ, "/")

    def send(self, number: int, otherwise: Callable[[int], None]) -> None:
        """To the container, past its client; to the client if there is no container yet. Raises DeadlineError."""
        if not self._engine.signal(self._container, signal.Signals(number)):
            otherwise(number)

    def stop(self) -> None:
        """Raises UnsupportedError: the container is still there. DeadlineError: the engine does not answer."""
        self._engine.remove(self._container)

    def close(self) -> None:
        self._runtime.close()


def _checked(variables: Mapping[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            hint = "letters, digits and _, no digit first; no zero byte in the value"
            raise InputError(f"{name!r} cannot be an environment variable", hint=hint)
    return dict(variables)


def _only(variables: Mapping[str, str], name: str) -> dict[str, str]:
    return {name: variables[name]} if name in variables else {}


def _image_variables(image: Mapping[str, object]) -> dict[str, str]:
    config = image.get("Config")
    told = config.get("Env") if isinstance(config, dict) else None
    pairs = [str(one).partition("=") for one in told] if isinstance(told, list) else []
    return {name: value for name, _, value in pairs}


def _mount(bind: Bind) -> str:
    source, target = os.path.abspath(bind.source), bind.target or os.path.abspath(bind.source)
    if any(mark in path for path in (source, target) for mark in ',"\n'):
        raise InputError("a comma, quote or line end in a path cannot be passed to a container", path=source)
    if not os.path.exists(source):
        raise NotFoundError("is not there to be bound into the container", path=source)
    return f"--mount=type=bind,source={source},target={target}" + ("" if bind.writable else ",readonly")
