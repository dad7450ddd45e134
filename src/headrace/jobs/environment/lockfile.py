"""What of a lock file headrace reads itself: its bytes, and which packages are folders of the job's own code.

``uv.lock``: https://docs.astral.sh/uv/concepts/projects/layout/ ; requirements files:
https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.base.errors import InputError, NotFoundError


@dataclass(frozen=True, slots=True)
class LocalPackage:
    """A package whose source is a folder: `source` is what an editable install would put on the module search path."""

    name: str
    source: str


def lock_bytes(path: str) -> bytes:
    """All of it. Raises NotFoundError: it, or the ``pyproject.toml`` that a ``uv.lock`` belongs to, is not there."""
    folder, name = os.path.split(path)
    try:
        body = Path(path).read_bytes()
    except OSError as error:
        hint = "`uv lock` writes a uv.lock, `uv pip compile` a requirements.txt; is it in the code that is captured?"
        raise NotFoundError(f"the lock file cannot be read: {error.strerror}", path=path, hint=hint) from error
    if name == "uv.lock" and not os.path.isfile(os.path.join(folder, "pyproject.toml")):
        raise NotFoundError("has no pyproject.toml beside it", path=path, hint="uv needs both")
    return body


def tool_table(path: str) -> Mapping[str, Any]:
    """``[tool.uv]`` of the ``pyproject.toml`` beside a ``uv.lock``: it also says what is installed.

    Raises InputError.
    """
    if os.path.basename(path) != "uv.lock":
        return {}
    project = Path(path).with_name("pyproject.toml")
    table = _toml(project.read_bytes(), str(project))
    found: Any = table.get("tool", {}).get("uv", {}) if isinstance(table.get("tool", {}), dict) else {}
    return found if isinstance(found, dict) else {}


def local_packages(path: str, body: bytes) -> tuple[LocalPackage, ...]:
    """Those of a ``uv.lock``; none of a requirements file, where they are refused. Raises InputError."""
    if os.path.basename(path) != "uv.lock":
        _check_requirements(path, body.decode("utf-8", "replace"))
        return ()
    found: list[LocalPackage] = []
    packages: Any = _toml(body, path).get("package", [])
    for one in packages if isinstance(packages, list) else []:
        source: Any = one.get("source", {}) if isinstance(one, dict) else {}
        place: Any = source.get("editable", source.get("directory")) if isinstance(source, dict) else None
        if isinstance(place, str):
            root = os.path.normpath(os.path.join(os.path.dirname(path), place))
            inner = os.path.join(root, "src")
            found.append(LocalPackage(str(one["name"]), inner if os.path.isdir(inner) else root))
    return tuple(found)


def _check_requirements(path: str, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        word = line.strip()
        if word.startswith(("-r", "--requirement", "-c", "--constraint")):
            hint = "put all into one file: uv pip compile requirements.in -o requirements.txt"
            raise InputError(f"line {number} reads another file, so this one says too little", path=path, hint=hint)
        if word.startswith(("-e", "--editable", ".", "/", "file:")):
            hint = "leave it out: the job's code is there anyway, in the folder where its command starts"
            raise InputError(f"line {number} installs a folder, which is another at each run", path=path, hint=hint)


def _toml(body: bytes, path: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(body.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not valid TOML: {error}", path=path, hint="`uv lock` writes it anew") from error
