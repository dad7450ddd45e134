"""``headrace mount [PATH] MOUNTPOINT``."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.mount import HeldMount, Mounted, MountOptions

_FORM = "%(asctime)s %(levelname)s %(message)s"


@click.command()
@click.argument("path")
@click.argument("mountpoint", required=False)
@click.option("-o", "options", multiple=True, metavar="NAME[=VALUE],…", help="Mount options, as mount(8) takes them.")
@click.option("--foreground/--background", "-f/-b", default=False, help="Stay, or return once it answers (default).")
@click.option("--keep", is_flag=True, help="A small process keeps the mount when its server dies, and starts the next.")
@click.option("--log-file", help="Where the background process writes what goes wrong.")
@click.option("--keeper", type=int, hidden=True, help="Socket of the holder that has started this server.")
def command(
    path: str, mountpoint: str | None, *, options: tuple[str, ...], foreground: bool, keep: bool, log_file: str | None,
    keeper: int | None,
) -> None:  # fmt: skip
    """Show PATH, or the whole namespace, as the folder MOUNTPOINT.

    Options: ro, allow_other, uid=, gid=, umask=, ttl=, metadata=listing|full, no_passthrough, no_open, no_prefetch,
    publish=, staging=, threads=. As root on Linux 6.9 and later the kernel reads cached files by itself. SIGTERM or
    `headrace umount` ends it; SIGHUP looks at the stores anew. With --keep (Linux 6.9) the mount outlives its server.
    """
    from headrace.base.settings import Settings
    from headrace.mount import MountOptions, in_background

    if mountpoint is None:
        path, mountpoint = "/", path
    settings = Settings.load()
    chosen = MountOptions.of(settings, ",".join(options))
    point = os.path.abspath(mountpoint)

    def opened() -> Mounted:
        return _open(settings, path, point, chosen, quiet=not foreground)

    if keeper is not None:
        _serve_kept(keeper, settings, path, point, chosen)
        return
    log = os.path.abspath(log_file) if log_file else _log_file(settings, point)
    if keep:
        from headrace.mount import holder_of_mount

        holder = holder_of_mount(path, point, options, settings=settings)
        logging.basicConfig(format=_FORM, level=logging.WARNING)
        if foreground:
            holder.open().wait()
        else:
            in_background(holder.open, lambda _: holder.wait(), log)
        return
    if foreground:
        logging.basicConfig(format=_FORM, level=logging.WARNING)
        _serve(opened())
        return
    in_background(opened, _serve, log)


def _serve_kept(channel: int, settings: Settings, path: str, point: str, options: MountOptions) -> None:
    """Serve for a holder, which is told of what goes wrong before the mount answers."""
    from headrace.mount import HeldMount

    held = HeldMount.ask(channel)
    logging.basicConfig(format=_FORM, level=logging.WARNING)
    try:
        mounted = _open(settings, path, held.point or point, options, quiet=False, held=held)
    except BaseException as error:
        held.failed(error)
        raise SystemExit(1) from error
    held.ready()
    _serve(mounted)


def _open(
    settings: Settings, path: str, point: str, options: MountOptions, *, quiet: bool, held: HeldMount | None = None
) -> Mounted:
    from headrace.mount import open_mount

    if quiet:
        logging.basicConfig(format=_FORM, level=logging.WARNING, force=True)
    mounted = open_mount(path, point, options, settings=settings, held=held)
    how = "the kernel reads cached files itself" if mounted.passthrough else "without passthrough"
    how += "" if mounted.tells_opens else " and without a message for each open"
    click.echo(f"mounted {path} at {point}, {'read-only, ' if options.read_only else ''}{how}", err=True)
    return mounted


def _serve(mounted: object) -> None:
    from headrace.mount import Mounted, on_signals

    assert isinstance(mounted, Mounted)
    on_signals(mounted.end, mounted.refresh)
    try:
        mounted.wait()
    finally:
        mounted.close()


def _log_file(settings: Settings, point: str) -> str:
    from headrace.mount import run_folder

    return os.path.join(run_folder(settings), point.strip("/").replace("/", "-") + ".log")
