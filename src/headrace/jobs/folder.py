"""A run's folder on the node: what the job and the runner write, and what is sent of it.

<state>/<id>/record/            what is sent, at the same names
├ outputs/         HEADRACE_OUTPUTS; its `checkpoints` leads to the folder beside it
├ checkpoints/     <step>/…
├ logs/ metrics/   segments
└ code/            what there is of the tree
runner.json        {"format": 1, "id", "part", "url", "pid"}: what a crash left, and of which run
lock               held while the runner lives
status/            transitions, kept until they are in the bucket; put there by the runner itself
spool/             what the job's processes log
resume/ inputs/    what was brought here for the job
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import TryAgainError
from headrace.base.locks import holders, try_lock
from headrace.base.places import make_folder

FORMAT: Final = 1
NOT_SENT: Final = ("outputs/checkpoints",)
"""Patterns of names below ``record``."""
_FILE: Final = "file://"
_FOLDERS = ("record/outputs", "record/checkpoints", "record/logs", "record/metrics", "spool", "status")


@dataclass(frozen=True, slots=True)
class Left:
    """A run's folder whose runner is gone. `part`: that of one node of a gang, empty: the whole run's."""

    id: str
    path: str
    url: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class RunHere:
    """A run's folder. `pid`: of its runner; None: it is gone, and what is there is not sent."""

    id: str
    path: str
    url: str
    pid: int | None


class RunFolder:
    """One of them, made and locked. `close` lets go of it, `remove` deletes it. `part`: of a run that has several, one
    for each node of a gang.

    Raises:
        TryAgainError: a runner of this id is at work here. OSError: the disk.
    """

    def __init__(self, root: str, name: str, url: str, part: str = "") -> None:
        self.path = os.path.join(root, f"{name}.{part}" if part else name)
        self.home = local_home(url)
        """Where the home lies, if it is a folder of this machine."""
        make_folder(self.path, "HEADRACE_RUN_STATE")
        lock = try_lock(self.at("lock"))
        if lock is None:
            raise TryAgainError("a runner of this id is at work here", path=name, hint="headrace runs shows it")
        self._lock: int | None = lock
        for folder in _FOLDERS:
            os.makedirs(self.at(folder), exist_ok=True)
        with suppress(FileExistsError):
            os.symlink("../checkpoints", self.recorded("outputs", "checkpoints"))
        with open(self.at("runner.json"), "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, "id": name, "part": part, "url": url, "pid": os.getpid()}, file)

    def at(self, *parts: str) -> str:
        """The path of something in it."""
        return os.path.join(self.path, *parts)

    def recorded(self, *parts: str) -> str:
        """The path of something that is sent."""
        return os.path.join(self.path, "record", *parts)

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """All of it is in the bucket."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.close()


def local_home(url: str) -> str | None:
    """Where the home of the run with this URL lies, if it is a folder of this machine."""
    return os.path.dirname(os.path.dirname(url[len(_FILE) :])) if url.startswith(_FILE) else None


def left(root: str) -> Iterator[Left]:
    """Folders whose runner is gone, and has not sent everything."""
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(root)):
            path = os.path.join(root, name)
            told = _told(path)
            if "url" not in told or (lock := try_lock(os.path.join(path, "lock"))) is None:
                continue
            os.close(lock)
            yield Left(str(told.get("id", name)), path, str(told["url"]), str(told.get("part", "")))


def every(root: str) -> list[RunHere]:
    """All of them, those of runs under way too. No lock is taken."""
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    told = {name: one for name in names if "url" in (one := _told(os.path.join(root, name)))}
    held = holders(os.path.join(root, name, "lock") for name in told)
    return [
        RunHere(str(one.get("id", name)), path := os.path.join(root, name), str(one["url"]),
                int(one.get("pid", 0)) if os.path.join(path, "lock") in held else None)
        for name, one in told.items()
    ]  # fmt: skip


def _told(path: str) -> dict[str, Any]:
    try:
        with open(os.path.join(path, "runner.json"), encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError, TypeError):
        return {}
