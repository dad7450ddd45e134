"""``headrace web``."""

from __future__ import annotations

import click

from headrace.base.errors import InputError
from headrace.cli.output import json_option


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port to listen on.  [default: a free one]")
@click.option("--base", default="", metavar="/PATH", help="What a proxy puts before every path.")
@click.option("--hosts", default="", metavar="NAME,…", help="Names by which browsers reach this machine.")
@click.option("--allow", default="", metavar="RIGHT,…",
              help="What viewers may do: stop, rerun, tag, delete-runs, write.  [default: nothing]")  # fmt: skip
@click.option("--socket", default="", metavar="PATH", help="A Unix socket to listen on instead, for a proxy of yours.")
@click.option("--export", "file", metavar="FILE.html",
              help="Write the pages of one run into this file, and end.")  # fmt: skip
@click.option("--run", metavar="RUN", help="Which run is exported.  [default: latest]")
@json_option
def command(
    host: str, port: int, base: str, hosts: str, *, allow: str, socket: str, file: str | None, run: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show runs, data and files of the home in a browser, until Ctrl-C.

    The page is a view of the bucket: anybody who may read the home can start one, and nothing is lost when it ends. The
    URL that is printed holds a token; who has it sees the page. HEADRACE_WEB_TOKEN chooses it; then it is not printed.
    With --export the pages of a run become one file instead, of 2 MB at most, which needs neither a server nor a
    network.
    """
    from headrace.cli.output import show_record
    from headrace.cli.serving import stop_on_signals, until_stopped
    from headrace.web import needed

    needed()
    if file is not None:
        _export(run or "latest", file, as_json=as_json)
        return
    if run is not None:
        raise InputError("--run names what --export writes", hint=f"headrace web --export {run}.html --run {run}")
    from headrace.web import Options, open_page

    stop_on_signals()
    server = open_page(Options(host, port, base, _listed(hosts), frozenset(_listed(allow)), socket))
    try:
        with until_stopped():
            if as_json:
                show_record({"id": server.url, "url": server.entry}, as_json=True)
            else:
                click.echo(f"{server.entry}\n(Ctrl-C stops it)")
            server.run()
    finally:
        server.close()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _export(run: str, file: str, *, as_json: bool) -> None:
    from headrace.cli.output import show_record
    from headrace.web import export_run

    made = export_run(run, file)
    told = made.left_out if as_json else "; ".join(made.left_out) or None
    row = {"id": made.run, "file": file, "bytes": len(made.html), "left_out": told}
    show_record(row, as_json=as_json, kinds={"bytes": "bytes"})
