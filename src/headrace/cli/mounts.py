"""``headrace mounts [--live]``."""

from __future__ import annotations

import click

from headrace.cli.output import Column, Row, json_option, rfc3339, show_table

COLUMNS = [Column("path", "PATH"), Column("url", "STORE"), Column("read_only", "READ-ONLY", "flag")]
LIVE = [
    Column("mountpoint", "MOUNTED AT"),
    Column("path", "PATH"),
    Column("pid", "PROCESS"),
    Column("started", "SINCE", "time"),
    Column("read_only", "READ-ONLY", "flag"),
    Column("passthrough", "PASSTHROUGH", "flag"),
    Column("pending", "NOT PUBLISHED", "count"),
    Column("pending_bytes", "BYTES", "bytes"),
    Column("left", "LEFT BY CRASHES", "count"),
]
WAITING = [
    Column("path", "NOT PUBLISHED"),
    Column("bytes", "BYTES", "bytes"),
    Column("age", "AGE", "seconds"),
    Column("error", "HOW IT STANDS"),
]
LEFT = [
    Column("path", "LEFT BY A CRASH"),
    Column("bytes", "BYTES", "bytes"),
    Column("absent", "OF THEM MISSING", "bytes"),
    Column("since", "WRITTEN", "time"),
    Column("file", "KEPT IN"),
]


@click.command()
@click.option("--live", is_flag=True, help="The mounts that serve a folder of this machine now.")
@json_option
def command(*, live: bool, as_json: bool) -> None:
    """List what is attached where; with --live, what is mounted, and what was written there and is not published.

    What was open when a mount crashed is left in its staging folder: move it into the mount to publish it, or remove
    it. It goes by itself once the object of its name begins with the same bytes.
    """
    if live:
        _show_live(as_json=as_json)
        return
    from headrace.cli.target import open_namespace

    mounts = sorted(open_namespace().mounts(), key=lambda mount: mount.path)
    rows = [{"path": mount.path, "url": mount.url, "read_only": mount.read_only} for mount in mounts]
    show_table(rows, COLUMNS, as_json=as_json, empty="nothing is attached; try: headrace attach PATH URL")


def _show_live(*, as_json: bool) -> None:
    from headrace.base.settings import Settings
    from headrace.mount import all_live, orphans_of, unpublished_of

    rows: list[Row] = []
    waiting: list[Row] = []
    remains: list[Row] = []
    for mount in all_live(Settings.load()):
        pending = unpublished_of(mount)
        left = [{**each, "since": rfc3339(int(each["since"] * 1e6))} for each in orphans_of(mount)]
        rows.append(
            {
                "mountpoint": mount.mountpoint,
                "path": mount.path,
                "pid": mount.pid,
                "started": rfc3339(int(mount.started * 1e6)),
                "read_only": mount.read_only,
                "passthrough": mount.passthrough,
                "pending": pending if as_json else len(pending),
                "pending_bytes": sum(int(each.get("bytes") or 0) for each in pending),
                "left": left if as_json else len(left),
            }
        )
        waiting.extend({"error": None, **each} for each in pending)
        remains.extend(left)
    show_table(rows, LIVE, as_json=as_json, empty="nothing is mounted; try: headrace mount PATH FOLDER")
    for table, columns in ((waiting, WAITING), (remains, LEFT)):
        if table and not as_json:
            click.echo()
            show_table(table, columns, as_json=False, empty="")
