"""What a Python interpreter is, and what is installed in it: asked of itself, so that it may be any."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from typing import Any, Final, cast

from headrace.base.errors import CorruptError, HeadraceError
from headrace.jobs.environment.described import Environment
from headrace.jobs.environment.programs import ask

_ASK_S: Final = 60.0  # seconds to start an interpreter and read what is installed, maybe from a slow disk

_QUESTION: Final = """
import json, platform, sys, sysconfig
libc = "".join(platform.libc_ver())
told = {
    "python": sys.implementation.name + "-" + platform.python_version(),
    "platform": sysconfig.get_platform() + ("-" + libc if libc else ""),
    "prefix": sys.prefix,
    "path": sys.path,
}
print(json.dumps(told))
"""


_HEADER = re.compile("^(Name|Version):(.*)$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """`python`: implementation and version; `platform`: kernel, machine, C library; `prefix`: where it is installed;
    `path`: where it looks for modules.
    """

    python: str
    platform: str
    prefix: str
    path: tuple[str, ...]

    def environment(self) -> Environment:
        """As the environment of kind ``host``."""
        packages = installed(self.path)
        told = json.dumps([self.python, self.platform, packages])
        digest = "sha256:" + hashlib.sha256(told.encode()).hexdigest()
        return Environment("host", digest, self.python, self.platform, packages=packages)


def interpreter(program: str, environ: Mapping[str, str]) -> Interpreter:
    """Ask `program`, started with `environ`.

    Raises:
        CorruptError: it gives no sound answer. DeadlineError, UnsupportedError: as `ask`.
    """
    answer = ask([program, "-c", _QUESTION], environ, deadline=_ASK_S)
    try:
        told: Any = json.loads(answer.out)
        return Interpreter(
            str(told["python"]), str(told["platform"]), str(told["prefix"]),
            tuple(map(str, cast("list[object]", told["path"]))),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        said = answer.last(3)
        raise CorruptError(f"does not run as a Python: {said}", path=program) from error


def installed(path: Iterable[str]) -> tuple[str, ...]:
    """``name==version`` of every distribution in these folders, sorted; the first of a name, as imports find it."""
    found: dict[str, str] = {}
    for one in distributions(path=[folder for folder in path if os.path.isdir(folder)]):
        head = _metadata(one).partition("\n\n")[0]  # `one.metadata` parses the description too: half a second for 150
        told = {name.lower(): value.strip() for name, value in _HEADER.findall(head)}
        if name := told.get("name"):  # half removed ones have none
            found.setdefault(re.sub("[-_.]+", "-", name).lower(), told.get("version", ""))
    return tuple(f"{name}=={version}" for name, version in sorted(found.items()))


def _metadata(one: Distribution) -> str:
    """Of a wheel, an egg's folder, an egg that is one file."""
    places = (one.read_text(name) for name in ("METADATA", "PKG-INFO", ""))
    return next(filter(None, places), "").replace("\r\n", "\n")


def activated(prefix: str, variables: Mapping[str, str]) -> dict[str, str]:
    """`variables` as after activating the virtual environment in `prefix`."""
    path = [os.path.join(prefix, "bin"), variables.get("PATH") or os.defpath]
    changed = {**variables, "PATH": os.pathsep.join(path), "VIRTUAL_ENV": prefix}
    changed.pop("PYTHONHOME", None)
    return changed


def host_variables(inherited: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment; if headrace runs in a virtual environment and none is activated, with that one."""
    some = inherited.get("VIRTUAL_ENV") or inherited.get("CONDA_PREFIX")
    return dict(inherited) if some or sys.prefix == sys.base_prefix else activated(sys.prefix, inherited)


def host_interpreter(variables: Mapping[str, str]) -> Interpreter:
    """The Python that a command finds by ``python`` or ``python3``; else headrace's own."""
    found = [shutil.which(name, path=variables.get("PATH")) for name in ("python", "python3")]
    for program in filter(None, found):
        try:
            return interpreter(program, variables)
        except HeadraceError:  # something of that name: the command may not even be a Python program
            continue
    return interpreter(sys.executable, variables)
