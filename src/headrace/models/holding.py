"""A version's files on this node, held: `LocalModel`.

    <cache dir>/models/<name>-<number>-<digest>/…       the files, at their own names
                       <name>-<number>-<digest>.lock    held (shared) by whoever uses them, by `flock(2)`

A file there is a second name of the one in the node's cache, so that it takes no room of its own, and stays when the
cache evicts it; where the cache keeps nothing it is the file itself. The last that lets go removes the folder, and
whoever holds a model next removes what killed processes have left. A home that is a folder of this machine is used as
it lies.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from headrace.base.errors import CorruptError
from headrace.base.locks import try_lock
from headrace.base.places import make_folder
from headrace.base.progress import SILENT, Progress
from headrace.cache import Cache, EntryLabel
from headrace.cache.boot import boot_id
from headrace.models.bringing import Wanted, bring, check, digest_of, path_below
from headrace.models.card import ModelCard, ModelFile
from headrace.store.protocol import ObjectInfo

if TYPE_CHECKING:
    from headrace.models.registry import ModelVersion, Registry

_PROVED: Final = "user.headrace.sha256"
"""An attribute of a file whose digest was compared since this machine was booted: the digest, and which boot."""
_proved: dict[tuple[str, int, int, int], str] = {}
"""Digests of files of this machine's own that were made in this process: by path, inode, size and time."""


class LocalModel:
    """The files of one version, there until this is closed. Any thread; also a context manager.

    `folder`: where they lie at their own names; `files`: the same, by name; `card`: what ``model.json`` says.
    """

    def __init__(self, folder: str, card: ModelCard, lock: int | None) -> None:
        self.folder = Path(folder)
        self.card = card
        self.files: Mapping[str, Path] = {one.path: Path(path_below(folder, one.path)) for one in card.files}
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalModel({str(self.folder)!r})"

    @property
    def entry(self) -> Path | None:
        """The file that a runtime opens first; None: the folder as a whole."""
        return self.files[self.card.entry] if self.card.entry is not None else None

    def close(self) -> None:
        """Let go of the files; who has one open keeps it. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            _remove_if_unheld(str(self.folder), lock)
            os.close(lock)


def hold(registry: Registry, version: ModelVersion, progress: Progress = SILENT) -> LocalModel:
    """See `Registry.local`."""
    card, store = version.card, registry.home.store
    prefix = registry.prefix(version.name, version.number)
    if store.local_root is not None:
        folder = os.path.join(store.local_root, prefix)
        for one in card.files:
            _check_in_place(path_below(folder, one.path), one)
        return LocalModel(folder, card, None)
    cache_dir = registry.namespace.fetcher.settings.cache.dir
    root = make_folder(os.path.join(make_folder(cache_dir, "HEADRACE_CACHE_DIR"), "models"), "HEADRACE_CACHE_DIR")
    tag = hashlib.blake2b(f"{store.identity}\n{prefix}\n{card.digest}".encode(), digest_size=8).hexdigest()
    folder = os.path.join(root, f"{version.name}-{version.number}-{tag}")
    _sweep(root)
    while True:
        lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if not os.path.isdir(folder):
                fcntl.flock(lock, fcntl.LOCK_EX)
                if _is_at(lock, f"{folder}.lock") and not os.path.isdir(folder):
                    _build(registry, version, folder, progress)
                fcntl.flock(lock, fcntl.LOCK_SH)  # in between somebody else may have removed it
            if _is_at(lock, f"{folder}.lock") and os.path.isdir(folder):
                return LocalModel(folder, card, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def objects_of(registry: Registry, version: ModelVersion) -> list[ObjectInfo]:
    """The objects of a version's files as they are now, in the card's order. One LIST.

    Raises CorruptError: one is gone, or of another size; names it.
    """
    prefix = registry.prefix(version.name, version.number)
    found = {info.key: info for page in registry.home.store.list(prefix) for info in page}
    infos: list[ObjectInfo] = []
    for one in version.card.files:
        info, where = found.get(prefix + one.path), f"{version.path}/{one.path}"
        if info is None or info.size != one.bytes:
            what = "is gone" if info is None else f"has {info.size:,} bytes, not {one.bytes:,} as published"
            raise CorruptError(what, path=where, hint="roll back to another version, or publish it again")
        infos.append(info)
    return infos


def _build(registry: Registry, version: ModelVersion, folder: str, progress: Progress) -> None:
    """Under the folder's exclusive lock. It appears by rename."""
    beside = f"{folder}.partial"
    shutil.rmtree(beside, ignore_errors=True)
    os.makedirs(beside, mode=0o700)
    fetcher, store = registry.namespace.fetcher, registry.home.store
    cache = fetcher.cache if fetcher.keeps(store) else None
    link = partial(_link, cache, store.identity, beside)
    lacking = [one for info, one in _committed(registry, version) if not link(info, one)]
    now = dict(zip(version.card.files, objects_of(registry, version), strict=True)) if lacking else {}
    missing = [(now[one], one) for one in lacking if not link(now[one], one)]
    wanted = [Wanted(info, path_below(beside, one.path)) for info, one in missing]
    found = bring(store, fetcher, wanted, progress)
    for (info, one), digest, (_, path) in zip(missing, found, wanted, strict=True):
        check(digest, one.sha256, f"{version.path}/{one.path}")
        if cache is not None:
            _adopt(cache, store.identity, info, path)
        _mark(path, digest)
    if cache is not None:
        cache.settle()
    os.rename(beside, folder)


