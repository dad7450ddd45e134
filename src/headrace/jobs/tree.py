"""What lies in a tree now: regular files and links, by their names below its root, and what is left out of it."""

from __future__ import annotations

import heapq
import os
import stat
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.base.errors import DeniedError, HeadraceError, InputError, TryAgainError
from headrace.base.units import format_bytes
from headrace.sync.options import matches

JUNK: Final = (".git", ".hg", ".svn", ".env", ".venv", "__pycache__", "node_modules", "*.pyc", ".ipynb_checkpoints",
               ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".DS_Store")  # fmt: skip
"""Left out of a folder where no git says what is ignored."""
SETTING: Final = "code.limit"
_NAMED = 5  # files named in a message
_IGNORES: Final = 65536
"""Bytes of a ``.gitignore`` that are looked at; one with more does not say one thing."""


class Stamp(NamedTuple):
    """What changes when a file does. `size`: bytes."""

    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    device: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        times = found.st_mtime_ns, found.st_ctime_ns
        return cls(found.st_mode, found.st_size, *times, found.st_dev, found.st_ino)


class Tree:
    """The files of one tree, gathered name by name. One thread.

    `ignore`: patterns of what is left out; one without ``/`` is for every part of a name, else for
    all of it. `skip`: folders that are left out. `files`: name → size in bytes, of what was there; `odd`: what is no
    file, link or folder, and was left out. Names are as `os.fsdecode` gives them.
    """

    def __init__(self, root: str, ignore: Sequence[str] = (), skip: Sequence[str] = ()) -> None:
        self.root = root
        self.files: dict[str, int] = {}
        self.odd: list[str] = []
        self._ignore, self._skip = tuple(ignore), tuple(skip)
        self._folders: dict[str, bool] = {"": True}

    def path(self, name: str) -> str:
        """Where it lies."""
        return f"{self.root}/{name}" if name else self.root

    def add(self, name: str) -> bool:
        """Take a file or a link in; False when nothing is there, or what is there is none.

        What lies behind a link to a folder is not in the tree, whatever git's index says.

        Raises:
            DeniedError: it may not be looked at.
        """
        if self.ignores(name) or not self.is_folder(name.rpartition("/")[0]):
            return False
        try:
            found = os.lstat(self.path(name))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise unreadable(self.path(name), error) from error
        if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
            self.files[name] = found.st_size
            return True
        if not stat.S_ISDIR(found.st_mode):
            self.odd.append(name)
        return False

    def walk(self, below: str, junk: Sequence[str] = JUNK) -> None:
        """Take in all that lies in a folder, less what matches `junk`, and folders that ignore themselves.

        Raises:
            DeniedError: a folder may not be read.
        """
        waiting = [below] if self.is_folder(below) else []
        while waiting:
            folder = waiting.pop()
            for last in self._listed(folder):
                name = f"{folder}/{last}" if folder else last
                if matches(last, tuple(junk)) or self.ignores(name):
                    continue
                if self.is_folder(name):
                    if not self._ignores_itself(name):
                        waiting.append(name)
                else:
                    self.add(name)

    def ignores(self, name: str) -> bool:
        """Whether it is left out, by its name."""
        path = self.path(name)
        if any(path == folder or path.startswith(f"{folder}/") for folder in self._skip):
            return True
        parts = name.split("/") if self._ignore else []
        return any(matches("/".join(parts[: count + 1]), self._ignore) for count in range(len(parts)))

    def is_folder(self, name: str) -> bool:
        """Whether it is a folder, reached through folders alone."""
        known = self._folders.get(name)
        if known is None:
            try:
                known = self.is_folder(name.rpartition("/")[0]) and stat.S_ISDIR(os.lstat(self.path(name)).st_mode)
            except OSError:
                known = False
            self._folders[name] = known
        return known

    def check(self, limit: int, hint: str) -> None:
        """Raises InputError: it is larger than `limit` bytes; names the largest files, and says `hint`."""
        total = sum(self.files.values())
        if total <= limit:
            return
        largest = heapq.nlargest(_NAMED, self.files.items(), key=lambda one: one[1])
        named = ", ".join(f"{shown(name)} ({format_bytes(size)})" for name, size in largest)
        held = f"{format_bytes(total)} in {len(self.files):,} files, more than the {format_bytes(limit)} of {SETTING}"
        reason = f"the code of this run holds {held}; {self._heaviest(total)}the largest files: {named}"
        raise InputError(reason, path=shown(self.root), hint=hint)

    def _heaviest(self, total: int) -> str:
        """The folder with most of it, if that says more than the largest files do."""
        folders: dict[str, int] = {}
        for name, size in self.files.items():
            folder = name.rpartition("/")[0]
            folders[folder] = folders.get(folder, 0) + size
        folder, size = max(folders.items(), key=lambda one: one[1])
        return f"{shown(folder)}/ alone {format_bytes(size)}; " if folder and 2 * size > total else ""

    def _ignores_itself(self, folder: str) -> bool:
        """Whether its own ``.gitignore`` says ``*`` and nothing else: so tools mark what they made, or keep.

        With more in it some of the folder may be wanted (``!*.py``).
        """
        try:
            with open(f"{self.path(folder)}/.gitignore", "rb", opener=_at_once) as file:
                told = file.read(_IGNORES)
        except OSError:
            return False
        lines = [line.strip() for line in told.split(b"\n")]
        return len(told) < _IGNORES and [line for line in lines if line and not line.startswith(b"#")] == [b"*"]

    def _listed(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.path(folder))
        except (FileNotFoundError, NotADirectoryError):  # gone since, as a file may be
            return []
        except OSError as error:
            raise unreadable(self.path(folder), error) from error


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # it may be a pipe


def unreadable(path: str, error: OSError) -> HeadraceError:
    """A file of the tree cannot be read."""
    if isinstance(error, PermissionError):
        hint = "make it readable, or leave it out: name it in .gitignore, or in code.ignore"
        return DeniedError("is part of the code of this run, and may not be read", path=shown(path), hint=hint)
    return TryAgainError(f"cannot be read: {error.strerror}", path=shown(path), hint="is its disk healthy?")


def listed(names: Sequence[str]) -> str:
    """A few of the names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(shown(name) for name in sorted(names)[:_NAMED]) + more


def shown(name: str) -> str:
    """A name as text that any terminal and any JSON takes: bytes that are no UTF-8, and control characters, escaped."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
