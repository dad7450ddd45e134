"""``headrace umount MOUNTPOINT``."""

from __future__ import annotations

import os

import click


@click.command()
@click.argument("mountpoint")
@click.option("--lazy", "-l", is_flag=True, help="Also while files are open there: they fail once it has ended.")
@click.option("--timeout", default="90s", show_default=True, help="Longest wait for what is not published yet.")
def command(mountpoint: str, *, lazy: bool, timeout: str) -> None:
    """Take a mount away, once everything written there is in the store. Cleans up after a dead one."""
    from headrace.base.units import parse_seconds
    from headrace.mount import end_mount

    if not end_mount(mountpoint, lazy=lazy, timeout_s=parse_seconds(timeout, name="--timeout")):
        click.echo(f"{os.path.realpath(mountpoint)}: its server was gone; cleaned up", err=True)
