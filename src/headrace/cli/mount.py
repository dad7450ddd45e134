"""``headrace mount [PATH] MOUNTPOINT``."""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.mount import Mounted, MountOptions


@click.command()
@click.argument("path")
@click.argument("mountpoint", required=False)
@click.option("-o", "options", multiple=True, metavar="NAME[=VALUE],…", help="Mount options, as mount(8) takes them.")
@click.option("--foreground/--background", "-f/-b", default=False, help="Stay, or return once it answers (default).")
@click.option("--log-file", help="Where the background process writes what goes wrong.")
def command(
    path: str, mountpoint: str | None, *, options: tuple[str, ...], foreground: bool, log_file: str | None
) -> None:
    """Show PATH, or the whole namespace, as the folder MOUNTPOINT.

    Options: ro, allow_other, uid=, gid=, umask=, ttl=, metadata=listing|full, no_passthrough, no_open, no_prefetch,
    publish=, staging=, threads=. As root on Linux 6.9 and later the kernel reads cached files by itself. SIGTERM or
    `headrace umount` ends it; SIGHUP looks at the stores anew.
    """
    from headrace.base.settings import Settings
    from headrace.mount import MountOptions, daemon

    if mountpoint is None:
        path, mountpoint = "/", path
    settings = Settings.load()
    chosen = MountOptions.of(settings, ",".join(options))
    point = os.path.abspath(mountpoint)

    if not chosen.source:  # what `mount` and `df` show, and what `mount -a` knows it by
        chosen = dataclasses.replace(chosen, source="headrace" if path == "/" else path)

    def opened() -> Mounted:
        return _open(settings, path, point, chosen, quiet=not foreground)

    if foreground:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
        _serve(opened())
        return
    daemon.in_background(opened, _serve, os.path.abspath(log_file) if log_file else _log_file(settings, point))


def _open(settings: Settings, path: str, point: str, options: MountOptions, *, quiet: bool) -> Mounted:
    from headrace.cli.target import target
    from headrace.mount import Mounted
    from headrace.namespace import Namespace

    if quiet:
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, force=True)
    place = target(Namespace.load(settings), path)
    mounted = Mounted.open(settings, Namespace.load(settings, local=False), place, point, options)
    how = "the kernel reads cached files itself" if mounted.passthrough else "without passthrough"
    how += "" if mounted.reading.opens else " and without a message for each open"
    click.echo(f"mounted {path} at {point}, {'read-only, ' if options.read_only else ''}{how}", err=True)
    return mounted


def _serve(mounted: object) -> None:
    from headrace.mount import Mounted, daemon

    assert isinstance(mounted, Mounted)
    daemon.on_signals(mounted.end, mounted.refresh)
    try:
        mounted.wait()
    finally:
        mounted.close()


def _log_file(settings: Settings, point: str) -> str:
    from headrace.mount import live

    return os.path.join(live.folder(settings), point.strip("/").replace("/", "-") + ".log")
