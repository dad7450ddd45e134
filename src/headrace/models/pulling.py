"""A version as a folder of this machine: whole or not at all, each file proved by its digest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.base.errors import AlreadyExistsError, InputError
from headrace.base.progress import SILENT, Progress
from headrace.models.bringing import Wanted, bring, check, path_below
from headrace.models.card import CARD
from headrace.models.holding import objects_of
from headrace.models.registry import ModelVersion, Registry

PARTIAL: Final = ".headrace-partial-"
"""What the name of a folder that is on its way begins with; it lies beside the one that it becomes."""


def pull(
    registry: Registry, version: ModelVersion, folder: str | os.PathLike[str], progress: Progress = SILENT
) -> Path:
    """Make `folder`, which must not be there yet, or be empty, of a version's files and its ``model.json``. Any thread.

    Raises:
        AlreadyExistsError: there is something. CorruptError: a file is not what was published; names it.
        NoRoomError, InputError (the folder cannot be made), any store error. There is no such folder then.
    """
    target = os.path.abspath(folder)
    try:
        if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
            raise AlreadyExistsError("is there already", path=target, hint="name a folder that is not there, or empty")
        lay_out(registry, version, target, progress)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=error.filename or target) from error
    return Path(target)


def lay_out(
    registry: Registry,
    version: ModelVersion,
    target: str,
    progress: Progress = SILENT,
    appear: Callable[[str, str], object] = os.rename,
) -> None:
    """The same over what must be no folder, or an empty one; it appears by rename, once all of it is on the disk;
    `appear` does that, where there is more to do: of the folder that is whole, and `target`.

    Raises OSError, and as `pull`.
    """
    above, name = os.path.split(target)
    os.makedirs(above, exist_ok=True)
    beside = os.path.join(above, f"{PARTIAL}{name}-{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    os.mkdir(beside)
    try:
        infos = objects_of(registry, version)
        wanted = [
            Wanted(info, path_below(beside, one.path)) for info, one in zip(infos, version.card.files, strict=True)
        ]
        found = bring(registry.home.store, registry.namespace.fetcher, wanted, progress)
        for one, digest in zip(version.card.files, found, strict=True):
            check(digest, one.sha256, f"{version.path}/{one.path}")
        with open(os.path.join(beside, CARD), "wb") as file:
            file.write(version.card.as_json())
        _settle(beside)
        appear(beside, target)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _settle(folder: str) -> None:
    """Files and folders onto the disk, and as readable as the user's other files: a server may be another user."""
    mask = os.umask(0)
    os.umask(mask)
    for base, _, names in os.walk(folder, topdown=False):
        for path in [os.path.join(base, name) for name in names] + [base]:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
                os.fchmod(descriptor, (0o777 if path == base else 0o666) & ~mask)
            finally:
                os.close(descriptor)
