"""Folders that a machine may not have: the user's own, and one for temporary files.

A container may run under a number that no account has, with no ``HOME``, or with nothing that can be written.
"""

from __future__ import annotations

import os
import tempfile
from typing import Final, Literal

from headrace.base.errors import DeniedError

_NOWHERE: Final = "/proc/no-home"
"""Stands for a home that nobody has told of. Nobody can make anything there, root included."""


def own_folder(kind: Literal["cache", "state", "config"], *names: str) -> str:
    """A path of the user's, by the XDG Base Directory Specification; one that cannot be made where there is no home."""
    import platformdirs  # here, because a job asks for a variable in an environment that may not have it

    try:
        base: str = getattr(platformdirs.PlatformDirs("headrace"), f"user_{kind}_dir")
    except RuntimeError:  # older ones give a path that begins with ~
        base = ""
    return os.path.join(base if os.path.isabs(base) else os.path.join(_NOWHERE, kind), *names)


def make_folder(path: str, variable: str) -> str:
    """`path`, made (mode 0700) where it is missing. `variable`: by which the user names another.

    Raises:
        DeniedError: that cannot be done.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise refused(path, variable, error) from error
    return path


def refused(path: str, variable: str, error: OSError, what: str = "the folder") -> DeniedError:
    """The error for a folder that cannot be used, saying `what` it is, and naming the variable to set."""
    if path.startswith(_NOWHERE):
        hint = f"set {variable} to a folder you may write to, or HOME"
        return DeniedError("this user has no home directory", hint=hint)
    reason = f"{what} cannot be used: {error.strerror or error}"
    return DeniedError(reason, path=path, hint=f"set {variable} to a folder you may write to")


def temporary_folder() -> str:
    """Where temporary files go, as `tempfile` finds it.

    Raises:
        DeniedError: there is none.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        hint = "set TMPDIR to a folder you may write to"
        raise DeniedError("there is no folder for temporary files", hint=hint) from error
