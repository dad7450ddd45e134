"""The demonstration's mount: the bucket as a folder, listed, and trained from by code that knows only files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from headrace.base.errors import InternalError
from headrace.cli.demo_job.plan import Plan

COMMAND = [sys.executable, "-m", "headrace"]


def why_not() -> str | None:
    """Why nothing can be mounted here; None where it can."""
    if not os.path.exists("/dev/fuse"):
        return "this machine has no /dev/fuse"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "mounting as a user needs fusermount3 (package fuse3)"
    return None


def list_and_train(plan: Plan, path: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Mount `path`, list it, train one epoch from it, unmount.

    Raises:
        InternalError: any of that failed, or not all samples were seen.
    """
    with _mounted(path, folder / "mnt", folder, environment) as mountpoint:
        classes = sorted(os.listdir(mountpoint / "train"))
        click.echo(f"   $ ls {mountpoint}/train\n   {'  '.join(classes[:12])}{' …' if len(classes) > 12 else ''}")
        command = [sys.executable, "-m", "headrace.cli.demo_job.files", str(mountpoint / "train"), *plan.flags()]
        done = subprocess.run(
            command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, text=True, check=False, timeout=300
        )
        if done.returncode != 0:
            raise InternalError("training from the mounted folder failed")
        told = json.loads(done.stdout.splitlines()[-1])
        rate = told["samples"] / told["seconds"]
        click.echo(
            f"   one epoch of plain ImageFolder: {told['samples']:,} samples, {rate:,.0f} samples/s, "
            f"loss {told['loss']:.3f}"
        )
        if told["classes"] != plan.classes:
            raise InternalError(f"the mounted folder has {told['classes']} classes, not {plan.classes}")


@contextmanager
def _mounted(path: str, mountpoint: Path, folder: Path, environment: Mapping[str, str]) -> Generator[Path]:
    mountpoint.mkdir(exist_ok=True)
    headrace(["mount", path, str(mountpoint), "-o", "ro"], folder, environment)
    try:
        yield mountpoint
    finally:
        headrace(["umount", str(mountpoint)], folder, environment)
        mountpoint.rmdir()


def headrace(arguments: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Run a command as the user would, and show it. Raises InternalError: it failed."""
    click.echo(f"   $ headrace {shlex.join(arguments)}")
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, env=dict(environment), check=False, timeout=300)
    if done.returncode != 0:
        raise InternalError(f"headrace {arguments[0]} failed")
