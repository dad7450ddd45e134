"""The demonstration's shards: the data set packed, and one epoch from single objects beside one from the shards."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from headrace.base.errors import InternalError
from headrace.cli.demo_job.mounted import headrace
from headrace.cli.demo_job.plan import Plan

_SHARD = "64kB"
"""Small, so that the digits make several."""


@dataclass(frozen=True, slots=True)
class _Epoch:
    """What one process told of its only epoch."""

    samples: int
    rate: float
    accuracy: float
    weights: str


def pack_and_train(plan: Plan, source: str, target: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Pack `source` into tar shards at `target`; train one epoch from each with one seed, and compare.

    Raises:
        InternalError: any of that failed, or the shards did not train the same model.
    """
    headrace(["pack", source, target, "--shard-size", _SHARD], folder, environment)
    objects = _train(plan, source, folder, environment)
    shards = _train(plan, target, folder, environment)
    for name, epoch in (("single objects", objects), ("shards", shards)):
        click.echo(
            f"   one epoch from {name}: {epoch.samples:,} samples, {epoch.rate:,.0f} samples/s, "
            f"held-out accuracy {epoch.accuracy:.1%}"
        )
    if (objects.samples, objects.weights) != (shards.samples, shards.weights):
        raise InternalError("the same samples in the same order did not train the same model")


def _train(plan: Plan, source: str, folder: Path, environment: Mapping[str, str]) -> _Epoch:
    """By the script alone, in no run."""
    command = [sys.executable, "-m", "headrace.cli.demo_job.train"]
    command += plan.flags(epochs=1, train=source, test=plan.test)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        variables = {**environment, "HEADRACE_OUTPUTS": out}
        done = subprocess.run(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, check=False, timeout=300)
        if done.returncode != 0:
            raise InternalError(f"training from {source} failed")
        told = json.loads(Path(out, "result.json").read_text())
    return _Epoch(told["samples"], told["samples_per_s"], told["accuracy"], told["weights"])
