"""The CSI plugin on every node, what tells Kubernetes of it, and an example of a volume.

https://kubernetes-csi.github.io/docs/. Its container is privileged, since it mounts for other pods; it may ask the API
nothing, as no container here may. It has no limit of memory: where one is exceeded, Kubernetes ends all processes of a
container at once, keepers too, while the kernel ends only the server that is too large, which its keeper replaces.
"""

from __future__ import annotations

from typing import Final

from headrace.cluster.kubernetes import pods
from headrace.cluster.kubernetes.tree import Text, Tree, Value, When

DRIVER: Final = "csi.headrace"
"""The plugin's name; `headrace.cluster.csi.DRIVER` is the same."""
STATE: Final = "/var/lib/headrace-csi"
_COMPONENT: Final = "csi"
_SOCKET: Final = "/csi/csi.sock"
_PLUGIN: Final = Text("{csi.kubelet}/plugins/" + DRIVER)


def csi() -> list[Tree]:
    """All of it, in the order in which it is applied."""
    settings = When("settings", pods.config_map(_COMPONENT, {}))
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER, "labels": pods.labels(_COMPONENT)},
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": False,
            "fsGroupPolicy": "None",
            "storageCapacity": False,
            "requiresRepublish": True,  # so that a mount whose keeper has died, too, is mounted again
            "volumeLifecycleModes": ["Persistent"],  # only who may make volumes says what is mounted
        },
    }
    labels = pods.labels(_COMPONENT)
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": pods.metadata(_COMPONENT),
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "OnDelete"},  # a pod of it that goes takes its mounts along
            "template": {"metadata": {"labels": labels}, "spec": _pod()},
        },
    }
    return [pods.service_account(_COMPONENT), settings, driver, daemons, *_example()]


def _pod() -> Tree:
    return {
        "serviceAccountName": Value("service_account"),
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": Value("csi.grace"),
        "containers": [_plugin(), _registrar()],
        "volumes": [
            *pods.own_volumes(),
            *pods.files(always=False),
            _folder("socket", _PLUGIN, "DirectoryOrCreate"),
            _folder("state", STATE, "DirectoryOrCreate"),
            _folder("pods", Text("{csi.kubelet}/pods"), "Directory"),
            _folder("registration", Text("{csi.kubelet}/plugins_registry"), "Directory"),
        ],
    }


def _plugin() -> Tree:
    asked = ["k8s", "csi", "--endpoint", f"unix://{_SOCKET}", "--node-id", "$(NODE)", "--state", STATE]
    return {
        "name": "plugin",
        "image": Value("image"),
        "command": ["headrace"],
        "args": [*asked, "--grace", Text("{csi.drain}s")],
        "env": [*pods.variables(), {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "envFrom": When("secret", [{"secretRef": {"name": Value("secret")}}]),
        "resources": {"requests": {"cpu": Value("cpus"), "memory": When("memory", Value("memory"))}},
        "securityContext": {
            "privileged": True, "runAsUser": 0, "runAsNonRoot": False, "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            *pods.own_mounts(),
            {"name": "socket", "mountPath": "/csi"},
            {"name": "state", "mountPath": STATE},
            {"name": "pods", "mountPath": Text("{csi.kubelet}/pods"), "mountPropagation": "Bidirectional"},
        ],
    }  # fmt: skip


def _registrar() -> Tree:
    """Tells kubelet of the plugin. It is root, since the folder is root's, and may do nothing else that root may."""
    return {
        "name": "registrar",
        "image": Value("csi.registrar"),
        "args": [f"--csi-address={_SOCKET}", Text(f"--kubelet-registration-path={_PLUGIN.form}/csi.sock")],
        "resources": {"requests": {"cpu": "10m", "memory": "32M"}},
        "securityContext": pods.NO_RIGHTS | {"runAsUser": 0, "runAsNonRoot": False},
        "volumeMounts": [
            {"name": "socket", "mountPath": "/csi"},
            {"name": "registration", "mountPath": "/registration"},
        ],
    }


def _folder(name: str, path: Tree, kind: str) -> Tree:
    return {"name": name, "hostPath": {"path": path, "type": kind}}


def _example() -> list[Tree]:
    """A volume, read-only, and the claim on it that pods name."""
    modes, size = ["ReadOnlyMany"], {"storage": "1Gi"}  # which nobody looks at: a bucket has no size
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": Text("{name}-data"), "labels": pods.labels(_COMPONENT)},
        "spec": {
            "accessModes": modes,
            "capacity": size,
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"name": Text("{name}-data"), "namespace": Value("csi.claims")},
            "csi": {
                "driver": DRIVER,
                "volumeHandle": Text("{name}-data"),
                "readOnly": True,
                "volumeAttributes": {"path": Value("csi.path")},
                "nodePublishSecretRef": When(
                    "csi.secret", {"name": Value("csi.secret"), "namespace": Value("csi.claims")}
                ),
            },
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": Text("{name}-data"), "namespace": Value("csi.claims"), "labels": pods.labels(_COMPONENT),
        },
        "spec": {
            "accessModes": modes,
            "resources": {"requests": size},
            "storageClassName": "",
            "volumeName": Text("{name}-data"),
        },
    }  # fmt: skip
    return [When("csi.path", volume), When("csi.path", claim)]
