"""``headrace k8s``: manifests for Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.errors import InputError

if TYPE_CHECKING:
    from headrace.cluster import KubernetesRequest, Rendered

_Function = TypeVar("_Function", bound=Callable[..., Any])
_OPTIONS = (
    click.option("--set", "values", multiple=True, metavar="FIELD=VALUE", help="Any field of the job: grace=1min."),
    click.option("--kind", type=click.Choice(["job", "rayjob", "trainjob"]),
                 help="What the job becomes.  [default: a RayJob for several nodes, else a Job]"),
    click.option("--code", metavar="PATH", help="Folder of the image with the job's code.  [default: /app]"),
    click.option("--serve", "models", multiple=True, metavar="NAME@ALIAS", help="Serve models."),
    click.option("--web", is_flag=True, help="Show the home in browsers."),
    click.option("--gateway", is_flag=True, help="S3 over the namespace."),
    click.option("--csi", is_flag=True, help="The CSI plugin on every node; with --mount a volume for an example."),
    click.option("--mount", metavar="PATH", help="Mount this beside the job, as /mnt/headrace/data."),
    click.option("--name", help="Name of all that is made.  [default: of the job, or of the model]"),
    click.option("--image", help="Image with headrace.  [default: headrace:latest]"),
    click.option("--home", metavar="URL", help="Where runs and models are recorded.  [default: the home here]"),
    click.option("--namespace", help="Namespace of Kubernetes.  [default: that of kubectl]"),
    click.option("--service-account", metavar="NAME", help="Service account that is made.  [default: as the name]"),
    click.option("--identity", multiple=True, metavar="NAME=VALUE", help="Annotation of it: who it is to the cloud."),
    click.option("--secret", metavar="NAME", help="Secret whose keys are variables: credentials of the stores."),
    click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable; nothing secret."),
    click.option("--settings", metavar="FILE", help="A headrace.toml for the pods: what is attached where."),
    click.option("--queue", metavar="NAME", help="Kueue's queue: it waits there until it is admitted."),
    click.option("--cpus", help="CPUs of a pod.  [default: of the job, or 1]"),
    click.option("--memory", help="Memory of a pod.  [default: of the job, or 2G]"),
    click.option("--gpus", type=click.IntRange(0), help="GPUs of a pod.  [default: of the job, or none]"),
    click.option("--cache", metavar="SIZE", help="Size of the cache on the node.  [default: 20GB]"),
    click.option("--cache-host", metavar="PATH", help="Folder of the node for it, that pods share."),
    click.option("--replicas", metavar="N[..MOST]", default="1", show_default=True, help="Pods of a service."),
    click.option("--port", type=click.IntRange(1024, 65535), default=8080, show_default=True, help="Its port."),
    click.option("--access", metavar="NAME",
                 help="Secret with what clients bring: `token`, or `keys.toml`.  [default: NAME-access] With --csi: "
                      "of the volume."),
    click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name by which browsers reach the page."),
)  # fmt: skip


def _asked(function: _Function) -> _Function:
    for option in reversed(_OPTIONS):
        function = option(function)
    return click.argument("job", metavar="[JOB.TOML]", required=False)(function)


@click.group()
def command() -> None:
    """Write manifests for Kubernetes: of a job, of models behind HTTP, of the page, of the mount, of the CSI plugin.

    Nothing is applied, and no cluster is asked: what is written is for kubectl, or Helm. `csi` is the plugin itself.
    """


@command.command()
@_asked
@click.option("--beside", metavar="FILE.yaml", help="Put the mount into these manifests of yours.")
@click.option("--output", "-o", metavar="FOLDER", help="A file for each document.  [default: all to standard output]")
def render(beside: str | None, output: str | None, **asked: Any) -> None:
    """Write the manifests of JOB.TOML, of --serve, --web, --gateway or --csi, or of --mount --beside FILE.

    Every pod runs as nobody, without rights, without a token of Kubernetes; only mounts are privileged.
    """
    from headrace.cluster import kubernetes_manifests

    made = kubernetes_manifests(_request(asked), beside=beside)
    if output is None:
        click.echo(made.yaml, nl=False)
    else:
        made.write(output)
    _tell(made)


@command.command()
@click.option("--endpoint", default="unix:///csi/csi.sock", show_default=True, help="Socket that kubelet asks.")
@click.option("--node-id", required=True, metavar="NAME", help="What Kubernetes calls this node.")
@click.option("--state", default="/var/lib/headrace-csi", show_default=True, metavar="FOLDER",
              help="Where published volumes are noted.")
@click.option("--grace", default="25s", show_default=True, help="Longest wait for mounts to send what is left.")
def csi(endpoint: str, node_id: str, state: str, grace: str) -> None:
    """Be the CSI plugin of a node: volumes are mounts, each with a server and credentials of its own.

    `headrace k8s render --csi` writes what starts it. When the plugin dies it is started again, and the mounts go on;
    SIGTERM ends them in order.
    """
    from headrace.base.units import parse_seconds
    from headrace.cli import run_guarded
    from headrace.cluster import serve_csi

    seconds = parse_seconds(grace, name="--grace")
    code = serve_csi(
        endpoint, node_id, state, seconds, guarded=run_guarded,
        answers=lambda where: click.echo(f"answers at {where}", err=True),
    )  # fmt: skip
    raise SystemExit(code)


@command.command()
@click.argument("folder")
@_asked
def chart(folder: str, **asked: Any) -> None:
    """Write a chart for Helm into FOLDER: the same manifests, with what was said here as its values."""
    from headrace.cluster import kubernetes_chart

    made = kubernetes_chart(_request(asked))
    made.write(folder)
    _tell(made)


def _request(asked: dict[str, Any]) -> KubernetesRequest:
    from headrace.base.units import parse_bytes
    from headrace.cli.run import pair
    from headrace.cluster import KubernetesRequest

    pairs = {"values": "--set", "identity": "--identity", "variables": "--env"}
    read: dict[str, Any] = {name: dict(pair(one, option) for one in asked[name]) for name, option in pairs.items()}
    sizes = {name: asked[name] for name in ("memory", "cache") if asked[name] is not None}
    read |= {name: parse_bytes(size, name=f"--{name}") for name, size in sizes.items()}
    read["replicas"], read["most"] = _replicas(asked["replicas"])
    return KubernetesRequest(**(asked | read))


def _replicas(text: str) -> tuple[int, int]:
    """At least, and at most; 0: no more than that."""
    least, dots, most = text.partition("..")
    if not least.isdecimal() or (dots and not most.isdecimal()):
        raise InputError(f"{text!r} is no number of pods", path="--replicas", hint="--replicas 2, or 2..8")
    return int(least), int(most or 0)


def _tell(made: Rendered) -> None:
    """What has to be there besides."""
    for line in made.needs:
        click.echo(line, err=True)
