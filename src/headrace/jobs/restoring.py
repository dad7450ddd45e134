"""The code of a run, laid out again from its record."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

from headrace.base.errors import (
    AlreadyExistsError,
    CorruptError,
    DeniedError,
    HeadraceError,
    NoRoomError,
    NotFoundError,
    TryAgainError,
)
from headrace.jobs import extract
from headrace.jobs.archive import NAME
from headrace.jobs.code import Code
from headrace.jobs.tree import shown


def restore(code: Code, source: str, folder: str) -> None:
    """Lay the tree of `code` out in `folder`, new or empty, from the files that `capture` wrote into `source`.

    Either all of it is there in the end, verified, or nothing. Nothing outside of `folder` is written to, whatever the
    archive holds. Links that lead out of the tree are made as they were, if the record counts them. Any thread.

    Raises:
        AlreadyExistsError: `folder` is not empty. NotFoundError: there is no archive. CorruptError: it is damaged, or
        gives another tree than `code` says. NoRoomError, DeniedError, TryAgainError: the disk.
    """
    path = os.path.join(source, NAME)
    if not os.path.isfile(path):
        raise NotFoundError("the code of this run is not there", path=shown(path), hint="was it sent to the bucket?")
    with disk(folder), emptied_if_failed(folder):
        found = extract.read(path, folder, extract.Bounds(code.files, code.bytes, code.outside))
        if found.digest != code.digest:
            reason = f"gives a tree with digest {found.digest}, and the record says {code.digest}"
            raise CorruptError(reason, path=shown(path), hint="is it damaged, or of another run? Copy it again")


@contextmanager
def emptied_if_failed(folder: str) -> Generator[None]:
    """A new folder, or one that is empty; as it was if something fails. Raises AlreadyExistsError, OSError."""
    made = not os.path.lexists(folder)
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        raise AlreadyExistsError("is not empty", path=shown(folder), hint="give a new or an empty folder")
    try:
        yield
    except BaseException:
        with suppress(OSError):
            _empty(folder)
        if made:
            with suppress(OSError):
                os.rmdir(folder)
        raise


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


@contextmanager
def disk(path: str) -> Generator[None]:
    """Errors of the disk that is written to, in our words."""
    try:
        yield
    except OSError as error:
        raise _translated(path, error) from error


def _translated(path: str, error: OSError) -> HeadraceError:
    reason = f"cannot be written: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoomError(reason, path=shown(path), hint="free some room there")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DeniedError(reason, path=shown(path), hint="make it writable, or give another folder")
    return TryAgainError(reason, path=shown(path), hint="is its disk healthy?")
