"""A run that somebody asks for, led by a cluster's head: sent there, and followed from here to its end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from headrace.base.errors import InputError
from headrace.base.settings import Settings
from headrace.cluster.submit import Following, submit
from headrace.jobs import Outcome
from headrace.jobs.request import RunRequest
from headrace.namespace import Home, Namespace
from headrace.tracking.record import as_name, new_id
from headrace.tracking.runs import Run


def run_on_cluster(
    request: RunRequest,
    *,
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    detach: bool = False,
    begins: Callable[[str], object] = lambda _run: None,
) -> tuple[str, Outcome | None]:
    """Run a job on the cluster that its spec names, as `headrace run --on` does. Main thread: SIGINT and SIGTERM stop
    the run meanwhile.

    Args:
        request: what is to be run.
        namespace: where the home is reached; None: that of the settings.
        settings: home, and where the nodes reach the stores; None: `Settings.load`.
        detach: return as soon as it is recorded; it goes on.
        begins: called with the run's id before it is sent.

    Returns:
        The run's id, and how it ended; None: it was not waited for.

    Raises:
        InputError: no cluster is named. As `submit`.
    """
    request.check()
    spec = request.spec
    if spec.cluster.on is None:
        raise InputError("names no cluster", path="cluster.on", hint="ray://HOST:10001")
    found = settings or Settings.load()
    run = Run(Home.of(namespace, found), request.run_id or new_id(as_name(spec.title)))
    with _signalled() as stop:
        begins(run.id)
        outcome = submit(
            spec, run, found, folder=request.base, parent=request.parent,
            resumes=request.resumes.id if request.resumes is not None else None,
            repeats=request.repeats.id if request.repeats is not None else None,
            following=None if detach else Following(stop=stop), quiet=request.quiet,
        )  # fmt: skip
    return run.id, outcome


@contextmanager
def _signalled() -> Generator[Callable[[], tuple[str, None] | None]]:
    """SIGINT and SIGTERM end nothing here: what this yields says the first that came."""
    came: list[tuple[str, None]] = []
    before = {
        number: signal.signal(number, lambda number, _frame: came.append((signal.Signals(number).name, None)))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield lambda: came[0] if came else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
