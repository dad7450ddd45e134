"""What commands share that serve until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.tracking import Program


def stop_on_signals() -> None:
    """SIGTERM as Ctrl-C; and that also when started in the background, where shells ignore SIGINT."""
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)


@contextlib.contextmanager
def until_stopped() -> Generator[None]:
    """Ctrl-C ends what is done here, and that is said at once: what was opened around it may take a while to end."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("stopping", err=True)


def wait(program: Program, work: Callable[[], float] = lambda: 1.0) -> None:
    """Until Ctrl-C. `work` is called again and again, and says after how many seconds.

    Raises TryAgainError: the program ended by itself.
    """
    with until_stopped():
        while True:
            program.check()
            time.sleep(max(0.2, work()))
