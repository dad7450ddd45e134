"""``headrace k8s``: manifests for Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from headrace.cluster.csi import Volumes
    from headrace.cluster.kubernetes import Wanted

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
    return click.argument("file", metavar="[JOB.TOML]", required=False)(function)


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
    from headrace.cluster import kubernetes

    if beside is not None:
        wanted = _mount(asked)
        documents = kubernetes.with_mount(wanted, beside)
    else:
        wanted = _wanted(asked)
        documents = kubernetes.manifests(wanted)
    if output is None:
        click.echo(kubernetes.stream(documents), nl=False)
    else:
        kubernetes.write(output, kubernetes.files(documents))
    _tell(wanted)


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
    import logging

    from headrace.base.units import parse_seconds
    from headrace.cli import run_guarded
    from headrace.cluster.csi import Volumes, attend

    seconds = parse_seconds(grace, name="--grace")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    volumes = Volumes(state)
    code = attend(lambda: run_guarded(lambda: _plugin(endpoint, node_id, volumes)), lambda: volumes.end(seconds))
    raise SystemExit(code)


def _plugin(endpoint: str, node_id: str, volumes: Volumes) -> None:
    import signal
    import threading

    try:
        from headrace.cluster.csi import Plugin
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"the CSI plugin needs {error.name}", hint="pip install 'headrace[csi]'") from None
    ended = threading.Event()
    plugin = Plugin(endpoint, node_id, volumes)
    signal.signal(signal.SIGTERM, lambda _, __: ended.set())
    click.echo(f"answers at {endpoint}", err=True)
    ended.wait()
    plugin.close(5.0)


@command.command()
@click.argument("folder")
@_asked
def chart(folder: str, **asked: Any) -> None:
    """Write a chart for Helm into FOLDER: the same manifests, with what was said here as its values."""
    from headrace.cluster import kubernetes

    wanted = _wanted(asked)
    kubernetes.write(folder, kubernetes.chart_files(wanted))
    _tell(wanted)


def _wanted(asked: dict[str, Any]) -> Wanted:
    from headrace.cli.run import pair
    from headrace.cluster.kubernetes import CsiPart, MountPart, ServicePart, for_csi, for_job, for_service
    from headrace.jobs import JobSpec

    services = {
        "serve": bool(asked["models"]), "web": asked["web"], "gateway": asked["gateway"], "csi": asked["csi"],
    }  # fmt: skip
    chosen: list[Any] = [kind for kind, given in services.items() if given]
    if len(chosen) + (asked["file"] is not None) != 1:
        hint = "headrace k8s render job.toml, or --serve NAME@prod, or --web, or --gateway, or --csi"
        raise InputError("name one thing to run", hint=hint)
    if not chosen:
        spec = JobSpec.load(asked["file"]).with_flags(dict(pair(one, "--set") for one in asked["values"])).check()
        mount = MountPart(asked["mount"]) if asked["mount"] else None
        return for_job(spec, kind=asked["kind"], code=asked["code"], mount=mount, **_common(asked))
    if asked["csi"]:
        return for_csi(CsiPart(path=asked["mount"] or "", secret=asked["access"] or ""), **_common(asked))
    if asked["mount"]:
        raise InputError("is put beside a job", path="--mount", hint="--beside FILE.yaml puts it into any manifest")
    least, most = _replicas(asked["replicas"])
    service = ServicePart(
        models=asked["models"], port=asked["port"], replicas=least, most=most, secret=asked["access"] or "",
        hosts=",".join(asked["hosts"]),
    )  # fmt: skip
    return for_service(chosen[0], service, **_common(asked))


def _mount(asked: dict[str, Any]) -> Wanted:
    from headrace.cluster.kubernetes import for_mount

    if not asked["mount"] or asked["file"] or asked["models"] or asked["web"] or asked["gateway"] or asked["csi"]:
        raise InputError("goes with --mount, and with nothing else that runs", path="--beside", hint="--mount PATH")
    return for_mount(asked["mount"], **_common(asked))


def _common(asked: dict[str, Any]) -> dict[str, Any]:
    """What all kinds have; None: not said."""
    from headrace.base.settings import Settings
    from headrace.base.units import parse_bytes
    from headrace.cli.run import pair
    from headrace.cluster.kubernetes import quantity

    names = ("name", "image", "namespace", "service_account", "secret", "queue", "cpus", "gpus", "cache_host")
    settings = asked["settings"]
    if settings is not None:
        with open(settings, encoding="utf-8") as file:
            settings = file.read()
    sizes = {
        name: quantity(parse_bytes(asked[name], name=f"--{name}")) if asked[name] is not None else None
        for name in ("memory", "cache")
    }
    return {
        **{name: asked[name] for name in names},
        **sizes,
        "home": asked["home"] or Settings.load().home,
        "settings": settings,
        "identity": dict(pair(one, "--identity") for one in asked["identity"]),
        "variables": dict(pair(one, "--env") for one in asked["variables"]),
    }


def _replicas(text: str) -> tuple[int, int]:
    """At least, and at most; 0: no more than that."""
    least, dots, most = text.partition("..")
    if not least.isdecimal() or (dots and not most.isdecimal()):
        raise InputError(f"{text!r} is no number of pods", path="--replicas", hint="--replicas 2, or 2..8")
    return int(least), int(most or 0)


def _tell(wanted: Wanted) -> None:
    """What has to be there besides."""
    from headrace.cluster.kubernetes import needs

    for line in needs(wanted):
        click.echo(line, err=True)
