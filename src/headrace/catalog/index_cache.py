"""The node's shelf of indices: folders built once, published by rename, shared by every process, rebuilt when in doubt.

``<cache dir>/indexes/<name>/`` is complete if it exists. Nothing is flushed to disk: that costs tens of milliseconds a
file and guards only against a crash of the machine, so instead the first process after a reboot checks the sums. Work
in progress lives beside it in ``tmp-…`` folders that their owner removes, or that a later owner sweeps after a day. A
lock file saves double work and is never trusted for truth. Folders not opened for thirty days are swept too. Where the
cache folder cannot be written, the shelf is a temporary folder of this process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import xxhash

from headrace.base.places import refused, temporary_folder
from headrace.base.settings import Settings
from headrace.cache.boot import boot_id

_LOG = logging.getLogger(__name__)
_META = "meta.json"
_DAY = 86400.0  # seconds: what is half built goes after one, what nobody has used after 30
_LOCK_WAIT_S = 900.0
"""Seconds that another process may take to build the same index, maybe of tens of millions of objects."""
_TOUCH_S = 3600.0  # seconds between notes that an index was used: a read is not to write every time


class Shelf:
    """Any thread, any process."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)

    @staticmethod
    def of(settings: Settings) -> Shelf:
        """The shelf beside the cache; a temporary one, removed with it, where that folder cannot be used.

        Raises DeniedError: there is no place for that either.
        """
        try:
            os.makedirs(settings.cache.dir, mode=0o700, exist_ok=True)
            shelf = Shelf(os.path.join(settings.cache.dir, "indexes"))
            probe, path = tempfile.mkstemp(prefix="tmp-", dir=shelf.root)
            os.close(probe)
            os.unlink(path)
        except OSError as error:
            told = refused(settings.cache.dir, "HEADRACE_CACHE_DIR", error)
            _LOG.warning("indices are not kept: %s", told)
            shelf = Shelf(tempfile.mkdtemp(prefix="headrace-indexes-", dir=temporary_folder()))
            weakref.finalize(shelf, _remove_if_owner, str(shelf.root), os.getpid())
        return shelf

    def find(self, name: str) -> tuple[Path, dict[str, Any]] | None:
        """A complete folder and its meta data, or None. A damaged folder is removed."""
        folder = self.root / name
        try:
            meta = json.loads((folder / _META).read_bytes())
            whole = all((folder / file).stat().st_size == size for file, (size, _) in meta["files"].items())
            if whole and meta["boot"] != boot_id():
                whole = all(_sum(folder / file) == check for file, (_, check) in meta["files"].items())
                _write_json(folder / _META, meta | {"boot": boot_id()})
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            whole, meta = False, {}
        if not whole:
            shutil.rmtree(folder, ignore_errors=True)
            return None
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _TOUCH_S:
                os.utime(folder)
        return folder, meta

    @contextlib.contextmanager
    def workspace(self) -> Generator[Path]:
        """A folder for work in progress, gone at the end unless published."""
        self._sweep()
        folder = Path(tempfile.mkdtemp(prefix="tmp-", dir=self.root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, work: Path, name: str, meta: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
        """Make `work` (a folder with nothing but finished files) the folder `name`; the first publisher wins."""
        files = {p.name: (p.stat().st_size, _sum(p)) for p in work.iterdir()}
        meta = {**meta, "files": files, "boot": boot_id()}
        _write_json(work / _META, meta)
        try:
            os.rename(work, self.root / name)
        except OSError:
            found = self.find(name)
            if found is not None:
                return found
            os.rename(work, self.root / name)  # a damaged one, or an older version's, was there: `find` removed it
        return self.root / name, meta

    def get(self, name: str, build: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
        """Find `name`, or let one process of the node build it: `build(folder)` writes the files, returns meta data."""
        found = self.find(name)
        if found:
            return found
        with self.lock(name):
            found = self.find(name)
            if found:
                return found
            with self.workspace() as work:
                return self.publish(work, name, build(work))

    @contextlib.contextmanager
    def lock(self, name: str) -> Generator[None]:
        """Hold off other builders of `name`; after a quarter of an hour, or without working locks, go on regardless."""
        handle = os.open(self.root / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _flock(handle)
            yield
        finally:
            os.close(handle)

    def note(self, name: str, value: dict[str, Any]) -> None:
        """Remember something small under `name` (replaced atomically)."""
        _write_json(self.root / f"{name}.note", value)

    def recall(self, name: str, max_age_s: float) -> dict[str, Any] | None:
        """What `note` kept, unless older than `max_age_s` seconds or unreadable."""
        path = self.root / f"{name}.note"
        try:
            return json.loads(path.read_bytes()) if 0 <= time.time() - path.stat().st_mtime < max_age_s else None
        except (OSError, ValueError):
            return None

    def _sweep(self) -> None:
        now = time.time()
        for entry in os.scandir(self.root):
            limit = _DAY if entry.name.startswith("tmp-") else 30 * _DAY
            try:
                if now - entry.stat(follow_symlinks=False).st_mtime < limit:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
            except OSError:
                continue


def _remove_if_owner(folder: str, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _sum(path: Path) -> str:
    digest = xxhash.xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace `path` whole or not at all."""
    handle, temporary = tempfile.mkstemp(prefix="tmp-", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        json.dump(value, file)
    os.replace(temporary, path)


def _flock(handle: int) -> None:
    until = time.monotonic() + _LOCK_WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return
