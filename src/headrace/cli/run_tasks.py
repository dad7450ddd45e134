"""How ``headrace run`` runs the tasks of a job (run, rerun); and, as a program, the run of one of them."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, InputError

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.jobs import JobSpec, Leading, Report, Source, TaskOrder
    from headrace.namespace import Home

_PROGRAM = (sys.executable, "-m", "headrace.cli.run_tasks")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What the command line says of tasks: as `Leading` has it."""

    at_once: int | None = None
    fresh: bool = False

    def check(self, spec: JobSpec) -> None:
        """Raises InputError: they are given, and the job has no tasks."""
        if not spec.task and (self.fresh or self.at_once is not None):
            option = "--fresh" if self.fresh else "--at-once"
            raise InputError("is for a job that has tasks", path=option, hint="write [[task]], or give --sweep")

    def backend(self, home: Home, settings: Settings, source: Source) -> Leading:
        """What runs them."""
        from headrace.jobs import Leading, Recorded

        recorded = source.run.id if isinstance(source, Recorded) else None
        base = str(getattr(source, "base", os.getcwd()))
        return Leading(home, settings.home or "", _PROGRAM, base, recorded, self.at_once, self.fresh)


def work(order: TaskOrder) -> Report:
    """The run of one task, led here or on a cluster, to its end."""
    from headrace.base.settings import Settings
    from headrace.cli.run import run_here, run_on_cluster
    from headrace.cli.target import open_namespace
    from headrace.jobs import Here, Recorded, Report
    from headrace.namespace import Home
    from headrace.tracking import Run

    parent = dict(order.parent)
    try:
        source, repeats = Here(order.base), None
        if order.recorded is not None:
            tree = Run(Home.of(open_namespace(), Settings.load()), order.recorded)
            source, repeats = Recorded(tree), tree.record()
        if order.spec.cluster.on is not None:
            outcome = run_on_cluster(
                order.spec, order.run, order.base, parent, None, repeats, detach=False, quiet=True
            )  # fmt: skip
        else:
            outcome = run_here(order.spec, order.run, source, parent, None, None, quiet=True)
    except HeadraceError as error:
        return Report("failed", str(error), recorded=False)
    except OSError as error:
        return Report("failed", error.strerror or str(error), recorded=False)
    status = outcome.status
    return Report(status.state, status.reason, len(status.left) or int(outcome.folder is not None))


if __name__ == "__main__":
    from headrace.jobs import serve

    logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)
    serve(int(sys.argv[1]), work)
