"""What is asked for: which kind of thing runs on Kubernetes, and the values of its manifests. Frozen; any thread.

The fields are the values of the chart, by the same names; what they mean is in their metadata. Quantities are written
as Kubernetes takes them: ``100G``, ``2Gi``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias, cast

from headrace.base.errors import InputError

Kind: TypeAlias = Literal["job", "rayjob", "trainjob", "serve", "web", "gateway", "mount", "csi"]
IMAGE: Final = "headrace:latest"
_PARTS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "job": ("job", "mount"), "rayjob": ("job", "mount"), "trainjob": ("job",), "mount": ("mount",),
    "csi": ("csi",),
}  # fmt: skip
_CPUS: Final = re.compile(r"[0-9]+(\.[0-9]{1,3})?|[0-9]+m")
_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,45}[a-z0-9])?")


def _says(doc: str, default: Any = "") -> Any:
    told = {"doc": doc}
    if isinstance(default, dict):
        return field(default_factory=dict[str, str], metadata=told)
    return field(default=default, metadata=told)


@dataclass(frozen=True, slots=True)
class JobPart:
    """Of a job."""

    file: str = _says("the job's file, complete: the folder of its code too")
    nodes: int = _says("nodes that it runs on", 1)
    least: int = _says("nodes that it makes do with, of a RayJob", 1)
    processes: int = _says("processes on each node, for a TrainJob", 1)
    grace: int = _says("seconds for a pod to end in: the job's grace, and the time to send what is left", 660)
    restarts: int = _says("pods that may fail before they began to work", 3)
    ray: str = _says("version of Ray in the image, 2.52.0 or later", "2.52.0")
    runtime: str = _says("the runtime that a TrainJob refers to", "torch-distributed")


@dataclass(frozen=True, slots=True)
class ServicePart:
    """Of a service."""

    models: tuple[str, ...] = _says("the models that are served, as `headrace serve` takes them", ())
    port: int = _says("port of the service and its pods", 8080)
    replicas: int = _says("pods, at least", 1)
    most: int = _says("pods, at most, as their CPUs are used; 0: no more than `replicas`", 0)
    secret: str = _says("secret with what clients bring: `token`, or `keys.toml` of the gateway; empty: NAME-access")
    hosts: str = _says("names by which browsers reach the page, besides the service's", "")
    drain: int = _says("seconds that a pod goes on for once it is to end, until nobody sends it more", 5)
    grace: int = _says("seconds for a pod to end in, with all that it was asked", 40)


@dataclass(frozen=True, slots=True)
class MountPart:
    """Of the mount beside a job, or beside what a manifest says."""

    path: str = _says("what of the namespace is mounted; empty: nothing")
    options: str = _says("mount options", "allow_other,ro")


@dataclass(frozen=True, slots=True)
class CsiPart:
    """Of the CSI plugin, and of a volume for an example."""

    path: str = _says("what an example of a volume shows; empty: there is none")
    secret: str = _says("secret with the credentials of that volume; empty: the plugin's own")
    claims: str = _says("namespace of the claim on that volume, and of its secret", "default")
    kubelet: str = _says("kubelet's folder on the nodes", "/var/lib/kubelet")
    registrar: str = _says(
        "image of Kubernetes's node-driver-registrar", "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.15.0"
    )
    drain: int = _says("seconds that mounts may take to send what is left when the plugin's pod ends", 40)
    grace: int = _says("seconds for that pod to end in", 60)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing to run, and all that its manifests say.

    Raises InputError: something that Kubernetes does not
    take, or a home that is this machine's.
    """

    kind: Kind = field(metadata={"shape": True})
    name: str = _says("name of all that is made")
    image: str = _says("image with headrace", IMAGE)
    home: str = _says("HEADRACE_HOME: where runs, snapshots and models are recorded")
    namespace: str = _says("namespace; empty: that of kubectl, or of the release")
    service_account: str = _says("service account that is made; empty: as `name`")
    identity: Mapping[str, str] = _says("annotations of the service account, by which a cloud knows it", {})
    secret: str = _says("secret whose keys are variables: credentials of the stores; empty: none")
    variables: Mapping[str, str] = _says("more variables; none of them secret", {})
    settings: str = _says("a headrace.toml: what is attached where; empty: none")
    queue: str = _says("Kueue's queue; empty: none")
    cpus: str = _says("CPUs of a pod", "1")
    memory: str = _says("memory of a pod; empty: not said")
    gpus: int = _says("GPUs of a pod", 0)
    cache: str = _says("size of the cache on the node", "20G")
    cache_host: str = _says("folder of the node for the cache, which its pods share; empty: each pod has its own")
    job: JobPart = field(default_factory=JobPart)
    service: ServicePart = field(default_factory=ServicePart)
    mount: MountPart = field(default_factory=MountPart)
    csi: CsiPart = field(default_factory=CsiPart)

    def __post_init__(self) -> None:
        for what, name in (("name", self.name), ("service account", self.service_account)):
            if name and not _NAME.fullmatch(name):
                hint = "lower-case letters, digits and '-', at most 47, beginning with a letter"
                raise InputError(f"{name!r} is no {what} that Kubernetes takes", hint=hint)
        if (not self.home and self.kind != "csi") or self.home.startswith(("file:", "/", ".")):
            hint = "--home s3://bucket/home"
            raise InputError("pods need a home that all of them reach", path=self.home or None, hint=hint)
        if not _CPUS.fullmatch(self.cpus):
            raise InputError(f"{self.cpus!r} is no number of CPUs", hint="write it like 4, 0.5 or 500m")
        object.__setattr__(self, "service_account", self.service_account or self.name)
        if not self.service.secret:
            object.__setattr__(self, "service", replace(self.service, secret=f"{self.name}-access"))

    @property
    def parts(self) -> tuple[str, ...]:
        """Which of its parts its manifests are made of."""
        return _PARTS.get(self.kind, ("service",))

    @property
    def values(self) -> dict[str, Any]:
        """By name, those of its parts below the part's."""
        values = {name: getattr(self, name) for name in described(self)}
        return values | {part: _told(getattr(self, part)) for part in self.parts}


def described(part: object) -> dict[str, str]:
    """What the values of a part mean, by their names; not those of parts below it."""
    return {one.name: one.metadata["doc"] for one in fields(cast("Any", part)) if "doc" in one.metadata}


def _told(part: object) -> dict[str, Any]:
    return {name: getattr(part, name) for name in described(part)}


def quantity(count: int) -> str:
    """Bytes as Kubernetes writes them, and `headrace.base.units` reads them."""
    for unit, size in (("Ti", 1 << 40), ("T", 10**12), ("Gi", 1 << 30), ("G", 10**9), ("Mi", 1 << 20), ("M", 10**6)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)
