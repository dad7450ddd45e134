"""``headrace stop RUN``."""

from __future__ import annotations

import click

from headrace.cli.output import json_option, show_record


@click.command()
@click.argument("run")
@click.option("--grace", help="Time between SIGTERM and SIGKILL.  [default: the job's]")
@click.option("--wait", "wait", help="Wait until it is over, for so long at most.")
@json_option
def command(run: str, *, grace: str | None, wait: str | None, as_json: bool) -> None:
    """Order RUN to stop: its runner sees that within seconds, wherever it is.

    RUN is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """
    from headrace.base.units import parse_seconds
    from headrace.tracking import as_run, stop

    grace_s = None if grace is None else parse_seconds(grace, name="--grace")
    wait_s = None if wait is None else parse_seconds(wait, name="--wait")
    found = as_run(run)
    stopped = stop(found, grace_s, wait_s=wait_s)
    show_record({"id": found.id, "state": stopped.view.state, "ordered": stopped.ordered}, as_json=as_json)
