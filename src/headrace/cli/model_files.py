"""The commands of ``headrace models`` that move files: ``publish``, ``pull`` and ``follow``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import InputError
from headrace.cli.output import json_option, show_record

if TYPE_CHECKING:
    from headrace.models import Step


@click.command()
@click.argument("source")
@click.argument("name")
@click.option("--if", "gate", metavar="CONDITION", help="Only if this holds of the run's metrics: 'accuracy >= 0.97'.")
@click.option("--alias", metavar="ALIAS", help="Let this alias name the version, once it is published.")
@click.option("--format", "format_", metavar="FORMAT", help="What the files are.  [default: told by the files]")
@click.option(
    "--runtime", metavar="MODULE:CLASS", help="Of a model in Python: the class that loads it."
)
@click.option(
    "--signature", metavar="FILE", help="A JSON file: what it takes and gives.  [default: as the model says]"
)
@click.option("--note", default="", help="Anything, for people.")
@click.option(
    "--export", type=click.Choice(["onnx"]), help="SOURCE is package.module:name of a PyTorch module, or makes one."
)
@click.option("--example", metavar="MODULE:NAME", help="With --export: the arguments of one call of it, or makes them.")
@json_option
def publish(
    source: str, name: str, *, gate: str | None, alias: str | None, format_: str | None, runtime: str | None,
    signature: str | None, note: str, export: str | None, example: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Make SOURCE the next version of the model NAME.

    SOURCE is a RUN (its newest checkpoint), RUN:CHECKPOINT, RUN:outputs/PATH, or a folder, a file, a URL. Where it
    lies in the store of the home, the store copies it. Nothing finds the version before all of it is there.

    With --export, a PyTorch module is exported, and its outputs on the example are compared with the module's.
    """
    from headrace.cli.progress import progress
    from headrace.models import from_file, named
    from headrace.models import publish as publish_

    signatures = None if signature is None else from_file(signature)
    if (export is None) != (example is None):
        raise InputError("--export and --example come together")
    given: Any = source if export is None else named(source, "SOURCE")
    arguments: Any = None if example is None else named(example, "--example")
    with progress("published", "files") as report:
        made = publish_(
            given, name, example=arguments, format=format_, signatures=signatures, runtime=runtime, gate=gate,
            note=note, progress=report, alias=alias,
        )  # fmt: skip
    card = made.card
    row = {
        "id": made.id, "name": name, "number": made.number, "aliases": [alias] if alias else [], "format": card.format,
        "entry": card.entry, "files": len(card.files), "bytes": card.bytes, "run": card.run,
        "checkpoint": card.checkpoint, "url": made.path,
    }  # fmt: skip
    show_record(row, as_json=as_json, kinds={"bytes": "bytes"})


@click.command()
@click.argument("version", metavar="NAME[@VERSION]")
@click.argument("folder", metavar="DIR")
@json_option
def pull(version: str, folder: str, *, as_json: bool) -> None:
    """Make DIR of the files of a version, each compared with its digest: all of them, or no DIR."""
    from headrace.cli.progress import progress
    from headrace.models import Registry
    from headrace.models import pull as pull_

    registry = Registry.load()
    found = registry.resolve(version)
    with progress("pulled", "files") as report:
        path = pull_(found.id, folder, progress=report, registry=registry)
    row = {"id": found.id, "path": str(path), "files": len(found.card.files), "bytes": found.card.bytes}
    show_record(row, as_json=as_json, kinds={"bytes": "bytes"})


@click.command()
@click.argument("text", metavar="NAME@ALIAS")
@click.argument("folder", metavar="DIR")
@click.option("--every", default="5s", show_default=True, metavar="TIME", help="How often the alias is asked for.")
@click.option("--once", is_flag=True, help="Bring what it names now, and end.")
@json_option
def follow(text: str, folder: str, *, every: str, once: bool, as_json: bool) -> None:
    """Keep DIR/NUMBER in step with the version that an alias names, until SIGTERM or Ctrl-C.

    For TensorFlow Serving, Triton and others that read a folder: a new version appears whole, then the one before goes.
    While nothing changes it costs one conditional GET each time.
    """
    import logging
    import threading

    from headrace.base.units import parse_seconds
    from headrace.cli.progress import passing
    from headrace.cli.serving import stop_on_signals
    from headrace.models import Following, Registry

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    every_s = parse_seconds(every, name="--every")

    def tell(step: Step) -> None:
        if as_json:
            row = {"id": f"{keeper.wanted.name}@{step.number}", "number": step.number, "before": list(step.before)}
            show_record({**row, "path": str(step.folder), "seconds": round(step.seconds, 3)}, as_json=True)
        else:
            before = f", before {', '.join(map(str, step.before))}" if step.before else ""
            click.echo(f"{text}: version {step.number}{before}, in {step.folder} after {step.seconds:.1f} s")

    stop_on_signals()
    with Following(Registry.load(), text, folder) as keeper:
        with passing("brought") as report:
            first = keeper.look(report)
        if first is not None:
            tell(first)
        if once:
            return
        click.echo(f"{folder} follows {text}", err=True)
        try:
            keeper.run(threading.Event(), tell, every_s=every_s)
        except KeyboardInterrupt:
            click.echo("stopping", err=True)
