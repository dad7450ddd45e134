"""Train in a process of its own, kill it, resume it, and compare."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import click

from headrace.base.errors import InternalError
from headrace.base.progress import Progress
from headrace.base.units import format_bytes, format_seconds
from headrace.cli.demo_job.plan import Plan
from headrace.cli.demo_job.proof import compare
from headrace.cli.progress import passing

_BATCHES_AFTER_CHECKPOINT = 4
"""Work that the kill throws away, as a real one would."""


def train_kill_resume(plan: Plan, folder: Path, environment: Mapping[str, str]) -> float:
    """Run `plan` with one kill and one resume; returns the held-out accuracy.

    Raises:
        InternalError: training failed, or a sample was lost or repeated.
    """
    first = _Record()
    with _training(plan, folder, environment) as (process, events):
        if _follow(events, first, stop_after_checkpoint=True):
            process.kill()
            process.wait()
    if first.checkpoint is None:
        raise InternalError("the training process ended before its checkpoint")
    click.echo(f"   killed (SIGKILL) {_BATCHES_AFTER_CHECKPOINT} batches after the checkpoint; resuming from it")

    second = _Record()
    with _training(replace(plan, resume=first.checkpoint), folder, environment) as (process, events):
        _follow(events, second, stop_after_checkpoint=False)
        process.wait()
    if second.accuracy is None:
        raise InternalError("the resumed training process did not finish")
    everything = second.keys[plan.epochs - 1] if plan.epochs - 1 > plan.checkpoint_epoch else first.keys[0]
    proof = compare(everything, first.before_checkpoint, second.keys[plan.checkpoint_epoch])
    click.echo(f"\n   epoch {plan.checkpoint_epoch + 1}: {proof}")
    if not proof.holds:
        raise InternalError(f"the resumed run did not see exactly the samples left: {proof}")
    click.echo(f"   held-out accuracy {second.accuracy:.1%}")
    return second.accuracy


@dataclass
class _Record:
    """What one process reported: keys by epoch, in the order seen."""

    keys: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    before_checkpoint: list[str] = field(default_factory=list[str])
    checkpoint: str | None = None
    accuracy: float | None = None


@contextlib.contextmanager
def _training(
    plan: Plan, folder: Path, environment: Mapping[str, str]
) -> Generator[tuple[subprocess.Popen[str], Iterator[dict[str, Any]]]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.demo_job.train", plan.dump()],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, (json.loads(line) for line in process.stdout if line.endswith("\n"))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _follow(events: Iterator[dict[str, Any]], record: _Record, *, stop_after_checkpoint: bool) -> bool:
    """Show what comes until the process ends, or until it is time to kill it (True)."""
    since_checkpoint = 0
    with _EpochBar() as bar:
        for event in events:
            if event["event"] == "batch":
                bar.advance(event)
                record.keys.setdefault(event["epoch"], []).extend(event["keys"])
                since_checkpoint += record.checkpoint is not None
                if stop_after_checkpoint and since_checkpoint == _BATCHES_AFTER_CHECKPOINT:
                    return True
                continue
            bar.clear()
            _note(event, record)
    return False


def _note(event: Mapping[str, Any], record: _Record) -> None:
    match event["event"]:
        case "checkpoint":
            record.checkpoint = event["path"]
            record.before_checkpoint = list(record.keys[event["epoch"]])
            click.echo(f"   checkpoint of {format_bytes(event['size'])}: {event['path']}")
        case "epoch":
            click.echo(_epoch_line(event))
        case _:
            record.accuracy = event["accuracy"]


class _EpochBar:
    """A bar for the epoch under way, on a terminal; gone before anything else is printed."""

    def __init__(self) -> None:
        self._drawing = contextlib.ExitStack()
        self._report: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def advance(self, batch: Mapping[str, Any]) -> None:
        if self._report is None:
            self._report = self._drawing.enter_context(passing(f"   epoch {batch['epoch'] + 1}"))
            self._report.total(batch["of"])
        self._report.advance(len(batch["keys"]))

    def clear(self) -> None:
        self._drawing.close()
        self._report = None


def _epoch_line(event: Mapping[str, Any]) -> str:
    looked_up = event["hits"] + event["misses"]
    hits = f"{event['hits'] / looked_up:.0%}" if looked_up else "none"
    return (
        f"   epoch {event['epoch'] + 1}: {event['samples']:,} samples, {event['samples_per_s']:,.0f} samples/s, "
        f"{format_bytes(event['bytes_per_s'])}/s, cache hits {hits}, waited {format_seconds(event['waited_s'])}, "
        f"loss {event['loss']:.3f}\n            {event['verdict']}"
    )
