"""Objects brought to the node as files: a checkpoint to go on from, an input as a copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.base.errors import CorruptError, InputError
from headrace.base.progress import SILENT, Progress
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.store.protocol import Store
from headrace.tracking.runs import Run
from headrace.upload import published

_PIECE: Final = 16 << 20  # bytes read at a time


class Wanted(NamedTuple):
    """One object, in the version that is meant. `name`: of its file, below the folder; `etag`: None, any."""

    key: str
    name: str
    size: int
    etag: str | None


def bring(store: Store, wanted: Iterable[Wanted], folder: str, progress: Progress = SILENT) -> int:
    """Make `folder` of objects, all of them or none: it appears by rename. Returns bytes. Holds 128 MiB at most.

    Raises:
        ChangedError, NotFoundError: an object is no longer the one that is meant. InputError: a name that leads out.
        OSError: the disk. Any store error.
    """
    beside = f"{folder}.partial"
    shutil.rmtree(beside, ignore_errors=True)
    os.makedirs(beside)
    with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-bring") as pool:
        under_way = [pool.submit(_bring, store, one, beside, progress) for one in wanted]
        size = sum(one.result() for one in under_way)
    os.rename(beside, folder)
    return size


def bring_checkpoint(run: Run, name: str, folder: str, progress: Progress = SILENT) -> str:
    """A complete checkpoint as a folder below `folder`; its path. Raises as `bring`; CorruptError: not complete."""
    prefix = f"{run.prefix}checkpoints/{name}"
    publication = published(run.store, prefix)
    if publication is None:
        raise CorruptError("is not complete", path=f"{run.url}/checkpoints/{name}", hint="take an older one")
    path = os.path.join(folder, name)
    if not os.path.isdir(path):
        os.makedirs(folder, exist_ok=True)
        members = [Wanted(publication.prefix + one.name, one.name, one.size, one.etag) for one in publication.members]
        bring(run.store, members, path, progress)
    return path


def _bring(store: Store, one: Wanted, folder: str, progress: Progress) -> int:
    path = os.path.normpath(os.path.join(folder, one.name))
    if not path.startswith(folder + os.sep):
        raise InputError("has a name that leads out of its folder", path=f"{store.url}/{one.key}")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        for start in range(0, one.size, _PIECE):
            stop = min(start + _PIECE, one.size)
            data = store.get(one.key, start, stop, if_match=one.etag).data
            if len(data) != stop - start:
                raise CorruptError("is shorter than recorded", path=f"{store.url}/{one.key}")
            file.write(data)
            progress.advance(0, len(data))
    progress.advance(1, 0)
    return one.size