def _committed(registry: Registry, version: ModelVersion) -> list[tuple[ObjectInfo, ModelFile]]:
    """A version's files as the objects that were committed, which the cache may know: no request."""
    prefix = registry.prefix(version.name, version.number)
    etags = {one.name: one.etag for one in version.publication.members}
    return [(ObjectInfo(prefix + one.path, one.bytes, etags.get(one.path)), one) for one in version.card.files]


def _link(cache: Cache | None, identity: str, folder: str, info: ObjectInfo, one: ModelFile) -> bool:
    """Whether the cache held the file, and its bytes are those that were published. If not so, it is fetched anew."""
    if not info.size:
        return _make_empty(path_below(folder, one.path))
    if cache is None:
        return False
    name = cache.name(identity, info.key, info.version, info.size)
    held, path = cache.path(name), path_below(folder, one.path)
    if held is None:
        return False
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.link(held, path)
    except OSError:  # evicted just now, or a file system without links
        return False
    if _is_proved(path, one.sha256):
        return True
    if digest_of(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) == one.sha256:
        _mark(path, one.sha256)
        return True
    os.unlink(path)
    cache.evict([name])
    return False


def _make_empty(path: str) -> bool:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    return True


def _adopt(cache: Cache, identity: str, info: ObjectInfo, path: str) -> None:
    """Give the cache a second name of a file that was brought, as its entry."""
    if not info.size:
        return
    other = f"{path}.adopted"
    with suppress(OSError):
        os.link(path, other)
        descriptor = os.open(other, os.O_RDWR | os.O_CLOEXEC)
        try:
            name = cache.name(identity, info.key, info.version, info.size)
            cache.adopt(name, other, descriptor, EntryLabel(identity, info.key, info.version, info.size))
        finally:
            os.close(descriptor)
    with suppress(FileNotFoundError):
        os.unlink(other)


def _mark(path: str, digest: str) -> None:
    with suppress(OSError):  # no attributes here: it is compared each time
        os.setxattr(path, _PROVED, f"{digest} {boot_id()}".encode())


def _is_proved(path: str, digest: str) -> bool:
    with suppress(OSError):
        return os.getxattr(path, _PROVED) == f"{digest} {boot_id()}".encode()
    return False


def _check_in_place(path: str, one: ModelFile) -> None:
    """Raises CorruptError."""
    hint = "roll back to another version, or publish it again"
    try:
        status = os.stat(path)
        known = (path, status.st_ino, status.st_size, status.st_mtime_ns)
        if known not in _proved:
            _proved[known] = digest_of(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        raise CorruptError("is gone", path=path, hint=hint) from None
    check(_proved[known], one.sha256, path)


def _sweep(root: str) -> None:
    """Remove folders that nobody holds: their processes were killed."""
    for name in os.listdir(root):
        folder, dot, _ = name.rpartition(".lock")
        if dot:
            with suppress(OSError):
                path = os.path.join(root, folder)
                if (lock := try_lock(f"{path}.lock", make=False)) is not None:
                    _remove_if_unheld(path, lock)
                    os.close(lock)


def _remove_if_unheld(folder: str, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody else holds it
        return
    if not _is_at(lock, f"{folder}.lock"):
        return
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(f"{folder}.partial", ignore_errors=True)
    with suppress(FileNotFoundError):
        os.unlink(f"{folder}.lock")


def _is_at(descriptor: int, path: str) -> bool:
    """Whether an open file is still the one of that path."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
