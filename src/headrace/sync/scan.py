"""What lies in a folder now: regular files, by their names below it."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from headrace.sync.options import SyncOptions


class Stamp(NamedTuple):
    """What changes when a file does. `size`: bytes. `changed_ns`: when anything of the file was changed, which no
    program can set (``st_ctime``): it tells of a rewrite that keeps the size and sets the old time again.
    """

    size: int
    mtime_ns: int
    device: int
    inode: int
    changed_ns: int = 0

    @property
    def written(self) -> tuple[int, int, int, int]:
        """The same without what a rename, a hard link or a mode change, too."""
        return self[:4]


class Folder:
    """The folder that is synced. Any thread.

    Links to files inside it are files of their own; links to folders, links that lead out, pipes and sockets are left
    out. `odd` holds the names of the latter, and of files that no object can be named after, with the reason;
    `scanned`: the `identity` it had when all of it was last looked at.
    """

    def __init__(self, path: str, options: SyncOptions) -> None:
        self.path = os.path.realpath(path)
        self._options = options
        self.odd: dict[str, str] = {}
        self.scanned: tuple[int, int] | None = None

    def local(self, name: str) -> str:
        """Where a file lies."""
        return f"{self.path}/{name}"

    def scan(self, below: str = "") -> dict[str, Stamp]:
        """Every file at or below a name. Folders that vanish meanwhile, or may not be read, are empty."""
        if not below:
            self.scanned = self.identity()  # before: what is put over it meanwhile has another
        return dict(self._walk(below))

    def look(self, name: str) -> Stamp | None:
        """One file; None when it is not there, or none that is sent."""
        parts = name.split("/")
        if any(self._options.ignores("/".join(parts[: count + 1])) for count in range(len(parts))):
            return None
        try:
            found = os.lstat(self.local(name))
            return self._stamp(name, found)
        except (OSError, ValueError):
            return None

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the folder itself; None: it is not there."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def is_folder(self, name: str) -> bool:
        """Whether it is one, and not a link to one."""
        try:
            return stat.S_ISDIR(os.lstat(self.local(name)).st_mode)
        except OSError:
            return False

    def closed(self, name: str) -> bool | None:
        """Whether nobody has a file open for writing; None where the kernel or the file system does not tell.

        A read lease is granted just then (fcntl(2), F_SETLEASE), to the file's owner; it is given back at once.
        """
        try:
            fd = os.open(self.local(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return False
        except OSError:
            return None
        else:
            with suppress(OSError):
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return True
        finally:
            os.close(fd)

    def _walk(self, below: str) -> Iterator[tuple[str, Stamp]]:
        waiting = [below]
        while waiting:
            folder = waiting.pop()
            try:
                entries = list(os.scandir(self.local(folder) if folder else self.path))
            except OSError:
                continue
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if self._options.ignores(name):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(name)
                    elif (stamp := self._stamp(name, entry.stat(follow_symlinks=False))) is not None:
                        yield name, stamp
                except OSError:
                    continue

    def _stamp(self, name: str, found: os.stat_result) -> Stamp | None:
        if stat.S_ISLNK(found.st_mode):
            real = os.path.realpath(self.local(name))
            if not real.startswith(self.path + "/"):
                self.odd[name] = "a link that leads out of the folder"
                return None
            found = os.stat(real)
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode):
            self.odd[name] = "not a file"
            return None
        try:
            name.encode()
        except UnicodeEncodeError:
            self.odd[name] = "a name that is not UTF-8"
            return None
        return Stamp(found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino, found.st_ctime_ns)
