"""Virtual environments built by uv from a lock file, once on a node, by what they are made of::

    <cache>/environments/<key>/              a relocatable virtual environment
                               headrace.json  what it is (`Environment`)

The key is the sha256 of the lock file's bytes, the Python's version, the platform, what ``[tool.uv]`` says, and a
format number. Packages whose source is a folder of the job's own code are not installed: the code is another at each
run. They are found through the module search path instead (`Venv.sources`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.base.errors import (
    HeadraceError,
    InputError,
    NoRoomError,
    NotFoundError,
    UnreachableError,
    UnsupportedError,
)
from headrace.jobs.environment.described import Environment
from headrace.jobs.environment.interpreter import Interpreter, activated, installed, interpreter
from headrace.jobs.environment.kept import Held, KeptFolders
from headrace.jobs.environment.lockfile import LocalPackage, local_packages, lock_bytes, tool_table
from headrace.jobs.environment.programs import Answer, Tell, ask

FORMAT: Final = 1
ABOUT: Final = "headrace.json"
_FIND_S: Final = 60.0  # seconds to find an interpreter, or to look at what is installed
_FOREIGN: Final = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "UV_PROJECT_ENVIRONMENT", "UV_PROJECT", "UV_WORKING_DIR",
    "UV_SYSTEM_PYTHON", "UV_PYTHON", "UV_NO_SYNC", "UV_LOCKED",
)  # fmt: skip
_NETWORK: Final = (
    "error sending request",
    "dns error",
    "failed to connect",
    "connection refused",
    "timed out",
    "offline",
)


@dataclass(frozen=True, slots=True)
class Venv:
    """A virtual environment on this node, not removed until `held` is closed. `sources`: folders of the job's own
    packages, to be on the module search path.
    """

    environment: Environment
    sources: tuple[str, ...]
    held: Held

    def variables(self, variables: Mapping[str, str]) -> dict[str, str]:
        """`variables` with it activated."""
        return activated(self.held.folder, variables)


class Uv:
    """uv, as `environ` has it configured (indexes, proxies, caches). `deadline`: seconds for building."""

    def __init__(self, environ: Mapping[str, str], tell: Tell, deadline: float) -> None:
        """Raises UnsupportedError: it is not installed."""
        self._environ = {name: value for name, value in environ.items() if name not in _FOREIGN}
        self._environ |= {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
        self._tell, self._deadline = tell, deadline
        self._program = _find_uv(environ)

    def python(self, folder: str, version: str | None) -> str:
        """The interpreter for the project in `folder`; fetched if there is none and uv is allowed to.

        Raises:
            NotFoundError: there is none. As `ask`.
        """
        asked = [version] if version else []
        answer = self._ask(["python", "find", "--system", *asked], folder, _FIND_S)
        if answer.code:
            self._tell(f"no Python {version or 'that fits the project'} is here: uv looks for one")
            fetched = self._ask(["python", "install", *asked], folder, self._deadline)
            answer = self._ask(["python", "find", "--system", *asked], folder, _FIND_S)
            if answer.code:
                hint = "see `uv python list`, or change `python`, .python-version or requires-python"
                said = (fetched if fetched.code else answer).last(4)
                raise NotFoundError(f"no Python {version or ''} for this environment: {said}", path=folder, hint=hint)
        return answer.out.strip()

    def build(self, target: str, python: str, lock: str, local: tuple[LocalPackage, ...]) -> None:
        """A virtual environment in the empty folder `target`, as `lock` says.

        Raises:
            InputError, UnreachableError, NoRoomError: by what uv says. As `ask`.
        """
        folder, name = os.path.split(lock)
        self._do(
            ["venv", "--relocatable", "--no-project", "--allow-existing", "--python", python, target], folder, lock
        )
        if name == "uv.lock":
            without = [word for one in local for word in ("--no-install-package", one.name)]
            frozen = ["sync", "--frozen", "--no-install-project", *without, "--python", python]
            self._do(frozen, folder, lock, {"UV_PROJECT_ENVIRONMENT": target})
            return
        inside = ["--python", os.path.join(target, "bin", "python")]
        self._do(["pip", "sync", "--allow-empty-requirements", *inside, name], folder, lock)
        check = self._ask(["pip", "check", *inside], folder, _FIND_S)
        if check.code:
            hint = f"let `uv pip compile` write it: uv pip compile requirements.in -o {name}"
            raise InputError(f"does not name all that is needed:\n{check.last()}", path=lock, hint=hint)

    def _do(self, words: list[str], folder: str, lock: str, more: Mapping[str, str] | None = None) -> None:
        answer = self._ask(words, folder, self._deadline, more, tell=self._tell)
        if answer.code:
            raise _failed(answer, lock)

    def _ask(
        self,
        words: list[str],
        folder: str,
        deadline: float,
        more: Mapping[str, str] | None = None,
        tell: Tell | None = None,
    ) -> Answer:
        return ask(
            [self._program, *words], {**self._environ, **(more or {})}, folder=folder, deadline=deadline, tell=tell
        )

    def interpreter(self, program: str) -> Interpreter:
        """What `program` is."""
        return interpreter(program, self._environ)


def venv(uv: Uv, code: str, lock: str, python: str | None, folders: KeptFolders, tell: Tell, deadline: float) -> Venv:
    """The environment of `lock`, a path below the folder `code`; built if the node has none. Any thread.

    Raises:
        NotFoundError: no such lock file, or no such Python. InputError: the lock cannot be followed. TryAgainError: the
        network, or another process has been building for `deadline` seconds. NoRoomError: disk full.
    """
    path = os.path.join(os.path.realpath(code), os.path.normpath(lock))
    body, table = lock_bytes(path), tool_table(path)
    local = local_packages(path, body)
    program = uv.python(os.path.dirname(path), python)
    base = uv.interpreter(program)
    key = _key(os.path.basename(path), body, table, base)

    def make(new: str) -> None:
        tell(f"building the environment of {lock}")
        uv.build(new, program, path, local)
        packages = installed(map(str, Path(new, "lib").glob("*/site-packages")))
        about = Environment("venv", f"sha256:{key}", base.python, base.platform, lock, packages=packages)
        Path(new, ABOUT).write_text(json.dumps(about.as_json(), indent=1), encoding="utf-8")

    def waiting() -> None:
        tell(f"another process builds the environment of {lock}: waiting for it")

    held = folders.get(key, make, deadline=deadline, sound=_sound, waiting=waiting)
    about = Environment.from_json(json.loads(Path(held.folder, ABOUT).read_text(encoding="utf-8")))
    sources = tuple(one.source for one in local)
    return Venv(dataclasses.replace(about, lock=lock), sources, held)


def _key(name: str, body: bytes, table: Mapping[str, Any], base: Interpreter) -> str:
    kind = name if name == "uv.lock" else "requirements"
    told = [FORMAT, kind, hashlib.sha256(body).hexdigest(), table, base.python, base.platform]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def _sound(folder: str) -> bool:
    """Whole, and its Python is still there: that may be removed from under it."""
    return os.path.exists(os.path.join(folder, "bin", "python")) and os.path.isfile(os.path.join(folder, ABOUT))


def _find_uv(environ: Mapping[str, str]) -> str:
    places = [os.path.dirname(sys.executable), sysconfig.get_path("scripts"), environ.get("PATH") or os.defpath]
    found = shutil.which("uv", path=os.pathsep.join(places))
    if found is None:
        raise UnsupportedError("a lock file needs uv, which is not installed", hint="pip install uv")
    return found


def _failed(answer: Answer, lock: str) -> HeadraceError:
    said = answer.last()
    if "No space left on device" in said:
        return NoRoomError("no room on the disk for the environment", path=lock, hint="make room, or move the cache")
    if any(word in said.lower() for word in _NETWORK):
        return UnreachableError(f"what it names could not be fetched:\n{said}", path=lock, hint="is the network up?")
    hint = "`uv sync` (or `uv pip sync`) in its folder says the same: mend it, or lock anew"
    return InputError(f"the environment cannot be built:\n{said}", path=lock, hint=hint)
