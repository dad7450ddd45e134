"""The end of a mount, as `headrace umount` brings it about: `end_mount`."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Final

from headrace.base.errors import DeadlineError, InputError
from headrace.base.settings import Settings
from headrace.mount.kernel.mount_points import MOUNT_TYPE, clear_leftover, mount_at, unmount
from headrace.mount.live_mounts import is_alive, live_mount_at

_POLL_S: Final = 0.02  # seconds between looks whether the mount's server is done


def end_mount(
    mountpoint: str, *, lazy: bool = False, timeout_s: float = 90.0, settings: Settings | None = None
) -> bool:
    """Take a mount away, once everything written there is in the store. Any thread.

    Args:
        mountpoint: the folder.
        lazy: also while files are open there; they fail once it has ended.
        timeout_s: seconds to wait for what is not published yet.
        settings: None: `Settings.load`.

    Returns:
        False: its server was gone, and what it left was cleaned up.

    Raises:
        InputError: no mount of headrace is there, or files are open. DeniedError: not allowed.
        DeadlineError: it is unmounted, but not everything is published.
    """
    point = os.path.realpath(mountpoint)
    found = settings or Settings.load()
    if clear_leftover(point):
        return False
    here = mount_at(point)
    if here is None or here.kind != MOUNT_TYPE:
        raise InputError("no mount of headrace is here", path=point, hint="see what is: headrace mounts --live")
    noted = live_mount_at(found, point)
    until = time.monotonic() + timeout_s
    unmount(point, lazy=lazy)
    if noted is None:
        return True
    if lazy:
        with suppress(ProcessLookupError):
            os.kill(noted.pid, signal.SIGTERM)
    while is_alive(noted.pid) and live_mount_at(found, point) is not None:
        if time.monotonic() > until:
            hint = f"process {noted.pid} goes on publishing; its staging folder keeps what it cannot"
            raise DeadlineError("unmounted, but its server is not done", path=point, hint=hint)
        time.sleep(_POLL_S)
    return True
