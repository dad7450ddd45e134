"""The demonstration from its first line to its last."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.base.each import for_each
from headrace.base.errors import InternalError, UnsupportedError
from headrace.base.settings import FILE_NAME, CacheSettings, Settings
from headrace.base.units import format_seconds
from headrace.cli.demo_job import mounted, packed, served
from headrace.cli.demo_job.data import DataSet, Raw, class_folders, digits
from headrace.cli.demo_job.plan import Plan
from headrace.cli.progress import progress
from headrace.cli.target import open_namespace

if TYPE_CHECKING:
    from headrace.namespace import Namespace
    from headrace.store import EmbeddedS3

BUCKET = "demo"
MOUNT = "/training-data/digits"
_NEEDED = {"torch": "torch", "sklearn": "scikit-learn", "PIL": "pillow"}
_GOAL = 0.97
"""Held-out accuracy on the digits that training for `_GOAL_EPOCHS` must reach."""
_GOAL_EPOCHS = 6  # epochs


def tell(data: str | None, folder: str, *, cluster: bool, epochs: int) -> None:
    """Run the demonstration; `cluster`: the one on several machines.

    Raises:
        UnsupportedError: a package it needs is missing. InternalError: it did not show what it should.
    """
    _need_packages({**_NEEDED, "ray": "headrace[ray]"} if cluster else _NEEDED)
    started = time.monotonic()
    data_set, samples = digits() if data is None else class_folders(open_namespace(), data)
    place = Path(folder).absolute()
    shutil.rmtree(place / "cache", ignore_errors=True)

    from headrace.store import EmbeddedS3

    _step(1, f"an S3 server on this machine, its data in {place / 's3'}")
    with EmbeddedS3(place / "s3") as server:
        server.create_bucket(BUCKET)
        click.echo(f"   {server.endpoint}")
        stage = Stage.make(place, server)
        accuracy = _act(stage, data_set, samples, epochs, cluster=cluster)
        _look(stage)
    click.echo(f"\ndone in {format_seconds(time.monotonic() - started)}; server stopped; {place} may be deleted")
    if data is None and epochs >= _GOAL_EPOCHS and accuracy < _GOAL:
        raise InternalError(f"held-out accuracy {accuracy:.1%} is below {_GOAL:.0%}")


@dataclass(frozen=True)
class Stage:
    """Where the demonstration happens: a folder with settings of its own, and a namespace over them."""

    folder: Path
    settings: Settings
    environment: dict[str, str]
    namespace: Namespace

    @staticmethod
    def make(folder: Path, server: EmbeddedS3) -> Stage:
        """Write ``headrace.toml`` there; it applies to this demonstration only, as nothing of the user's does."""
        from headrace.namespace import Namespace

        home = f"s3://{BUCKET}/home"
        cache = folder / "cache"
        options = {"endpoint": server.endpoint, "region": "us-east-1", "path_style": True, "allow_http": True}
        lines = [
            f'home = "{home}"',
            "[cache]",
            f'dir = "{cache}"',
            'size = "1GB"',
            'min_free = "100MB"',
            "[run]",
            f'state = "{folder}/runs"',
            f'cache = "{folder}/kept"',
            f'[stores."s3://{BUCKET}"]',
            *(f'{key} = "{value}"' if isinstance(value, str) else f"{key} = true" for key, value in options.items()),
        ]
        (folder / FILE_NAME).write_text("\n".join(lines) + "\n")
        keys = {"access_key_id": server.access_key, "secret_access_key": server.secret_key}
        settings = Settings(
            home=home,
            cache=CacheSettings(dir=str(cache), size=10**9, min_free=10**8),
            stores={f"s3://{BUCKET}": {**options, **keys}},
        )
        return Stage(folder, settings, _environment(folder, server), Namespace.load(settings))


def _look(stage: Stage) -> None:
    """The page over the demonstration's home, for as long as somebody at a terminal wants it."""
    from headrace.web import needed

    needed()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo("\nat a terminal the page over these runs stays up here until Enter; over your own: headrace web")
        return
    from headrace.web import Options, Server, World

    server = Server(World(stage.settings, stage.namespace, Options()))
    click.echo(f"\nthe runs in a browser: {server.entry}")
    with server:
        click.prompt("Enter ends it", default="", show_default=False, prompt_suffix=" ")


