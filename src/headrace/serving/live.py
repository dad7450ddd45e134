"""Which servers of models of this user answer on this node: one small JSON file each, for whoever shows them.

    <cache dir>/serving/servers/<pid>-<random>.json    locked by its server as long as that lives, by `flock(2)`
                                              .next    what it becomes next, by rename; what it was becomes that one
                                              .last    what it was, meanwhile

So the room on the disk is taken once, since a full disk is what a server may have to tell. A file whose lock is free is
a dead server's, and is removed by who looks. No token is ever in one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.base.locks import try_lock
from headrace.base.places import make_folder
from headrace.namespace.home import Home

_NOTE: Final = ".json"
_NEXT: Final = ".next"
_LAST: Final = ".last"
_ROOM: Final = 16 << 10
"""Bytes of a file, which is filled up with spaces: none is given back to a disk where others wait for it."""


@dataclass(frozen=True, slots=True)
class LiveVersion:
    """A version that is loaded, or is wanted.

    `state`: as in TensorFlow Serving (``AVAILABLE``: it answers); `labels`: which of the model's lead to it now;
    `wanted`: which should; `processes`: in how many it answers; `requests`, `failures`: that it answered, and did not,
    since it was loaded; `reason`: why it does not serve, empty while all is well.
    """

    number: int
    state: str
    labels: tuple[str, ...]
    wanted: tuple[str, ...]
    processes: int
    requests: int
    failures: int
    reason: str


@dataclass(frozen=True, slots=True)
class LiveModel:
    """A model that is served. `route`: as ``headrace serve`` was given it; `problem`: why it is not known what its
    aliases mean, or not anew; `unloaded`: a client has ordered it away.
    """

    name: str
    route: str
    versions: tuple[LiveVersion, ...]
    problem: str
    unloaded: bool


@dataclass(frozen=True, slots=True)
class Live:
    """One server.

    `grpc`: ``host:port``; `pid`: of the process that was started; `processes`: how many share the port, of which
    `answering` have told what they serve; `ready`: whether all of it is; `started`: RFC 3339; `home`: of its models;
    `mark`: see `mark_of`.
    """

    url: str
    grpc: str | None
    pid: int
    processes: int
    answering: int
    ready: bool
    started: str
    home: str
    mark: str
    models: tuple[LiveModel, ...]


def mark_of(home: Home) -> str:
    """The same for all who have this home, and for nobody else."""
    return hashlib.blake2b(f"{home.store.identity}\n{home.url()}".encode(), digest_size=12).hexdigest()


def all_live(cache_dir: str) -> list[Live]:
    """The servers that live, by URL; what dead ones have left is removed. Any thread. Never waits."""
    folder = _folder(cache_dir)
    found: list[Live] = []
    for name in _names(folder):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if _swept(path) or not name.endswith(_NOTE):
                continue
            with suppress(msgspec.MsgspecError), open(path, "rb") as file:
                found.append(msgspec.json.decode(file.read(), type=Live))
    return sorted(found, key=lambda one: (one.url, one.pid))


class Note:
    """One server's file. One thread at a time."""

    def __init__(self, cache_dir: str) -> None:
        self._folder = _folder(cache_dir)
        name = os.path.join(self._folder, f"{os.getpid()}-{secrets.token_hex(4)}")
        self._path, self._beside, self._last = name + _NOTE, name + _NEXT, name + _LAST
        self._held: int | None = None
        self._next: int | None = None

    def write(self, live: Live) -> None:
        """Put it in the place of what was told before, at once. Raises OSError, DeniedError: the disk does not."""
        if self._next is None:
            make_folder(self._folder, "HEADRACE_CACHE_DIR")
            self._next = self._prepared()
        _fill(self._next, msgspec.json.encode(live).ljust(_ROOM))
        with suppress(OSError):  # the first time there is none; and some file systems have no links
            os.link(self._path, self._last)
        os.rename(self._beside, self._path)
        held, self._held, self._next = self._held, self._next, None
        with suppress(OSError):
            self._next = self._prepared() if held is None else self._again(held)

    def close(self) -> None:
        """The server ends: nothing is left. Idempotent."""
        held, following, self._held, self._next = self._held, self._next, None, None
        if held is not None:
            self._drop(held, self._path)
        if following is not None:
            self._drop(following, self._beside)

    def _prepared(self) -> int:
        made = try_lock(self._beside)
        if made is None:
            raise BlockingIOError(errno.EAGAIN, "another process looks at it", self._beside)
        try:
            if not _is_at(made, self._beside):
                raise FileNotFoundError(errno.ENOENT, "another process has removed it", self._beside)
            os.posix_fallocate(made, 0, _ROOM)
        except BaseException:
            self._drop(made, self._beside)
            raise
        return made

    def _again(self, held: int) -> int:
        """What was told before becomes what is told next."""
        try:
            os.rename(self._last, self._beside)
        except OSError:
            self._drop(held, self._last)
            return self._prepared()
        return held

    def _drop(self, descriptor: int, path: str) -> None:
        with suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def _folder(cache_dir: str) -> str:
    return os.path.join(cache_dir, "serving", "servers")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _swept(path: str) -> bool:
    """Whether it was a dead server's file; then it is gone. Raises OSError."""
    lock = try_lock(path, make=False)
    if lock is None:
        return False
    try:
        if not _is_at(lock, path):
            return False  # its server has told something new meanwhile, which is locked
        os.unlink(path)
    finally:
        os.close(lock)
    return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _fill(descriptor: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], done)
    os.ftruncate(descriptor, len(data))
