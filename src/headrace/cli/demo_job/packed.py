"""The demonstration's shards: the data set packed, and one epoch from single objects beside one from the shards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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


def pack_and_train(plan: Plan, source: str, target: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Pack `source` into tar shards at `target`; train one epoch from each with one seed, and compare.

    Raises:
        InternalError: any of that failed, or the shards did not train the same model.
    """
    headrace(["pack", source, target, "--shard-size", _SHARD], folder, environment)
    once = replace(plan, epochs=1, checkpoint_epoch=-1, resume=None)
    objects = _train(replace(once, train=source), folder, environment)
    shards = _train(replace(once, train=target), folder, environment)
    for name, epoch in (("single objects", objects), ("shards", shards)):
        click.echo(
            f"   one epoch from {name}: {epoch.samples:,} samples, {epoch.rate:,.0f} samples/s, "
            f"held-out accuracy {epoch.accuracy:.1%}"
        )
    if (objects.samples, objects.accuracy) != (shards.samples, shards.accuracy):
        raise InternalError("the same samples in the same order did not train the same model")


def _train(plan: Plan, folder: Path, environment: Mapping[str, str]) -> _Epoch:
    command = [sys.executable, "-m", "headrace.cli.demo_job.train", plan.dump()]
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, text=True, check=False, timeout=300
    )
    if done.returncode != 0:
        raise InternalError(f"training from {plan.train} failed")
    told: dict[str, dict[str, Any]] = {event["event"]: event for event in map(json.loads, done.stdout.splitlines())}
    return _Epoch(told["epoch"]["samples"], told["epoch"]["samples_per_s"], told["done"]["accuracy"])
