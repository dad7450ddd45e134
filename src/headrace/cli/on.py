"""Commands whose work a cluster may do: their option, and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.catalog import Listing
    from headrace.cluster import Workers

_Function = TypeVar("_Function", bound=Callable[..., Any])


def on_option(function: _Function) -> _Function:
    """``--on CLUSTER``; the command receives it as ``on``: an address, or None."""
    text = "Have the nodes of a Ray cluster do it: ray://HOST:10001."
    return click.option("--on", metavar="CLUSTER", callback=_checked, help=text)(function)


@contextmanager
def workers_on(on: str | None, settings: Settings) -> Generator[Workers | None]:
    """The cluster that ``--on`` names, if it does."""
    if on is None:
        yield None
        return
    from headrace.cluster import workers

    with workers(on, settings) as found:
        yield found


def listing_of(workers: Workers | None) -> Listing:
    """Who lists: the cluster, or this process."""
    if workers is None:
        from headrace.catalog import listed_here

        return listed_here
    from headrace.cluster import listing_on

    return listing_on(workers, tell=tell)


def tell(text: str) -> None:
    """Something about the cluster that people should know."""
    click.echo(text, err=True)


def _checked(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.startswith("ray://"):
        raise click.BadParameter(f"{value!r} is no cluster's address: ray://HOST:10001")
    return value
