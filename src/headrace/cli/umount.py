"""``headrace umount MOUNTPOINT``."""

from __future__ import annotations

import os
import signal
import time

import click

_POLL_S = 0.02  # seconds between looks whether the mount's server is done


@click.command()
@click.argument("mountpoint")
@click.option("--lazy", "-l", is_flag=True, help="Also while files are open there: they fail once it has ended.")
@click.option("--timeout", default="90s", show_default=True, help="Longest wait for what is not published yet.")
def command(mountpoint: str, *, lazy: bool, timeout: str) -> None:
    """Take a mount away, once everything written there is in the store. Cleans up after a dead one."""
    from headrace.base.errors import DeadlineError, InputError
    from headrace.base.settings import Settings
    from headrace.base.units import parse_seconds
    from headrace.mount import MOUNT_TYPE, clear_leftover, live_mount_at, mount_at, unmount

    point = os.path.realpath(mountpoint)
    settings = Settings.load()
    if clear_leftover(point):
        click.echo(f"{point}: its server was gone; cleaned up", err=True)
        return
    here = mount_at(point)
    if here is None or here.kind != MOUNT_TYPE:
        raise InputError("no mount of headrace is here", path=point, hint="see what is: headrace mounts --live")
    noted = live_mount_at(settings, point)
    until = time.monotonic() + parse_seconds(timeout, name="--timeout")
    unmount(point, lazy=lazy)
    if noted is None:
        return
    if lazy:
        _tell(noted.pid)
    while _is_there(noted.pid) and live_mount_at(settings, point) is not None:
        if time.monotonic() > until:
            hint = f"process {noted.pid} goes on publishing; its staging folder keeps what it cannot"
            raise DeadlineError("unmounted, but its server is not done", path=point, hint=hint)
        time.sleep(_POLL_S)


def _tell(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
