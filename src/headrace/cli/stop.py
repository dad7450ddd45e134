"""``headrace stop RUN``."""

from __future__ import annotations

import time

import click

from headrace.base.errors import DeadlineError
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
    from headrace.cli.run_access import find_run
    from headrace.tracking.record import Order

    found = find_run(run)
    view = found.look()
    ordered = not view.over
    if ordered:
        found.order_stop(Order.from_here(None if grace is None else parse_seconds(grace, name="--grace")))
        until = time.monotonic() + (0.0 if wait is None else parse_seconds(wait, name="--wait"))
        while not (view := found.look()).over and time.monotonic() < until:
            time.sleep(1.0)
        if wait is not None and not view.over:
            raise DeadlineError(f"is still {view.state}", path=found.id, hint="headrace logs tells what it does")
    show_record({"id": found.id, "state": view.state, "ordered": ordered}, as_json=as_json)
