"""What pods are made of: names, variables, volumes and rights. All but the mount fits the standard "restricted".

https://kubernetes.io/docs/concepts/security/pod-security-standards/. The root of a container is read-only: what is
written goes to the volumes ``home``, ``tmp`` and ``cache``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.cluster.kubernetes.tree import Pairs, Tree, Value, When

USER: Final = 10001
"""Number of the user that everything runs as; ``deploy/Containerfile`` has the same."""
CODE: Final = "/app"
"""Where the image has a job's code: the working folder of ``deploy/Containerfile``."""
JOB: Final = "/job/job.toml"
GPU: Final = "nvidia.com/gpu"
_HOME: Final = "/home/headrace"
CACHE: Final = "/var/cache/headrace"
_SETTINGS: Final = "/headrace.toml"
"""headrace looks for its settings upward from the working folder, so it finds them here from any."""

RIGHTS: Final[Tree] = {
    "runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip
"""Of a pod."""
NO_RIGHTS: Final[Tree] = {
    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
}  # fmt: skip
"""Of a container."""
CREDENTIALS: Final = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "AWS_REGION",
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY",
)  # fmt: skip
"""Keys of a secret that are variables where it cannot be taken as a whole."""


def labels(component: str) -> Tree:
    """By which what belongs together is found."""
    return {
        "app.kubernetes.io/name": "headrace",
        "app.kubernetes.io/instance": Value("name"),
        "app.kubernetes.io/component": component,
    }


def metadata(component: str, name: Tree | None = None, *, queued: bool = False) -> Tree:
    """Of a document. `name`: another than what is asked for; `queued`: it is what Kueue admits."""
    queue = {"kueue.x-k8s.io/queue-name": When("queue", Value("queue"))} if queued else {}
    return {
        "name": name or Value("name"),
        "namespace": When("namespace", Value("namespace")),
        "labels": labels(component) | queue,
    }


def service_account(component: str) -> Tree:
    """Who the pods are, to the cloud; to Kubernetes itself they may say nothing, as they get no token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(component, Value("service_account")) | {
            "annotations": When("identity", Value("identity"))
        },
        "automountServiceAccountToken": False,
    }  # fmt: skip


def config_map(component: str, data: Tree) -> Tree:
    """Files for the pods."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(component),
        "data": data | {"headrace.toml": When("settings", Value("settings"))},
    }


def container(name: str, command: Sequence[Tree], *, mounts: Sequence[Tree] = (), **more: Tree) -> Tree:
    """One without any rights. `command`: program and arguments, or none."""
    return {
        "name": name,
        "image": Value("image"),
        **({"command": list(command[:1]), "args": list(command[1:])} if command else {}),
        "env": [*variables(), *more.pop("env", ())],
        "envFrom": When("secret", [{"secretRef": {"name": Value("secret")}}]),
        "resources": resources(),
        "securityContext": NO_RIGHTS,
        "volumeMounts": [*own_mounts(), *mounts],
        **more,
    }


def pod(containers: Sequence[Tree], volumes: Sequence[Tree] = (), **more: Tree) -> Tree:
    """The spec of a pod."""
    return {
        "serviceAccountName": Value("service_account"),
        "automountServiceAccountToken": False,
        "securityContext": RIGHTS,
        **more,
        "containers": list(containers),
        "volumes": [*own_volumes(), *volumes],
    }


def variables() -> list[Tree]:
    """What every container has set."""
    return [
        {"name": "HEADRACE_HOME", "value": Value("home")},
        {"name": "HEADRACE_CACHE_DIR", "value": CACHE},
        {"name": "HEADRACE_CACHE_SIZE", "value": Value("cache")},
        {"name": "HOME", "value": _HOME},
        Pairs("variables"),
    ]


def resources() -> Tree:
    """Of one container. The cache is asked for as the node's disk, unless the node has it already."""
    memory = When("memory", Value("memory"))
    return {
        "requests": {
            "cpu": Value("cpus"),
            "memory": memory,
            "ephemeral-storage": When("cache_host", Value("cache"), absent=True),
        },
        "limits": When("memory gpus", {"memory": memory, GPU: When("gpus", Value("gpus"))}),
    }


def own_mounts() -> list[Tree]:
    """Where the volumes are that every pod has."""
    return [
        {"name": "home", "mountPath": _HOME},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        {"name": "cache", "mountPath": CACHE},
        settings_mount(),
    ]


def settings_mount() -> Tree:
    """Where headrace finds its settings."""
    return When("settings", {"name": "files", "mountPath": _SETTINGS, "subPath": "headrace.toml", "readOnly": True})


def own_volumes() -> list[Tree]:
    """What can be written to; what the settings lie in is `files`."""
    return [
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {
            "name": "cache",
            "emptyDir": When("cache_host", {}, absent=True),
            "hostPath": When("cache_host", {"path": Value("cache_host"), "type": "Directory"}),
        },
    ]


def files(*, always: bool) -> list[Tree]:
    """The volume of a config map. `always`: there is more in it than settings."""
    volume = {"name": "files", "configMap": {"name": Value("name")}}
    return [volume if always else When("settings", volume)]


def job_mount() -> Tree:
    """Where a job's file is."""
    return {"name": "files", "mountPath": JOB, "subPath": "job.toml", "readOnly": True}
