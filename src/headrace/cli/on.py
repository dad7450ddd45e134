"""The options of commands whose work a cluster may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def on_option(function: _Function) -> _Function:
    """``--on CLUSTER``; the command receives it as ``on``: an address, or None."""
    text = "Have the nodes of a Ray cluster do it: ray://HOST:10001."
    return click.option("--on", metavar="CLUSTER", callback=_checked, help=text)(function)


def tell(text: str) -> None:
    """Something about the cluster that people should know."""
    click.echo(text, err=True)


def _checked(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.startswith("ray://"):
        raise click.BadParameter(f"{value!r} is no cluster's address: ray://HOST:10001")
    return value
