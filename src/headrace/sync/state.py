"""What a sync leaves on this machine: which folder goes where, what is sent of it, and how it stands.

One folder for each pair of folder and URL, below ``sync.state`` (a user's state folder by default)::

    <id>/about.json     {"format": 1, "folder", "url", "destination", "options": {"ignore", "checkpoints", "delete"}}
    <id>/lock           held while a sync works on it
    <id>/ledger.sqlite  what is sent
    <id>/status.json    {"format": 1, "state", "pid", "files", "bytes", "oldest", "updated", "left": [names]}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from headrace.base.errors import TryAgainError
from headrace.base.locks import try_lock
from headrace.base.places import make_folder
from headrace.base.settings import Settings

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Status:
    """How a sync stands. `state`: ``running``, ``finished``, ``stopped`` (something is left), ``lost`` (it died).

    `files`, `bytes`: not sent yet; `oldest`: seconds since the first of these changes; `updated`: RFC 3339;
    `options`: as given to `State`.
    """

    id: str
    folder: str
    url: str
    destination: str
    state: str
    pid: int | None
    files: int
    bytes: int
    oldest: float
    updated: str | None
    options: Mapping[str, Any]


class State:
    """The state of one pair, locked for this process. `close` it.

    `url`: of the objects; `destination`: as it was asked for, a path or URL, by which credentials are found again;
    `options`: fields of `SyncOptions` that say which files are sent, so that who recovers sends no others.

    Raises:
        TryAgainError: another process works on it. OSError: the disk.
    """

    def __init__(
        self, root: str, folder: str, url: str, destination: str = "", options: Mapping[str, Any] | None = None
    ) -> None:
        self.folder, self.url = os.path.realpath(folder), url
        self.id = hashlib.sha256(f"{self.folder}\0{url}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.path = os.path.join(root, self.id)
        make_folder(self.path, "HEADRACE_SYNC_STATE")
        self._lock = try_lock(os.path.join(self.path, "lock"))
        if self._lock is None:
            pid = _told(self.path, "status.json").get("pid")
            hint = "headrace sync --status shows what is under way"
            raise TryAgainError(f"is being synced to {url} by another process (pid {pid})", path=self.folder, hint=hint)
        about: dict[str, Any] = {"format": FORMAT, "folder": self.folder, "url": url, "destination": destination or url}
        about["options"] = dict(options or {})
        if _told(self.path, "about.json") != about:  # a full disk keeps nobody from going on
            self.write("about.json", about)

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ledger(self) -> str:
        """The ledger's file."""
        return os.path.join(self.path, "ledger.sqlite")

    def tell(self, state: str, files: int, size: int, oldest: float, left: list[str]) -> None:
        """Say how it stands. A full disk keeps the old word."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with suppress(OSError):
            self.write("status.json", {
                "format": FORMAT, "state": state, "pid": os.getpid(), "files": files, "bytes": size,
                "oldest": round(oldest, 1), "updated": now, "left": left[:1000],
            })  # fmt: skip

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """One of the JSON files, whole. Raises OSError."""
        path = os.path.join(self.path, name)
        with open(f"{path}.new", "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(content, file, ensure_ascii=False, indent=1)
        os.replace(f"{path}.new", path)

    def close(self) -> None:
        """Let others have it. Idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def statuses(root: str | None = None, *, folder: str | None = None) -> Iterator[Status]:
    """Every sync that this machine knows of, the running ones too: what `headrace sync --status` shows. Any thread.

    Args:
        root: where they keep their state; None: ``sync.state`` of the settings.
        folder: only those of this folder; None: all.
    """
    root = Settings.load().sync.state if root is None else root
    wanted = None if folder is None else os.path.realpath(folder)
    with suppress(OSError):
        for name in sorted(os.listdir(root)):
            about, told = _told(os.path.join(root, name), "about.json"), _told(os.path.join(root, name), "status.json")
            if not {"folder", "url", "destination"} <= about.keys() or wanted not in (None, about["folder"]):
                continue
            state = str(told.get("state", "running"))
            if state == "running" and (lock := try_lock(os.path.join(root, name, "lock"))) is not None:
                os.close(lock)
                state = "lost"
            yield Status(
                name, str(about["folder"]), str(about["url"]), str(about["destination"]), state,
                int(told["pid"]) if state == "running" and "pid" in told else None,
                int(told.get("files", 0)), int(told.get("bytes", 0)), float(told.get("oldest", 0.0)),
                told.get("updated"), about.get("options", {}),
            )  # fmt: skip


def _told(folder: str, name: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as file:
            found: Any = json.load(file)
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
