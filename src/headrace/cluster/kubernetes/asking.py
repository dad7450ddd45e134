"""What is asked for, from a job or from what is to be served."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.base.errors import InputError
from headrace.cluster.kubernetes.pods import CODE
from headrace.cluster.kubernetes.wanted import CsiPart, JobPart, Kind, MountPart, ServicePart, Wanted, quantity
from headrace.jobs import JobSpec
from headrace.tracking.record import as_name

_MARGIN_S: Final = 30  # seconds between the end of all that a job may take to end and SIGKILL
_OWN_BYTES: Final = 1 << 30
"""Memory of headrace itself, beside that of the command."""


def for_job(
    spec: JobSpec, *, kind: Kind | None = None, name: str | None = None, code: str | None = None,
    mount: MountPart | None = None, **given: Any,
) -> Wanted:  # fmt: skip
    """A job on Kubernetes.

    Args:
        spec: the job, complete.
        kind: None: a RayJob for several nodes, else a Job.
        name: of the job, and of all that is made; None: the job's own.
        code: folder of the image that has the code, where the job names no checkout; None: `/app`.
        mount: what of the namespace is mounted beside it.
        given: other fields of `Wanted`; what is left out, or None, follows from the job.

    Raises:
        InputError: this cannot be run there.
    """
    least, nodes = spec.cluster.workers or (spec.cluster.nodes, spec.cluster.nodes)
    kind = kind or ("rayjob" if _several(spec) else "job")
    _refuse(spec, kind, mount)
    named = replace(spec, name=name) if name else spec
    cpus, gpus = _cpus(spec), _gpus(spec)
    processes = spec.processes if isinstance(spec.processes, int) else max(1, gpus)
    memory = quantity(_rounded(spec.resources.memory + _OWN_BYTES)) if spec.resources.memory else ""
    usual: dict[str, Any] = {"cpus": str(cpus), "memory": memory, "gpus": gpus}
    part = JobPart(
        file=_there(named, kind, code or CODE).as_toml(),
        nodes=nodes,
        least=least,
        processes=processes,
        grace=math.ceil(spec.grace + spec.outputs.drain) + _MARGIN_S,
    )
    return Wanted(
        kind, name or _name(spec.title), job=part, mount=mount or MountPart(), **(usual | _told(given))
    )  # fmt: skip


def for_service(kind: Kind, service: ServicePart, *, name: str | None = None, **given: Any) -> Wanted:
    """What answers requests. `given`: as with `for_job`. Raises InputError: nothing to serve, or no name."""
    if kind == "serve" and not service.models:
        raise InputError("there is nothing to serve", hint="--serve NAME@prod")
    if service.most and service.most < service.replicas:
        raise InputError(f"{service.most} pods at most are fewer than {service.replicas}", hint="--replicas 2..8")
    called = name or _name(service.models[0].partition("@")[0] if kind == "serve" else f"headrace-{kind}")
    usual: dict[str, Any] = {"memory": "2G"}
    return Wanted(kind, called, service=service, **(usual | _told(given)))


def for_mount(path: str, *, name: str | None = None, **given: Any) -> Wanted:
    """The mount alone, to be put beside what others have. `given`: as with `for_job`."""
    return Wanted("mount", name or "headrace-mount", mount=MountPart(path), **_told(given))


def for_csi(part: CsiPart, *, name: str | None = None, **given: Any) -> Wanted:
    """The CSI plugin on every node, and where `part` has a path a volume for an example. `given`: as with `for_job`."""
    usual: dict[str, Any] = {"memory": "1G", "home": ""}
    return Wanted("csi", name or "headrace-csi", csi=part, **(usual | _told(given)))


def needs(wanted: Wanted) -> list[str]:
    """What has to be in the cluster for it, a line each."""
    where = f" --namespace {wanted.namespace}" if wanted.namespace else ""
    lines: list[str] = []
    if wanted.secret:
        lines.append(f"needs the secret {wanted.secret}, whose keys are variables: AWS_ACCESS_KEY_ID …")
    if wanted.kind in ("serve", "web"):
        make = f"kubectl create secret generic {wanted.service.secret}{where} --from-literal=token=…"
        lines.append(f"needs the token that clients bring: {make}")
    if wanted.kind == "gateway":
        make = f"kubectl create secret generic {wanted.service.secret}{where} --from-file=keys.toml"
        lines.append(f"needs the keys that clients have: {make}")
        if not wanted.settings:
            lines.append("needs something attached, to be its buckets: --settings headrace.toml, or one in the image")
    if wanted.kind == "rayjob":
        lines.append("needs KubeRay 1.5.1 or later, and Ray 2.52 or later in the image")
    if wanted.kind == "trainjob":
        lines.append(f"needs Kubeflow Trainer 2 with the runtime {wanted.job.runtime}, and PyTorch in the image")
    if wanted.kind == "csi":
        lines.append("needs a namespace that allows privileged pods; mounts outlive their server on Linux 6.9 or later")
        if wanted.csi.secret:
            keys = f"kubectl create secret generic {wanted.csi.secret} --namespace {wanted.csi.claims} --from-literal=…"
            lines.append(f"needs the credentials of the volume: {keys}")
        return lines
    if wanted.queue:
        lines.append(f"needs Kueue with the queue {wanted.queue} in the namespace")
    if wanted.mount.path or wanted.cache_host:
        lines.append("needs a namespace that allows privileged pods, or folders of the node")
    return lines


def _told(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}


def _refuse(spec: JobSpec, kind: Kind, mount: MountPart | None) -> None:
    if spec.task:
        raise InputError("a manifest is of one command", path="task", hint="render a file for each task")
    if kind == "job" and _several(spec):
        hint = "leave --kind out for a RayJob"
        field = "cluster.nodes" if spec.cluster.workers is None else "cluster.workers"
        raise InputError("a Job is one pod", path=field, hint=hint)
    if kind == "trainjob" and spec.cluster.workers is not None:
        raise InputError("a TrainJob has nodes", path="cluster.workers", hint="cluster.nodes; or leave --kind out")
    if kind == "trainjob" and mount is not None:
        raise InputError("a mount cannot be put beside the pods of a TrainJob", hint="take a Job or a RayJob")
    if spec.environment.image is not None:
        hint = "leave it out, and give --image: the pods are that image"
        raise InputError("a pod starts no other image", path="environment.image", hint=hint)
    for name, one in spec.inputs.items():
        if one.as_ == "mount":
            hint = 'as = "name" or "copy"; or --mount PATH, beside it'
            raise InputError("a pod without rights mounts nothing", path=f"inputs.{name}", hint=hint)


def _there(spec: JobSpec, kind: Kind, code: str) -> JobSpec:
    """The job as the pods find it."""
    changes: dict[str, object] = {"cluster.on": ""}
    if spec.code.git is None and spec.code.capture:
        changes["code.path"] = posixpath.join(code, spec.code.path or "").rstrip("/") or "/"
    if kind == "rayjob":
        changes["cluster.on"] = "ray://auto"
    if kind == "trainjob":  # the runtime tells torchrun of the others by its own variables, PET_*
        changes |= {"command": ["torchrun", "--no-python", *spec.argv], "processes": 1, "cluster.nodes": 1}
    return spec.with_flags(changes)


def _several(spec: JobSpec) -> bool:
    return spec.cluster.nodes > 1 or spec.cluster.workers is not None


def _cpus(spec: JobSpec) -> int:
    """Of a pod. Each worker of a gang is one."""
    if spec.cluster.workers is not None:
        return spec.cluster.cpus_per_worker
    return spec.cluster.cpus_per_node if _several(spec) else spec.resources.cpus or spec.cluster.cpus_per_node


def _gpus(spec: JobSpec) -> int:
    """Of a pod. A job that takes all there are says by `cluster.gpus_per_node` how many that is."""
    if spec.cluster.workers is not None:
        return spec.cluster.gpus_per_worker
    if _several(spec) or spec.resources.gpus == "all":
        return spec.cluster.gpus_per_node
    return spec.resources.gpus if isinstance(spec.resources.gpus, int) else len(spec.resources.gpus)


def _rounded(count: int) -> int:
    return -(-count >> 20) << 20


def _name(title: str) -> str:
    """One that Kubernetes takes."""
    name = as_name(title).replace(".", "-").replace("_", "-")
    return name if name[0].isalpha() else f"run-{name}"
