"""The mount beside a container: a native sidecar, which starts before it and ends after it.

https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/. It alone is privileged, since the kernel asks
for that: for /dev/fuse, and for a mount that other containers of the pod see. The container beside it sees the folder
and has no more rights than before. It mounts below the volume, so that a mount that was started again is seen, too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from headrace.base.errors import InputError
from headrace.cluster.kubernetes import pods
from headrace.cluster.kubernetes.tree import Tree, Value, Values, When, filled

VOLUME: Final = "/mnt/headrace"
FOLDER: Final = f"{VOLUME}/data"
"""Where the job sees the namespace."""
_NAME: Final = "headrace-mount"
_START: Final = f'mkdir -p {FOLDER} && exec headrace mount --foreground -o "$1" "$2" {FOLDER}'


def container() -> Tree:
    """The sidecar, for ``initContainers``."""
    return {
        "name": _NAME,
        "image": Value("image"),
        "restartPolicy": "Always",
        "command": ["sh", "-c", _START, _NAME],
        "args": [Value("mount.options"), Value("mount.path")],
        "env": pods.variables(),
        "envFrom": When("secret", [{"secretRef": {"name": Value("secret")}}]),
        "startupProbe": {"exec": {"command": ["mountpoint", "-q", FOLDER]}, "periodSeconds": 1, "failureThreshold": 60},
        "resources": {"requests": {"cpu": "500m", "memory": "1G"}},
        "securityContext": {
            "privileged": True, "runAsUser": 0, "runAsNonRoot": False, "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {"name": "mount", "mountPath": VOLUME, "mountPropagation": "Bidirectional"},
            {"name": "mount-home", "mountPath": "/home/headrace"},
            {"name": "mount-tmp", "mountPath": "/tmp"},  # noqa: S108
            {"name": "mount-cache", "mountPath": pods.CACHE},
            pods.settings_mount(),
        ],
    }  # fmt: skip


def volumes() -> list[Tree]:
    """What it needs. Its cache is its own: what root has written there others cannot read."""
    return [{"name": name, "emptyDir": {}} for name in ("mount", "mount-home", "mount-tmp", "mount-cache")]


def seen() -> Tree:
    """How the container beside it sees the folder."""
    return When("mount.path", {"name": "mount", "mountPath": VOLUME, "mountPropagation": "HostToContainer"})


def has_pods(document: Mapping[str, Any]) -> bool:
    """Whether there is anything for a mount to stand beside."""
    return bool((_pod_of(dict(document)) or {}).get("containers"))


def beside(document: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """A manifest of anybody's that `has_pods`, with the mount beside the first container of them.

    Raises:
        InputError: it has a volume or container of ours already.
    """
    made = copy.deepcopy(dict(document))
    spec = _pod_of(made) or {}
    taken = {str(one.get("name")) for key in ("containers", "initContainers", "volumes") for one in spec.get(key) or ()}
    ours = filled([*volumes(), *pods.files(always=False)], values)
    if clash := sorted(taken & {_NAME, *(str(one["name"]) for one in ours)}):
        raise InputError(f"has {clash[0]!r} already", path=_told(document), hint="rename it")
    first: dict[str, Any] = spec["containers"][0]
    first["volumeMounts"] = [*(first.get("volumeMounts") or ()), filled(seen(), values)]
    spec["initContainers"] = [filled(container(), values), *(spec.get("initContainers") or ())]
    spec["volumes"] = [*(spec.get("volumes") or ()), *ours]
    return made


def _pod_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The spec of its pods."""
    if document.get("kind") == "Pod":
        return document.get("spec")
    for spec in _specs(document):
        template: Any = spec.get("template")
        if isinstance(template, dict):
            return cast("dict[str, Any]", template).get("spec")
    return None


def _specs(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec: Any = document.get("spec")
    if isinstance(spec, dict):
        yield cast("dict[str, Any]", spec)
        nested: Any = cast("dict[str, Any]", spec).get("jobTemplate")  # of a CronJob
        if isinstance(nested, dict):
            yield from _specs(cast("dict[str, Any]", nested))


def _told(document: Mapping[str, Any]) -> str:
    return f"{document.get('kind')}/{(document.get('metadata') or {}).get('name')}"
