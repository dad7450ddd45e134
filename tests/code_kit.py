"""Git repositories to capture code from, and what a tree holds."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.jobs.capture import capture
from headrace.jobs.code import Code
from headrace.jobs.restoring import restore

Tree = Mapping[str, tuple[str, bytes]]
"""Name → ``file``, ``exec`` or ``link``, and the content or the target."""


def own_settings(patch: pytest.MonkeyPatch, home: Path) -> Path:
    """Nothing of this machine's git settings counts; those in the file returned do."""
    home.mkdir(exist_ok=True)
    settings = home / "gitconfig"
    settings.write_text("[user]\nname = A\nemail = a@example.com\n[init]\ndefaultBranch = main\n")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        patch.delenv(name)
    patch.setenv("HOME", str(home))
    patch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    patch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    return settings


class Repo:
    """A repository and its working tree."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", *options)

    def git(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=self.path, check=False, capture_output=True, timeout=60, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0 or not check, done.stderr.decode()
        return os.fsdecode(done.stdout)

    def write(self, name: str, body: bytes | str = b"", *, executable: bool = False) -> Path:
        path = Path(os.fsdecode(os.fsencode(self.path) + b"/" + os.fsencode(name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body.encode() if isinstance(body, str) else body)
        path.chmod(0o755 if executable else 0o644)
        return path

    def commit(self, message: str = "one") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD").strip()

    def listed(self) -> Tree:
        """What git says the working tree has."""
        names = self.git("ls-files", "-z", "-c", "-o", "--exclude-standard").split("\0")[:-1]
        return {name: one for name in names if (one := look(self.path / name)) is not None}

    def inside(self) -> dict[str, tuple[int, str]]:
        """Everything below ``.git``: when it was written, and what it holds."""
        found: dict[str, tuple[int, str]] = {}
        for folder, _, names in os.walk(os.fsencode(self.path / ".git")):
            found[os.fsdecode(folder)] = (os.stat(folder).st_mtime_ns, "")
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    body = hashlib.sha256(file.read()).hexdigest()
                found[os.fsdecode(path)] = (os.stat(path).st_mtime_ns, body)
        return found


def look(path: Path) -> tuple[str, bytes] | None:
    """One file or link, unless it lies behind a link."""
    try:
        if os.path.realpath(path.parent) != str(path.parent):
            return None
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(found.st_mode):
        return "link", os.fsencode(os.readlink(path))
    if stat.S_ISREG(found.st_mode):
        return ("exec" if found.st_mode & 0o100 else "file"), path.read_bytes()
    return None


def tree(folder: Path) -> Tree:
    """Everything in a folder that is neither ``.git`` nor a folder."""
    found: dict[str, tuple[str, bytes]] = {}
    for above, folders, names in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
        for name in [*names, *(one for one in folders if os.path.islink(os.path.join(above, one)))]:
            path = Path(above, name)
            one = look(path)
            if one is not None and name != ".git":
                found[os.path.relpath(path, folder)] = one
    return found


def again(folder: Path, scratch: Path, **options: object) -> tuple[Code, Tree]:
    """Capture, and lay out from the record alone."""
    into, out = scratch / "into", scratch / "out"
    code = capture(folder, str(into), **options)  # pyright: ignore[reportArgumentType]
    restore(Code.from_json(code.as_json()), str(into), str(out))
    return code, tree(out)
