"""Which mounts of this user are alive: one small JSON file each, in a folder that a reboot empties."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from headrace.base.places import temporary_folder
from headrace.base.settings import Settings, environment
from headrace.mount import mount_stats
from headrace.mount.kernel import mount_points

_SUFFIX = ".mount.json"


@dataclass(frozen=True, slots=True)
class LiveMount:
    """One mount, as its server noted it. `started`: seconds since the epoch."""

    mountpoint: str
    path: str
    pid: int
    started: float
    read_only: bool
    passthrough: bool
    staging: str

    @property
    def answers(self) -> bool:
        """Whether its server lives and the mount is there."""
        return is_alive(self.pid) and mount_points.mount_at(self.mountpoint) is not None


def run_folder(settings: Settings) -> str:
    """Where mounts are noted; made, mode 0700, where it is missing. Raises OSError."""
    chosen = settings.mount.run_dir
    if not chosen:
        given = environment("XDG_RUNTIME_DIR")
        if given:
            chosen = os.path.join(given, "headrace")
        elif os.geteuid() == 0 and os.access("/run", os.W_OK):
            chosen = "/run/headrace"
        else:
            chosen = os.path.join(temporary_folder(), f"headrace-run-{os.geteuid()}")
    os.makedirs(chosen, mode=0o700, exist_ok=True)
    if os.stat(chosen).st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{chosen} belongs to another user")
    return chosen


def note(settings: Settings, live: LiveMount) -> str:
    """Note a mount; the file, to be removed at its end. Raises OSError."""
    path = _file(settings, live.mountpoint)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(asdict(live), file)
    os.rename(temporary, path)
    return path


def all_live(settings: Settings) -> list[LiveMount]:
    """The mounts that live, by mount point; notes of dead ones are removed. Raises OSError."""
    base = run_folder(settings)
    found: list[LiveMount] = []
    for name in sorted(os.listdir(base)):
        if not name.endswith(_SUFFIX):
            continue
        live = _read(os.path.join(base, name))
        if live is not None and live.answers:
            found.append(live)
        elif live is None or not is_alive(live.pid):
            with suppress(OSError):
                os.unlink(os.path.join(base, name))
    return sorted(found, key=lambda live: live.mountpoint)


def live_mount_at(settings: Settings, mountpoint: str) -> LiveMount | None:
    """The note of one mount point, whether or not it lives. Raises OSError."""
    return _read(_file(settings, os.path.realpath(mountpoint)))


def record_file(settings: Settings, mountpoint: str) -> str:
    """Where the servers of a mount with ``--keep`` note what the next one has to know. Raises OSError."""
    return _file(settings, mountpoint).removesuffix(_SUFFIX) + ".nodes"


def staging_folder(base: str, mountpoint: str) -> str:
    """Where what is written through the mount at that point is staged: a folder of its own below `base`."""
    return os.path.join(base, _digest(mountpoint))


def unpublished_of(live: LiveMount) -> list[Mapping[str, Any]]:
    """What a live mount has not published yet; empty where it cannot be asked."""
    return _told(live, "pending.json")


def orphans_of(live: LiveMount) -> list[Mapping[str, Any]]:
    """What crashes of earlier mounts have left in its staging folder; empty where it cannot be asked."""
    return _told(live, "left.json")


def _told(live: LiveMount, name: str) -> list[Mapping[str, Any]]:
    try:
        return mount_stats.read(live.mountpoint, name)
    except (OSError, ValueError):
        return []


def refresh_all(settings: Settings) -> int:
    """Have every live mount of this user look at the stores again. Returns how many there are. Raises OSError."""
    found = all_live(settings)
    for mount in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(mount.pid, signal.SIGHUP)
    return len(found)


def _file(settings: Settings, mountpoint: str) -> str:
    return os.path.join(run_folder(settings), _digest(mountpoint) + _SUFFIX)


def _digest(mountpoint: str) -> str:
    return hashlib.blake2b(mountpoint.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _read(path: str) -> LiveMount | None:
    try:
        with open(path, encoding="utf-8") as file:
            return LiveMount(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def is_alive(pid: int) -> bool:
    """Whether there is such a process, whoever it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
