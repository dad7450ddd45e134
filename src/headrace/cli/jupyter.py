"""``headrace jupyter [PATH]``."""

from __future__ import annotations

import click

from headrace.cli.output import json_option, show_record


@click.command()
@click.argument("path", default="/")
@click.option("--allow-writes", is_flag=True, help="Let the file browser save, rename and delete there.")
@click.option("--write-config", "only_write", is_flag=True, help="Write it into Jupyter's own settings, start nothing.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="Port to listen on.  [default: 8888, or a free one]",
              type=click.IntRange(0, 65535))  # fmt: skip
@json_option
def command(path: str, *, allow_writes: bool, only_write: bool, host: str, port: int, as_json: bool) -> None:
    """Start JupyterLab with the folder PATH in its file browser, until Ctrl-C.

    Beside it JupyterLab shows the working folder, as always, and the launcher has the page of `headrace web`. Files at
    PATH are read-only unless --allow-writes. What notebooks do by themselves is not restricted.
    """
    from headrace.cli.serving import stop_on_signals, until_stopped
    from headrace.web import configure_lab, open_lab

    if only_write:
        file, shown = configure_lab(path, allow_writes=allow_writes)
        show_record({"path": file, "shows": shown.path, "allow_writes": allow_writes}, as_json=as_json,
                    kinds={"allow_writes": "flag"})  # fmt: skip
        return
    stop_on_signals()
    with until_stopped(), open_lab(path, allow_writes=allow_writes, host=host, port=port) as running:
        if as_json:
            show_record({"id": running.url, "url": running.entry, "shows": running.shown.path}, as_json=True)
        else:
            click.echo(f"{running.entry}\n(Ctrl-C stops it)")
        running.wait()
