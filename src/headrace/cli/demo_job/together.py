"""The demonstration on a cluster: two nodes train together, one is lost half-way, and the rest goes on."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import InternalError
from headrace.cli.demo_job.mounted import headrace
from headrace.cli.demo_job.plan import Plan

if TYPE_CHECKING:
    from headrace.cluster import LocalCluster
    from headrace.namespace import Home
    from headrace.tracking import Run

_PACE_S = 12.0
"""What the steps take together at least, so that there is time to lose a node."""
_WAIT_S = 180.0  # seconds for what two nodes do: both start interpreters with torch
_CLOSE = 0.02
"""Held-out accuracies of two trainings that differ in nothing but rounding."""


def train_together(plan: Plan, folder: Path, environment: Mapping[str, str], home: Home) -> float:
    """Start a cluster, train on two nodes, then again with one that is killed. Returns the accuracy of the second.

    Raises:
        InternalError: a command failed, a sample was lost or repeated, or the model is no longer as good.
    """
    from headrace.cluster import LocalCluster

    project = folder / "project"
    project.mkdir(exist_ok=True)
    command = ["python", "-m", "headrace.cli.demo_job.train_together", *plan.flags()]
    inputs = f'[inputs]\ntrain = "{plan.train}"\ntest = "{plan.test}"\n'
    (project / "job.toml").write_text(f'name = "digits"\ncommand = {json.dumps(command)}\n\n{inputs}')
    click.echo("   two nodes of a Ray cluster on this machine; in life: ray://HEAD:10001")
    with LocalCluster(variables={"HEADRACE_RUN_STATE": str(folder / "nodes")}) as cluster:
        cluster.add()
        cluster.add()
        commands = {**environment, **cluster.variables()}
        stamp = time.strftime("%Y%m%d-%H%M%S")
        whole, lossy = f"{stamp}-digits-whole", f"{stamp}-digits-lossy"
        words = ["run", "--on", cluster.address, "--workers", "1..2"]
        headrace([*words, "--id", whole, "job.toml"], project, commands)
        pause = f"PAUSE={_PACE_S / plan.steps:.3f}"
        click.echo("\n   the same once more; half-way, a node loses its power:")
        lost = [*words, "--env", pause, "--id", lossy, "job.toml"]
        _lose_one(cluster, _run(home, lossy), plan, project, commands, lost)
        headrace(["runs", "--limit", "2"], project, commands)
    return _judge(plan, _run(home, whole), _run(home, lossy))


def _lose_one(
    cluster: LocalCluster, run: Run, plan: Plan, project: Path, environment: Mapping[str, str], words: list[str]
) -> None:
    from headrace.cli.demo_job.mounted import COMMAND

    click.echo(f"   $ headrace {' '.join(words)}")
    process = subprocess.Popen([*COMMAND, *words], cwd=project, env=dict(environment))
    until = time.monotonic() + _WAIT_S
    try:
        while _newest(run) < plan.steps // 2:
            if process.poll() is not None or time.monotonic() > until:
                raise InternalError("there was no checkpoint half-way", path=run.id)
            time.sleep(0.2)
        cluster.nodes[-1].kill()
        if process.wait(_WAIT_S) != 0:
            raise InternalError("it did not go on without the node", path=run.id)
    finally:
        process.kill()
        process.wait()


def _newest(run: Run) -> int:
    """The step of the newest complete checkpoint."""
    from headrace.tracking import newest_checkpoint

    found = newest_checkpoint(run)
    return int(found.name) if found is not None else 0


def _run(home: Home, name: str) -> Run:
    from headrace.tracking import Run

    return Run(home, name)


def _judge(plan: Plan, whole: Run, lossy: Run) -> float:
    accuracies: list[float] = []
    for run in (whole, lossy):
        seen = Counter(line for text in _outputs(run, "seen-") for line in text.decode().splitlines())
        if len(seen) != plan.epochs * plan.samples or set(seen.values()) != {1}:
            raise InternalError("not every sample was seen once in every epoch", path=run.id)
        (result,) = _outputs(run, "result")
        told: dict[str, Any] = json.loads(result)
        accuracies.append(float(told["accuracy"]))
        said = f"every sample once in each of {plan.epochs} epochs"
        click.echo(f"   {run.id}: {said}, at last by {told['processes']}, held-out accuracy {accuracies[-1]:.1%}")
    if abs(accuracies[0] - accuracies[1]) > _CLOSE:
        raise InternalError("the one that lost a node is another model", path=lossy.id)
    return accuracies[1]


def _outputs(run: Run, beginning: str) -> list[bytes]:
    prefix = f"{run.prefix}outputs/{beginning}"
    return [bytes(run.store.get(info.key).data) for page in run.store.list(prefix) for info in page]