def _act(stage: Stage, data_set: DataSet, samples: Iterator[Raw], epochs: int, *, cluster: bool) -> float:
    from headrace.cli.demo_job.rehearsal import Rehearsal
    from headrace.namespace import Home

    url = f"s3://{BUCKET}/digits"
    _step(2, f"{data_set.samples:,} samples, two objects each, into {url}")
    _upload(stage.namespace, url, data_set, samples)

    _step(3, f"attach {url} at {MOUNT}")
    from headrace.namespace import write_mount

    stage.namespace.attach(MOUNT, url, read_only=True)
    write_mount(MOUNT, url, {}, stage.folder / FILE_NAME, read_only=True)
    click.echo(f"   {stage.namespace.list(MOUNT)[0].path}, …: written to {stage.folder / FILE_NAME}")

    _step(4, f"a snapshot of {MOUNT}/train, so that every epoch trains on the same bytes")
    pinned, samples_in_train = _snapshot(stage)

    plan = Plan(
        train=pinned, test=f"{MOUNT}/test", classes=len(data_set.classes), side=data_set.side,
        channels=data_set.channels, samples=samples_in_train, epochs=epochs,
    )  # fmt: skip
    if cluster:
        from headrace.cli.demo_job.together import train_together

        _step(5, "train it on two machines at once; then again, and lose one of them")
        return train_together(plan, stage.folder, stage.environment, Home.of(stage.namespace, stage.settings))
    _step(5, "train it as a run, from a git tree with an uncommitted change; stop it, resume it, run it again")
    home = Home.of(stage.namespace, stage.settings)
    performed = Rehearsal(plan, stage.folder, stage.environment, home).perform()

    reason = mounted.why_not()
    _step(6, f"mount {MOUNT} as a folder, for code that knows only files" + (f": left out, {reason}" if reason else ""))
    if reason is None:
        mounted.list_and_train(plan, MOUNT, stage.folder, stage.environment)

    _step(7, f"pack {pinned} into tar shards, and train from them")
    shards = f"s3://{BUCKET}/shards/{pinned.replace('@', '-')}"
    packed.pack_and_train(plan, pinned, shards, stage.folder, stage.environment)

    _step(8, "publish the model of the checkpoint and that of the end, serve them, swap them under load")
    served.publish_and_serve(plan, performed, stage.folder, stage.environment)
    return performed.accuracy


def _upload(namespace: Namespace, url: str, data_set: DataSet, samples: Iterator[Raw]) -> None:
    with progress("   uploaded") as report:
        report.total(2 * data_set.samples)

        def put(sample: Raw) -> None:
            stem = f"{url}/{sample.split}/{sample.name}"
            namespace.write(f"{stem}.image", sample.image)
            namespace.write(f"{stem}.label", str(sample.label).encode())
            report.advance(2, len(sample.image) + 1)

        for_each(put, samples, jobs=16)


def _snapshot(stage: Stage) -> tuple[str, int]:
    """Its name, and how many samples it holds, of two objects each."""
    from headrace.catalog import take_snapshot

    with progress("   listed") as report:
        made = take_snapshot(
            f"{MOUNT}/train", "digits", namespace=stage.namespace, settings=stage.settings, progress=report
        )
    click.echo(f"   {made.id}: {made.objects:,} objects, recorded in {made.url}")
    return made.id, made.objects // 2


def _environment(folder: Path, server: EmbeddedS3) -> dict[str, str]:
    """The environment of the training process: the server's keys, and nothing of the user's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "HEADRACE_"))}
    keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    return {**kept, **keys, "XDG_CONFIG_HOME": str(folder)}


def _need_packages(needed: dict[str, str]) -> None:
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UnsupportedError(f"the demo needs {', '.join(missing)}", hint="pip install 'headrace[demo]'")


def _step(number: int, text: str) -> None:
    click.echo(f"\n{number}. {text}")
