"""Copies of inputs: folders of files in the node's cache, made once and shared by every run that pins the same::

    <cache>/inputs/<key>/data/        the objects, at their keys below the source; files 0444, folders 0555
                         made.json    {"format": 1, "entries", "changed"}: how many files and folders, and the time of
                                      the last change to any (ctime, ns)

Who may write anywhere (root) may write there too. So before a copy is used again, all of it is looked at: what was
added, removed or changed since has a later ctime, and the copy is made anew.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, NamedTuple

from headrace.base.errors import ChangedError, CorruptError, InputError, NoRoomError
from headrace.base.progress import Progress
from headrace.base.threads import Threads
from headrace.base.units import format_bytes
from headrace.catalog import Objects, Place
from headrace.jobs.environment.kept import Held, KeptFolders

_PIECE: Final = 4 << 20  # bytes of a piece
_AT_ONCE: Final = 16
"""Pieces in memory, 64 MiB: their threads wait for the store and for the disk."""
_WAITING: Final = 4 * _AT_ONCE
_MADE: Final = "made.json"
_BLOCK: Final = 4096  # bytes that a file takes beyond its own on a disk, at most
_SPARE: Final = 64 << 20
"""Bytes of the disk that are left to others."""
_DEADLINE_S: Final = 24 * 3600.0
"""Longest wait for another process that makes the same copy."""


class _Piece(NamedTuple):
    """Bytes [start, stop) of an object, for a file that is there already."""

    key: str
    path: str
    version: str
    start: int
    stop: int


def copied(
    place: Place, objects: Objects, cache: str, keep: int, progress: Progress, waiting: Callable[[], None]
) -> Held:
    """A copy of what is pinned, in `data_of` what this gives; it stays until that is closed. Its files are read-only.

    Args:
        place: where the objects are.
        objects: what is pinned.
        cache: folder for what runs share.
        keep: copies that stay there when nobody uses them.
        progress: told of objects and bytes.
        waiting: called if another process is making this copy.

    Raises:
        NoRoomError: it does not fit on the disk. ChangedError, NotFoundError: an object is no longer the one pinned.
        InputError: a key that cannot be a file's name. Any store error.
    """
    root = os.path.join(cache, "inputs")
    kept = KeptFolders(root, keep)

    def make(folder: str) -> None:
        _check_room(kept, root, objects)
        progress.total(objects.objects, objects.bytes)
        data = data_of(folder)
        os.mkdir(data)
        _fill(place, objects, data, progress)
        with open(os.path.join(folder, _MADE), "w", encoding="utf-8") as file:
            json.dump({"format": 1, **_look(data)}, file)

    told = f"{place.store.identity}\n{place.prefix}\n{objects.digest}"
    key = hashlib.blake2b(told.encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()
    return kept.get(key, make, deadline=_DEADLINE_S, sound=_is_sound, waiting=waiting)


def data_of(folder: str) -> str:
    """Where the files lie."""
    return os.path.join(folder, "data")


def _is_sound(folder: str) -> bool:
    try:
        with open(os.path.join(folder, _MADE), encoding="utf-8") as file:
            told = json.load(file)
        return told == {"format": 1, **_look(data_of(folder))}
    except (OSError, ValueError):
        return False


def _look(folder: str) -> dict[str, int]:
    entries, changed = 0, 0
    for path, _, files in os.walk(folder):
        for one in (path, *(os.path.join(path, name) for name in files)):
            entries += 1
            changed = max(changed, os.lstat(one).st_ctime_ns)
    return {"entries": entries, "changed": changed}


def _check_room(kept: KeptFolders, root: str, objects: Objects) -> None:
    need = objects.bytes + objects.objects * _BLOCK + _SPARE
    if not kept.make_room(lambda: shutil.disk_usage(root).free >= need):
        free = format_bytes(shutil.disk_usage(root).free)
        hint = 'give it as = "mount", or move the copies to a larger disk: HEADRACE_RUN_CACHE'
        raise NoRoomError(f"a copy needs {format_bytes(need)}, and {free} are free", path=root, hint=hint)


def _fill(place: Place, objects: Objects, folder: str, progress: Progress) -> None:
    """All of it, or an error: then what is there is for the caller to remove. Holds `_AT_ONCE` pieces in memory."""
    pool = Threads(_AT_ONCE, thread_name_prefix="headrace-copy")
    under_way: deque[Future[None]] = deque()
    try:
        for piece in _pieces(place, objects, folder):
            if len(under_way) >= _WAITING:
                under_way.popleft().result()
            under_way.append(pool.submit(_bring, place, piece, progress))
        for one in under_way:
            one.result()
    finally:
        pool.shutdown(cancel_futures=True)
    for path, _, files in os.walk(folder):
        for name in files:
            os.chmod(os.path.join(path, name), 0o444)
        os.chmod(path, 0o555)  # noqa: S103 - the folder above is for its owner alone


def _pieces(place: Place, objects: Objects, folder: str) -> Iterator[_Piece]:
    made = ""
    for batch in objects.batches():
        for key, size, version in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if key.endswith("/"):  # a folder, as some tools write it
                continue
            path = _path(folder, key, place)
            try:
                if (above := os.path.dirname(path)) != made:
                    os.makedirs(above, exist_ok=True)
                    made = above
                with open(path, "xb") as file:
                    if size > _PIECE:
                        file.truncate(size)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                raise _no_file(place, key, "another key has the name of its file or folder") from None
            except OSError as error:
                if error.errno not in (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL):
                    raise
                raise _no_file(place, key, error.strerror or "") from error
            for start in range(0, max(size, 1), _PIECE):
                yield _Piece(place.prefix + key, path, version or "", start, min(start + _PIECE, size))


def _path(folder: str, key: str, place: Place) -> str:
    if "\0" in key or any(part in ("", ".", "..") for part in key.split("/")):
        raise _no_file(place, key, "a file cannot have this name")
    return f"{folder}/{key}"


def _no_file(place: Place, key: str, why: str) -> InputError:
    hint = 'give the input as = "name"'
    return InputError(f"cannot be copied to a file: {why}", path=f"{place.url}/{key}", hint=hint)


def _bring(place: Place, piece: _Piece, progress: Progress) -> None:
    size = piece.stop - piece.start
    if size:
        blob = place.store.get(piece.key, piece.start, piece.stop)
        where = f"{place.store.url}/{piece.key}"
        if blob.info.version != piece.version:
            hint = "take what is there now with --set inputs.NAME=SOURCE, or put the old object back"
            raise ChangedError("has changed since it was pinned", path=where, hint=hint)
        if len(blob.data) != size:
            raise CorruptError("is shorter than it was listed", path=where)
        with open(piece.path, "r+b") as file:
            file.seek(piece.start)
            file.write(blob.data)
    progress.advance(1 if piece.start == 0 else 0, size)
