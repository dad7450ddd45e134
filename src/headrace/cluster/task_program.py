"""A program that leads the run of one task of a job, here or on a cluster: see `headrace.jobs.tasks.child`."""

from __future__ import annotations

import logging
import signal
import sys

from headrace.base.errors import HeadraceError
from headrace.base.settings import Settings
from headrace.jobs import Here, Recorded, Report, TaskOrder, serve
from headrace.jobs.request import RunRequest, run_here
from headrace.namespace import Home, Namespace
from headrace.tracking.runs import Run


def work(order: TaskOrder) -> Report:
    """The run of one task, to its end. Main thread."""
    try:
        settings = Settings.load()
        namespace = Namespace.load(settings)
        source, repeats = Here(order.base), None
        if order.recorded is not None:
            tree = Run(Home.of(namespace, settings), order.recorded)
            source, repeats = Recorded(tree), tree.record()
        on_cluster = order.spec.cluster.on is not None
        request = RunRequest(
            order.spec, Here(order.base) if on_cluster else source, order.run, dict(order.parent),
            repeats=repeats if on_cluster else None, quiet=True,
        )  # fmt: skip
        if on_cluster:
            from headrace.cluster.run_there import run_on_cluster

            _, outcome = run_on_cluster(request, namespace=namespace, settings=settings)
            assert outcome is not None
        else:
            outcome = run_here(request, namespace=namespace, settings=settings, started=_over_soon)
    except HeadraceError as error:
        return Report("failed", str(error), recorded=False)
    except OSError as error:
        return Report("failed", error.strerror or str(error), recorded=False)
    status = outcome.status
    return Report(status.state, status.reason, len(status.left) or int(outcome.folder is not None))


def _over_soon(_run: str, _log: str) -> None:
    """The runner takes signals from here on; when it gives this one back, the run is over and recorded."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda _number, _frame: None)


if __name__ == "__main__":
    logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)
    serve(int(sys.argv[1]), work)
