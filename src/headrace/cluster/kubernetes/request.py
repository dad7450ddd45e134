"""What is asked of Kubernetes, in one value, and the manifests or the chart that come of it: `headrace k8s`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.base.errors import InputError
from headrace.base.settings import Settings
from headrace.cluster.kubernetes.asking import for_csi, for_job, for_mount, for_service, needs
from headrace.cluster.kubernetes.manifests import chart_files, files, manifests, with_mount, write
from headrace.cluster.kubernetes.wanted import CsiPart, Kind, MountPart, ServicePart, Wanted, quantity
from headrace.jobs import JobSpec

_ALIKE: Final = ("name", "image", "namespace", "service_account", "secret", "queue", "cpus", "gpus", "cache_host")
"""Fields that `Wanted` has by the same names."""


@dataclass(frozen=True, slots=True)
class KubernetesRequest:
    """One thing to run: `job`, `models`, `web`, `gateway` or `csi`; or `mount` alone, beside manifests of others. None
    stands for what follows from the job or the service.

    Args:
        job: path of the job's file.
        values: fields of the job in the place of the file's, by their names there.
        kind: what the job becomes: ``job``, ``rayjob`` or ``trainjob``; None: a RayJob for several nodes, else a Job.
        code: folder of the image with the job's code; None: ``/app``.
        models: ``NAME@ALIAS`` each, that are served.
        web: the page over the home.
        gateway: S3 over the namespace.
        csi: the CSI plugin on every node; with `mount` a volume for an example.
        mount: what of the namespace is mounted beside the job.
        name: of all that is made.
        image: with headrace.
        home: URL where runs and models are recorded; None: the home of the settings here.
        namespace: of Kubernetes; None: kubectl's.
        service_account: that is made; None: as `name`.
        identity: annotations of the service account, by which a cloud knows it.
        secret: whose keys are variables: credentials of the stores.
        variables: more variables; nothing secret.
        settings: path of a headrace.toml for the pods.
        queue: Kueue's.
        cpus: of a pod, as Kubernetes takes them.
        memory: bytes of a pod.
        gpus: of a pod.
        cache: bytes of the cache on the node.
        cache_host: folder of the node for it, that pods share.
        replicas: pods of a service, at least.
        most: pods of it, at most; 0: no more than `replicas`.
        port: of a service.
        access: secret with what clients bring; of `csi`, of the volume.
        hosts: names by which browsers reach the page.
    """

    job: str | None = None
    values: Mapping[str, object] = field(default_factory=dict[str, object])
    kind: Kind | None = None
    code: str | None = None
    models: tuple[str, ...] = ()
    web: bool = False
    gateway: bool = False
    csi: bool = False
    mount: str | None = None
    name: str | None = None
    image: str | None = None
    home: str | None = None
    namespace: str | None = None
    service_account: str | None = None
    identity: Mapping[str, str] = field(default_factory=dict[str, str])
    secret: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: str | None = None
    queue: str | None = None
    cpus: str | None = None
    memory: int | None = None
    gpus: int | None = None
    cache: int | None = None
    cache_host: str | None = None
    replicas: int = 1
    most: int = 0
    port: int = 8080
    access: str | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendered:
    """Files to be applied, or a chart. Any thread.

    `files`: text by name below a folder, in the order in which they are applied; `needs`: what has to be in the cluster
    besides, a line each.
    """

    files: Mapping[str, str]
    needs: tuple[str, ...]

    @property
    def yaml(self) -> str:
        """Manifests, one after the other, for ``kubectl apply -f -``."""
        return "".join(f"---\n{text}" for text in self.files.values())

    def write(self, folder: str) -> None:
        """Into a folder, which is made. Raises AlreadyExistsError: something else is there already. Any OSError."""
        write(folder, self.files)


def kubernetes_manifests(request: KubernetesRequest, *, beside: str | None = None) -> Rendered:
    """Manifests of one thing, for kubectl. Nothing is applied, and no cluster is asked. Any thread.

    ``print(hr.cluster.kubernetes_manifests(hr.cluster.KubernetesRequest("job.toml")).yaml)``

    Args:
        request: what is to be run.
        beside: path of manifests of anybody's, into which the mount is put; `request` is of a mount then.

    Raises:
        InputError: not one thing, or what Kubernetes does not take. NotFoundError: a file is not there.
        UnsupportedError: the extra ``k8s`` is missing. As `JobSpec.load`.
    """
    if beside is not None:
        wanted = _mount_alone(request)
        return Rendered(files(with_mount(wanted, beside)), tuple(needs(wanted)))
    wanted = _wanted(request)
    return Rendered(files(manifests(wanted)), tuple(needs(wanted)))


def kubernetes_chart(request: KubernetesRequest) -> Rendered:
    """The same as a chart for Helm, with what `request` says as its values. Raises as `kubernetes_manifests`."""
    wanted = _wanted(request)
    return Rendered(chart_files(wanted), tuple(needs(wanted)))


def _wanted(request: KubernetesRequest) -> Wanted:
    services: dict[Kind, bool] = {
        "serve": bool(request.models), "web": request.web, "gateway": request.gateway, "csi": request.csi,
    }  # fmt: skip
    chosen: list[Kind] = [kind for kind, given in services.items() if given]
    if len(chosen) + (request.job is not None) != 1:
        hint = "headrace k8s render job.toml, or --serve NAME@prod, or --web, or --gateway, or --csi"
        raise InputError("name one thing to run", hint=hint)
    if request.job is not None:
        spec = JobSpec.load(request.job).with_flags(request.values).check()
        mount = MountPart(request.mount) if request.mount else None
        return for_job(spec, kind=request.kind, code=request.code, mount=mount, **_common(request))
    if request.csi:
        return for_csi(CsiPart(path=request.mount or "", secret=request.access or ""), **_common(request))
    if request.mount:
        raise InputError("is put beside a job", path="--mount", hint="--beside FILE.yaml puts it into any manifest")
    service = ServicePart(
        models=request.models, port=request.port, replicas=request.replicas, most=request.most,
        secret=request.access or "", hosts=",".join(request.hosts),
    )  # fmt: skip
    return for_service(chosen[0], service, **_common(request))


def _mount_alone(request: KubernetesRequest) -> Wanted:
    runs = request.job or request.models or request.web or request.gateway or request.csi
    if not request.mount or runs:
        raise InputError("goes with --mount, and with nothing else that runs", path="--beside", hint="--mount PATH")
    return for_mount(request.mount, **_common(request))


def _common(request: KubernetesRequest) -> dict[str, Any]:
    """What all kinds have; None: not said."""
    settings = request.settings
    if settings is not None:
        with open(settings, encoding="utf-8") as file:
            settings = file.read()
    return {
        **{name: getattr(request, name) for name in _ALIKE},
        "memory": None if request.memory is None else quantity(request.memory),
        "cache": None if request.cache is None else quantity(request.cache),
        "home": request.home or Settings.load().home,
        "settings": settings,
        "identity": dict(request.identity),
        "variables": dict(request.variables),
    }
