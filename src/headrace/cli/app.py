"""The command group: a table of names and one-line summaries, so that ``--help`` imports no command."""

from __future__ import annotations

import difflib
import importlib

import click

import headrace

SECTIONS: dict[str, dict[str, str]] = {
    "Namespace": {
        "attach": "Put a store at a path.",
        "detach": "Take a store off its path.",
        "mounts": "List what is attached where, and what is mounted.",
        "mount": "Show the namespace as a folder.",
        "umount": "Take a mounted folder away.",
        "gateway": "Let programs that only know S3 read the namespace.",
    },
    "Files": {
        "ls": "List a folder.",
        "stat": "Show what is known of one file or folder.",
        "cat": "Write files to standard output.",
        "cp": "Copy files and trees between any two places.",
        "rm": "Delete files and trees.",
        "du": "Add up sizes below a path.",
    },
    "Datasets": {
        "snapshot": "Record a tree as an immutable, named version.",
        "snapshots": "List, compare and check snapshots.",
        "load": "Bring a tree into the node's cache.",
        "pack": "Pack samples into shards.",
        "unpack": "Unpack shards to single objects.",
        "bench": "Measure how fast the loader reads a path.",
    },
    "Runs": {
        "run": "Run a command; what it writes goes to the bucket.",
        "runs": "List runs; show, compare or delete them.",
        "logs": "Show what a run has written, live or afterwards.",
        "metrics": "Draw the metrics of runs, or compare them.",
        "why": "Say what limits a run, and what to change.",
        "stop": "Stop a run, from any machine.",
        "rerun": "Run a run again, from its record alone.",
        "shell": "Open a shell in what a run had.",
        "tensorboard": "Show runs in TensorBoard, live.",
        "mlflow": "Start MLflow over the home, or send runs to it.",
    },
    "Models": {
        "models": "Publish, list, promote and fetch models.",
        "serve": "Serve models over HTTP, swapped when an alias moves.",
    },
    "Looking": {
        "web": "Show runs in a browser: why the GPU waits, logs, metrics.",
        "jupyter": "Start JupyterLab with the namespace in its file browser.",
    },
    "Clusters": {
        "k8s": "Write manifests for Kubernetes.",
    },
    "Outputs": {
        "sync": "Keep a bucket up to date with a folder that is written to.",
    },
    "Node": {
        "cache": "Look after the node's cache.",
        "s3": "Run an S3 server on this machine.",
        "doctor": "Check settings, cache and store, and say what to change.",
        "demo": "Train on the digits, end to end, from a bucket.",
    },
}

SUMMARIES = {name: summary for section in SECTIONS.values() for name, summary in section.items()}


class _Lazy(click.Group):
    """Command ``x`` is ``command`` in module ``headrace.cli.x``, imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in SUMMARIES:
            return None
        return importlib.import_module(f"headrace.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in SUMMARIES and not name.startswith("-"):
            near = difflib.get_close_matches(name, SUMMARIES, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(headrace.__version__, prog_name="headrace", message="%(prog)s %(version)s")
def app() -> None:
    """Training data from object storage to the GPUs that wait for it.

    A PATH is a path of the namespace (/training-data/imagenet), a URL (s3://bucket/prefix), or a file on this
    machine (./folder). Settings come from headrace.toml and HEADRACE_… variables.
    """
